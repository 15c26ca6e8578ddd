"""One replica of one partition: its log, its role and, while it leads, its followers and high watermark.

A leader appends, and a record is committed once the whole maximal ISR has it (and, with eligible leader
replicas, once that ISR is large enough: KIP-966); a follower appends the leader's records and truncates its
log where the leader's history differs (KIP-101, KIP-279, KIP-320). The leader epoch decides which leader is
the current one; the partition epoch decides which ISR is the newest. Decides everything about one replica and
calls nothing but its log: no sockets, no clocks, no tasks. It is long because both roles act on the same
log, epochs and high watermark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from pykraft.broker.fetch_sessions.session import Subscribers
from pykraft.broker.logs.producers.rebuild import ProducerRebuild
from pykraft.broker.logs.producers.state import ProducerState
from pykraft.broker.logs.producers.verification import Guard
from pykraft.broker.replicas.leading.validate import LOG_APPEND_TIME
from pykraft.broker.replicas.partition.follower_batches import begin_within_span, find_new_batches
from pykraft.broker.replicas.partition.isr import (
    UNKNOWN_OFFSET,
    FollowerProgress,
    IsrProposal,
    IsrState,
    high_watermark_candidate,
    lagging_members,
    without,
)
from pykraft.broker.replicas.partition.purgatory import OffsetQueue
from pykraft.broker.replicas.traffic import Traffic
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.markers import EndOfTransaction, Marker, build_marker, with_markers
from pykraft.kafka_protocol.records import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assign_offset,
    crc_is_valid,
    iter_headers,
    read_header,
    set_log_append_time,
)
from pykraft.log_store.compaction.gaps import fill_gaps
from pykraft.log_store.indexes.transaction_index import AbortedTransaction
from pykraft.log_store.interface import CorruptLogError, EpochEnd, LogSlice
from pykraft.log_store.log.log import Log
from pykraft.metadata_log.image import PartitionRegistration, required_in_sync

NO_EPOCH = -1
IN_TRANSACTIONS = CONTROL_BIT | TRANSACTIONAL_BIT
HIGH_WATERMARK = -1
"""The offset of a deletion that means the high watermark."""


class PartitionEvents(Protocol):
    """Receives the events of a partition, synchronously with each change."""

    def log_grew(self, partition: Partition) -> None: ...
    def high_watermark_moved(self, partition: Partition) -> None:
        """The high watermark, or the last stable offset: there may be more to read."""
        ...

    def log_start_moved(self, partition: Partition) -> None:
        """Followers must be told, and the log start must be stored (:meth:`Partition.log_start_stored`)."""
        ...

    def state_changed(self, partition: Partition) -> None:
        """Role, epoch or ISR have changed, or the log was truncated."""
        ...

    def producers_lost(self, partition: Partition) -> None:
        """The state of its producers must be rebuilt from the log."""
        ...

    def storage_failed(self, partition: Partition, error: OSError | CorruptLogError) -> None:
        """The log can no longer be used."""
        ...

    def replication_failed(self, partition: Partition, error: Exception) -> None:
        """An error that nobody has foreseen: it is fetched again later."""
        ...


class AppendInfo(NamedTuple):
    """Where a batch was appended. The high watermark must reach ``next_offset`` for acks=all."""

    base_offset: int
    next_offset: int
    log_append_time_ms: int


class FetchWaiter(Protocol):
    """A fetch that waits until this partition has more to read, or a deletion of records that waits for the
    log starts of its replicas.
    """

    def wake(self) -> None: ...


class Partition:
    """See the module. Attributes are read-only for others."""

    __slots__ = (
        "_events",
        "_has_enough",
        "_may_commit",
        "_node_id",
        "_others",
        "committed_waiters",
        "consumer_sessions",
        "consumer_waiters",
        "flushed_waiters",
        "follower_sessions",
        "followers",
        "high_watermark",
        "index",
        "is_throttled_follower",
        "is_throttled_leader",
        "isr",
        "isr_refusals",
        "isr_retry_ms",
        "last_stable_offset",
        "leader_epoch",
        "leader_epoch_start",
        "leader_id",
        "log",
        "log_start_waiters",
        "min_isr",
        "producers",
        "replica_waiters",
        "replicas",
        "strict_min_isr",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(
        self,
        topic: str,
        topic_id: Uuid,
        index: int,
        node_id: int,
        log: Log,
        events: PartitionEvents,
        *,
        producers: ProducerState | None = None,
        high_watermark: int = 0,
        traffic: Traffic | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self._node_id = node_id
        self.log = log
        self._events = events
        self.traffic = traffic if traffic is not None else Traffic()
        self.producers = producers if producers is not None else _replay_producers(log)
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        #: What readers of committed transactions may read: no record before it is undecided.
        self.last_stable_offset = log.log_start_offset
        self.last_stable_offset = self._find_stable_offset()
        self.min_isr = log.config.min_insync_replicas
        self.strict_min_isr = False
        self.is_throttled_leader = self.is_throttled_follower = False
        self.leader_id: int | None = None
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start = 0
        self.replicas: tuple[int, ...] = ()
        self.isr = IsrState((), NO_EPOCH)
        self.isr_retry_ms = 0
        self.isr_refusals = 0
        self.followers: dict[int, FollowerProgress] = {}
        self._others: tuple[int, ...] = ()  # the maximal ISR without this replica
        self._has_enough = False  # at least min.insync.replicas are in sync
        self._may_commit = False
        self.committed_waiters = OffsetQueue()
        """Told once all below their offset is committed, or this replica can no longer tell."""
        self.flushed_waiters = OffsetQueue()
        """Told once all below their offset is flushed as far as the topic asks for it
        (:attr:`.Log.acknowledged_end_offset`), or this replica no longer leads.
        """
        self.consumer_waiters: dict[FetchWaiter, None] = {}
        self.replica_waiters: dict[FetchWaiter, None] = {}
        self.log_start_waiters: dict[FetchWaiter, None] = {}
        self.consumer_sessions: Subscribers = {}
        self.follower_sessions: Subscribers = {}

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self._node_id

    def use_log(self, log: Log) -> None:
        """The log was moved to another directory: ``log`` holds the same."""
        assert log.log_end_offset == self.log.log_end_offset, f"{self}: the moved log differs"
        log.config = self.log.config
        self.log = log

    def storage_failed(self, error: OSError | CorruptLogError) -> KafkaError:
        """Report that the log could not be written or read; returns the error to answer with."""
        self._events.storage_failed(self, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def replication_failed(self, error: Exception) -> None:
        """Report an error that nobody has foreseen, in the answer of its leader."""
        self._events.replication_failed(self, error)

    # -- role ------------------------------------------------------------------------------------------

    def apply(self, registration: PartitionRegistration, now_ms: int) -> bool:
        """Take the controller's newest state; whether the leader or the leader epoch changed.

        A state older than the known one is ignored (an AlterPartition answer may overtake the metadata log).
        """
        if registration.leader_epoch < self.leader_epoch:
            return False
        if registration.partition_epoch < self.isr.partition_epoch:
            return False
        leader = registration.leader if registration.has_leader else None
        if self.log.latest_epoch > registration.leader_epoch:
            # No leader can have written that: it is damage, as the CRC of a batch does not cover the epoch.
            reason = f"leader epoch {self.log.latest_epoch} is later than the controller's"
            self.storage_failed(
                CorruptLogError(self.log.directory, 0, f"{reason} {registration.leader_epoch}")
            )
            return False
        changed = registration.leader_epoch > self.leader_epoch or leader != self.leader_id
        self.replicas = registration.replicas
        if changed:
            self.leader_epoch = registration.leader_epoch
            self.leader_id = leader
            self.isr = IsrState(registration.isr, registration.partition_epoch, elr=registration.elr)
            self.isr_retry_ms = self.isr_refusals = 0
            if self.is_leader:
                self._become_leader(now_ms)
            else:
                self._become_follower()
        else:
            self.isr = self.isr.with_committed(
                registration.isr, registration.partition_epoch, registration.elr
            )
            for replica in registration.replicas:
                if self.is_leader and replica not in self.followers and replica != self._node_id:
                    self.followers[replica] = FollowerProgress(
                        now_ms if replica in self.isr.committed else None
                    )
        self._isr_changed()
        return changed

    def set_min_isr(self, min_isr: int, *, strict: bool) -> None:
        """Set how many replicas must be in sync: for acks=all, and if ``strict`` for any commit."""
        if (min_isr, strict) != (self.min_isr, self.strict_min_isr):
            self.min_isr, self.strict_min_isr = min_isr, strict
            self._isr_changed()

    def set_throttled(self, *, as_leader: bool, as_follower: bool) -> None:
        """Set whether copies of this replica count for, and wait for, the broker's limits (KIP-73)."""
        self.is_throttled_leader, self.is_throttled_follower = as_leader, as_follower

    def _become_leader(self, now_ms: int) -> None:
        self.leader_epoch_start = self.log.log_end_offset
        self.log.assign_epoch(self.leader_epoch, self.leader_epoch_start)
        self.followers = {
            replica: FollowerProgress(now_ms if replica in self.isr.committed else None)
            for replica in self.replicas
            if replica != self._node_id
        }

    def _become_follower(self) -> None:
        self.followers = {}
        self._forget_empty_epochs()
        self.refuse_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _forget_empty_epochs(self) -> None:
        """Forget epochs in which this replica led and wrote nothing: no leader's log could confirm them."""
        log = self.log
        log.epoch_cache.truncate_from_end(log.log_end_offset)
        log.assign_epoch(NO_EPOCH, 0)  # assigns nothing, but makes the log read its newest epoch again

    def refuse_waiters(self, code: ErrorCode) -> None:
        """Refuse all waiting requests: this replica will no longer learn whether a batch was committed."""
        for waiter in (*self.committed_waiters.pop_all(), *self.flushed_waiters.pop_all()):
            waiter.offset_refused(code)
        for waiting in [*self.consumer_waiters, *self.replica_waiters, *self.log_start_waiters]:
            waiting.wake()
        self._events.state_changed(self)

    def require_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raise :class:`KafkaError` unless this replica leads, in the epoch of the client (KIP-320)."""
        self.require_epoch(current_leader_epoch)
        if self.leader_id != self._node_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self} is led by {self.leader_id}")

    def require_epoch(self, current_leader_epoch: int) -> None:
        """Raise :class:`KafkaError` unless the client names the leader epoch of this replica, or none."""
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{self} is at epoch {self.leader_epoch}")
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self} is at epoch {self.leader_epoch}")

    # -- leader: write ---------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: memoryview,
        header: BatchHeader,
        now_ms: int,
        *,
        all_acks: bool,
        guard: Guard | None = None,
    ) -> AppendInfo:
        """Append one valid batch; offset and epoch are written into ``records`` in place.

        A duplicate of an idempotent producer is not appended; it gets the offsets of the original. ``now_ms``
        is the wall clock. ``guard``: of the verification of a transaction (:meth:`begin_verification`).
        """
        if all_acks:
            self._require_enough()
        if header.producer_id >= 0:
            original = self.producers.check(header, guard)
            if original is not None:
                return AppendInfo(original.base_offset, original.next_offset, -1)
        return self._append(records, header, now_ms, None)

    def end_transaction(self, end: EndOfTransaction, now_ms: int) -> AppendInfo:
        """Append the marker of a transaction, with the guarantees of acks=all. ``now_ms`` is the wall clock.

        It is appended whether or not the transaction has data here, and again if it is sent again.
        """
        self._require_enough()
        self.producers.check_end(end)
        batch = memoryview(bytearray(build_marker(end.producer_id, end.producer_epoch, end.marker, now_ms)))
        return self._append(batch, read_header(batch), now_ms, end.marker)

    def begin_verification(
        self, header: BatchHeader, now_ms: int, *, supports_epoch_bump: bool
    ) -> Guard | None:
        """Before a transactional batch is appended: a guard if the transaction coordinator has to be asked
        whether this partition is in the transaction. ``now_ms`` is monotonic.
        """
        self.require_leader()
        return self.producers.begin_verification(header, now_ms, supports_epoch_bump=supports_epoch_bump)

    def require_verified(self, header: BatchHeader, guard: Guard | None) -> None:
        """:class:`KafkaError` unless a transactional batch may be appended now. ``guard``: of the
        verification of its transaction, None if that was known.
        """
        self.require_leader()
        self.producers.check(header, guard)

    def _require_enough(self) -> None:
        if not self._has_enough:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self} has {len(self.isr.committed)} in-sync replicas, {self._required_in_sync} required",
            )

    def _append(
        self, records: memoryview, header: BatchHeader, now_ms: int, marker: Marker | None
    ) -> AppendInfo:
        log = self.log
        base_offset = log.log_end_offset
        append_time_ms = -1
        if log.config.message_timestamp_type == LOG_APPEND_TIME:
            append_time_ms = now_ms
            set_log_append_time(records, 0, now_ms)
            header = read_header(records)
        assign_offset(records, 0, base_offset, self.leader_epoch)
        header = header.placed(base_offset, self.leader_epoch)
        log.append(records, (header,), now_ms=now_ms)
        self.traffic.bytes_in += len(records)
        self.traffic.messages_in += header.record_count
        if header.producer_id >= 0:
            self._replay(header, marker)
        if self._others or not self._may_commit:
            self._events.log_grew(self)
        else:
            if not log.is_flush_due:
                self._move_high_watermark(log.log_end_offset)
            if self.followers:
                self._events.log_grew(self)
        return AppendInfo(base_offset, log.log_end_offset, append_time_ms)

    def _replay(self, header: BatchHeader, marker: Marker | None) -> None:
        """A batch is in the log: note its producer, and what it does to transactions."""
        aborted = self.producers.replay(header, marker)
        if aborted is not None:
            self.log.note_aborted(aborted)
        if header.attributes & IN_TRANSACTIONS:
            self.last_stable_offset = self._find_stable_offset()

    def _find_stable_offset(self) -> int:
        producers, high_watermark = self.producers, self.high_watermark
        if producers.is_behind:
            return min(self.last_stable_offset, high_watermark)
        first_unstable = producers.transactions.first_unstable_offset(high_watermark)
        if first_unstable is None or first_unstable >= high_watermark:
            return high_watermark
        return max(first_unstable, self.log.log_start_offset)

    def producers_rebuilt(self) -> None:
        """The state of the producers is known again."""
        stable = self._find_stable_offset()
        if stable != self.last_stable_offset:
            self.last_stable_offset = stable
            self._events.high_watermark_moved(self)

    def log_flushed(self) -> None:
        """A flush is complete that a leader waited for."""
        self._recount()
        for waiter in self.flushed_waiters.pop_reached(self.log.acknowledged_end_offset):
            waiter.offset_committed()

    # -- leader: replicate -----------------------------------------------------------------------------

    def check_follower(self, replica_id: int, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """Where a follower's log diverges from this one; None if it does not.

        Call it before :meth:`handle_follower_fetch`: the fetch of a diverging follower acknowledges nothing.
        """
        if replica_id not in self.followers:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica_id} is not a replica of {self}"
            )
        if last_fetched_epoch == NO_EPOCH:
            return None
        return self.diverging_epoch(fetch_offset, last_fetched_epoch)

    def diverging_epoch(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """Where a log that ends at ``fetch_offset`` in that epoch diverges from this; None if it does not."""
        end = self.log.end_offset_for_epoch(last_fetched_epoch)
        if end.end_offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self} does not know leader epoch {last_fetched_epoch}"
            )
        if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:
            return end
        return None

    def handle_follower_fetch(
        self, replica_id: int, fetch_offset: int, broker_epoch: int, now_ms: int, log_start_offset: int
    ) -> None:
        """A follower fetches from ``fetch_offset``: it has all before that, and has stored its log start.

        ``now_ms`` is monotonic.
        """
        log = self.log
        if not log.log_start_offset <= fetch_offset <= log.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {fetch_offset} is outside of [{log.log_start_offset}, {log.log_end_offset}]",
            )
        follower = self.followers[replica_id]
        if broker_epoch < follower.broker_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"replica {replica_id} has a newer incarnation"
            )
        moved = fetch_offset != follower.log_end_offset
        start_moved = log_start_offset != follower.log_start_offset
        follower.handle_fetch(fetch_offset, log.log_end_offset, now_ms, broker_epoch, log_start_offset)
        if moved:
            self._recount()
        if start_moved:
            self._wake_log_start_waiters()

    def must_send_log_start(self, replica_id: int) -> bool:
        """Whether a follower does not know this log's start yet; the caller then answers its fetch."""
        follower, start = self.followers[replica_id], self.log.log_start_offset
        if follower.sent_log_start_offset >= start:
            return False
        follower.sent_log_start_offset = start
        return True

    def has_everything(self, replica_id: int, offset: int) -> bool:
        """Whether a follower that goes on fetching from ``offset`` changes nothing until an event: it is in
        the ISR and has acknowledged the whole log.
        """
        follower = self.followers.get(replica_id)
        return (
            follower is not None
            and follower.log_end_offset == offset == self.log.log_end_offset
            and replica_id in self.isr.committed
        )

    @property
    def is_in_sync(self) -> bool:
        """Whether the ISR cannot change before an event: all replicas are in it and have the whole log, and
        nothing is open at the controller. True if another replica leads.
        """
        isr, end_offset = self.isr, self.log.log_end_offset
        return not self.is_leader or (
            isr.pending is None
            and not isr.maybe_added
            and len(isr.committed) == len(self.replicas)
            and all(follower.log_end_offset == end_offset for follower in self.followers.values())
        )

    def needs_isr_change(self, now_ms: int, max_lag_ms: int, is_eligible: Callable[[int, int], bool]) -> bool:
        """Whether :meth:`next_proposal` would return a proposal."""
        return self._find_new_isr(now_ms, max_lag_ms, is_eligible) is not None

    def next_proposal(
        self, now_ms: int, max_lag_ms: int, is_eligible: Callable[[int, int], bool]
    ) -> IsrProposal | None:
        """The ISR to propose, if it should change and no proposal is in flight; it counts as in flight then.

        ``is_eligible(replica, broker epoch)``: whether it is registered in that incarnation and may be in the
        ISR.
        """
        new_isr = self._find_new_isr(now_ms, max_lag_ms, is_eligible)
        if new_isr is None:
            return None
        epochs = {
            replica: follower.broker_epoch
            for replica, follower in self.followers.items()
            if replica in new_isr
        }
        proposal = IsrProposal(self.leader_epoch, self.isr.partition_epoch, new_isr, epochs)
        self.isr = self.isr.with_pending(proposal)
        self._isr_changed()
        return proposal

    def _find_new_isr(
        self, now_ms: int, max_lag_ms: int, is_eligible: Callable[[int, int], bool]
    ) -> tuple[int, ...] | None:
        isr, end_offset = self.isr, self.log.log_end_offset
        if not self.is_leader or isr.pending is not None or now_ms < self.isr_retry_ms:
            return None
        removed = lagging_members(isr, self._node_id, end_offset, self.followers, now_ms, max_lag_ms)
        added = tuple(
            replica
            for replica in self.replicas
            if replica not in isr.committed
            and self._is_caught_up(replica, is_eligible)
            and not self.followers[replica].is_lagging(end_offset, now_ms, max_lag_ms)
        )
        new_isr = without(isr.committed, removed) + added
        if new_isr != isr.committed:
            return new_isr
        if not isr.maybe_added or len(isr.committed) == 1:
            return None
        # An unanswered addition holds the high watermark back until the partition epoch changes. Proposing
        # the same members in another order changes it, and makes a late copy of that addition void.
        return (*isr.committed[1:], isr.committed[0])

    def _is_caught_up(self, replica: int, is_eligible: Callable[[int, int], bool]) -> bool:
        """Whether it has reached the high watermark and this leader's epoch; before, histories may differ.

        It must have stored this log's start, too: as a leader it would serve deleted records again.
        """
        follower = self.followers.get(replica)
        return (
            follower is not None
            and follower.log_end_offset >= max(self.high_watermark, self.leader_epoch_start)
            and follower.log_start_offset >= self.log.log_start_offset
            and is_eligible(replica, follower.broker_epoch)
        )

    def handle_isr_accepted(
        self, proposal: IsrProposal, isr: tuple[int, ...], partition_epoch: int, elr: tuple[int, ...] = ()
    ) -> None:
        """The controller committed a proposal."""
        if proposal.leader_epoch == self.leader_epoch and self.is_leader:
            self.isr = self.isr.answered(proposal, isr, partition_epoch, elr)
            self.isr_refusals = 0
            self._isr_changed()

    def handle_isr_refused(self, proposal: IsrProposal, retry_ms: int, *, outcome_known: bool) -> None:
        """The controller refused a proposal; none is made before ``retry_ms`` (monotonic).

        ``outcome_known``: the proposal was certainly not applied.
        """
        if self.isr.pending is proposal:
            self.isr = self.isr.rejected() if outcome_known else self.isr.unanswered()
            self.isr_retry_ms = retry_ms
            self.isr_refusals += 1
            self._isr_changed()

    def handle_isr_unanswered(self, proposal: IsrProposal) -> None:
        """There was no answer: the outcome of the proposal is unknown."""
        if self.isr.pending is proposal:
            self.isr = self.isr.unanswered()
            self._isr_changed()

    @property
    def _required_in_sync(self) -> int:
        return required_in_sync(self.min_isr, self.replicas)

    def _isr_changed(self) -> None:
        self._others = tuple(sorted(self.isr.maximal - {self._node_id}))
        self._has_enough = len(self.isr.committed) >= self._required_in_sync
        self._may_commit = not self.isr.elr and (self._has_enough or not self.strict_min_isr)
        self._wake_log_start_waiters()
        if self.is_leader:
            self._recount()
        self._events.state_changed(self)

    def _recount(self) -> None:
        if not self._may_commit:
            return
        own_end = self.log.acknowledged_end_offset
        candidate = high_watermark_candidate(self.isr, self._node_id, own_end, self.followers)
        if candidate > self.high_watermark:
            self._move_high_watermark(candidate)

    def _move_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        transactions = self.producers.transactions
        if transactions.open or transactions.ended or self.producers.is_behind:
            self.last_stable_offset = self._find_stable_offset()
        else:
            self.last_stable_offset = offset
        if self.committed_waiters:
            for waiter in self.committed_waiters.pop_reached(offset):
                if self._has_enough:
                    waiter.offset_committed()
                else:
                    waiter.offset_refused(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self._events.high_watermark_moved(self)

    # -- deletion of records ---------------------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Move the log start of a leader to ``offset``, -1: to the high watermark; returns that offset.

        It is done when :meth:`low_watermark` has reached it. POLICY_VIOLATION if the log may only be
        compacted, OFFSET_OUT_OF_RANGE above the high watermark.
        """
        if self.log.config.cleanup_policy == {"compact"}:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{self} is compacted only")
        if offset == HIGH_WATERMARK:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self} is not in [0, {self.high_watermark}]",
            )
        self._advance_log_start(offset)
        return offset

    def low_watermark(self, is_live: Callable[[int], bool]) -> int:
        """The smallest log start that is stored by the replicas that are live, or may lead without a fetch.

        Apache Kafka counts the live ones only. A member of the ISR, or an eligible replica, may lead as soon
        as it is back, and would serve what was deleted meanwhile.
        """
        return min(self.log.stored_log_start_offset, self.low_watermark_of_others(is_live))

    def low_watermark_of_others(self, is_live: Callable[[int], bool]) -> int:
        """:meth:`low_watermark` as if the leader had stored its own log start already."""
        may_lead = self.isr.maximal.union(self.isr.elr)
        lowest = self.log.log_start_offset
        for replica in self.replicas:
            if replica != self._node_id and (replica in may_lead or is_live(replica)):
                follower = self.followers.get(replica)
                start = follower.log_start_offset if follower is not None else UNKNOWN_OFFSET
                lowest = min(lowest, start)
        return lowest

    def retire_old_segments(self, now_ms: int) -> bool:
        """Apply retention; whether there are segments to delete. ``now_ms`` is the wall clock."""
        start = self.log.log_start_offset
        retired = self.log.retire_old_segments(now_ms, limit_offset=self.high_watermark)
        if self.log.log_start_offset > start:
            self.last_stable_offset = max(self.last_stable_offset, self.log.log_start_offset)
            self._events.log_start_moved(self)
        return retired

    def log_start_stored(self) -> None:
        """A log start, perhaps the newest, is durable."""
        self._wake_log_start_waiters()

    def log_moved(self) -> None:
        """The log that was given to :meth:`use_log`, and its log start, are durable: this may be news."""
        self._wake_log_start_waiters()
        self._events.state_changed(self)

    def brokers_changed(self) -> None:
        """Other brokers may be live than before."""
        self._wake_log_start_waiters()

    def _advance_log_start(self, offset: int) -> None:
        if offset > self.log.log_start_offset:
            self.log.advance_log_start(offset)
            self.last_stable_offset = max(self.last_stable_offset, offset)
            self._events.log_start_moved(self)

    def _wake_log_start_waiters(self) -> None:
        for waiter in self.log_start_waiters:
            waiter.wake()

    # -- leader: read ----------------------------------------------------------------------------------

    def read_committed(self, offset: int, max_bytes: int, *, at_least_one: bool) -> LogSlice | None:
        """The committed records from ``offset`` on, for consumers."""
        return self.log.read(offset, max_bytes, end_offset=self.high_watermark, at_least_one=at_least_one)

    def read_stable(self, offset: int, max_bytes: int, *, at_least_one: bool) -> LogSlice | None:
        """The committed records below the last stable offset, for readers of committed transactions."""
        return self.log.read(offset, max_bytes, end_offset=self.last_stable_offset, at_least_one=at_least_one)

    def aborted_in(self, piece: LogSlice, offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that a reader must leave out of a slice, which was read from ``offset`` on
        and ends below the last stable offset. Others may be among them.
        """
        return self.log.aborted_in(piece, offset, self.last_stable_offset)

    def read_replica(self, offset: int, max_bytes: int, *, at_least_one: bool) -> LogSlice | None:
        """All records from ``offset`` on, for followers."""
        return self.log.read(offset, max_bytes, at_least_one=at_least_one)

    # -- follower --------------------------------------------------------------------------------------

    def append_as_follower(self, data: memoryview, now_ms: int, leader_log_start: int = 0) -> int:
        """Append the whole batches in ``data`` that are new; returns their size in bytes.

        Offsets and epochs are the leader's, whose log starts at ``leader_log_start``. A batch that fails its
        checksum, or whose epoch cannot come next, is refused with CORRUPT_MESSAGE, and nothing of ``data`` is
        appended.
        """
        log = self.log
        if log.log_end_offset <= max(log.log_start_offset, leader_log_start):
            self._start_with_a_whole_batch(data)
        log_end = log.log_end_offset
        data = begin_within_span(data, log_end)
        headers, start, end = find_new_batches(
            data,
            log_end,
            log.latest_epoch,
            self.leader_epoch,
            may_have_gaps=log.may_have_gap_at(log_end),
        )
        if not headers:
            return 0
        batches, filled = fill_gaps(data[start:end], headers, log_end, log.latest_epoch)
        log.append(batches, filled, now_ms=now_ms)
        for header, marker in with_markers(batches, filled):
            self._replay(header, marker)
        self.traffic.replication_bytes_in += end - start
        return end - start

    def _start_with_a_whole_batch(self, data: memoryview) -> None:
        """Let a log without a record that its leader still has begin where the batch does that holds its end.

        A log may start in the middle of a batch of its leader: records were deleted up to there, or another
        leader wrote other batches after an unclean election.
        """
        end_offset = self.log.log_end_offset
        for position, header in iter_headers(data):
            if header.next_offset > end_offset:
                if header.base_offset < end_offset and crc_is_valid(data, position, header):
                    self.restart_at(header.base_offset)
                return

    def follow(self, leader_high_watermark: int, leader_log_start: int) -> None:
        """Take the leader's high watermark and log start, as far as this log reaches."""
        log = self.log
        self._advance_log_start(min(leader_log_start, log.log_end_offset))
        reached = max(min(leader_high_watermark, log.log_end_offset), log.log_start_offset)
        if reached > self.high_watermark:
            self.high_watermark = reached
            self.last_stable_offset = self._find_stable_offset()
            self._events.high_watermark_moved(self)

    def truncate_to_divergence(self, diverging_epoch: int, end_offset: int) -> int:
        """Truncate the log where the leader's diverges (its end of ``diverging_epoch``); returns the new end.

        If this log does not know that epoch, the end of the last epoch before it is the best known common
        point, and the next fetch starts there (KIP-279). If this log starts beyond that, nothing of it is in
        the leader's, and it begins again there. :class:`CorruptLogError`, and nothing is truncated, if what
        remained might lack records that the leader has.
        """
        own = self.log.end_offset_for_epoch(diverging_epoch)
        cut = end_offset if own.end_offset < 0 else min(end_offset, own.end_offset)
        if cut < self.log.log_start_offset:
            self.restart_at(cut)
        else:
            self._require_whole(cut)
            self.truncate_to(cut)
        return self.log.log_end_offset

    def _require_whole(self, end_offset: int) -> None:
        """Refuse to keep the beginning of a compacted log if what superseded parts of it would be cut off.

        Compaction, here or where the log was copied from, removes records that committed ones supersede. If
        those are lost (with the disks of all other replicas, or to an unclean election), the leader may still
        have what they superseded: its log has to be copied again.
        """
        log = self.log
        compacted_end = max(log.cleaned_end_offset, self.high_watermark if log.config.is_compacted else 0)
        if log.log_start_offset < end_offset < compacted_end:
            reason = f"compacted up to {compacted_end}, and its leader's diverges at {end_offset}"
            raise CorruptLogError(log.directory, 0, reason)

    def truncate_to(self, offset: int) -> None:
        """Drop the records from ``offset`` on, and the state of their producers."""
        if self.log.truncate_to(max(offset, self.log.log_start_offset)):
            self._truncated()

    def restart_at(self, offset: int) -> None:
        """Drop all records: the leader no longer has the offset that would come next."""
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset
        self.producers.adopt(ProducerState(complete=offset == 0))
        self.last_stable_offset = offset
        self._events.state_changed(self)

    def _truncated(self) -> None:
        if self.producers.is_behind or not self.producers.truncate_to(self.log.log_end_offset):
            self.producers.fall_behind()
            if self.log.log_end_offset < self.high_watermark:
                # Markers that decided what readers have seen may be cut off (an unclean election).
                self.last_stable_offset = self.log.log_start_offset
            self._events.producers_lost(self)
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        self.last_stable_offset = self._find_stable_offset()
        self._events.state_changed(self)


def _replay_producers(log: Log) -> ProducerState:
    start = log.log_start_offset
    rebuild = ProducerRebuild((), complete=start == 0)
    for header, marker in log.iter_produced(start):
        rebuild.replay(header, marker)
    log.restore_aborted(rebuild.aborted, min(start, log.first_stored_offset))
    return rebuild.finish()
