"""The state of one replica, its high watermark, and its listeners. The other modules work on it."""

from __future__ import annotations

from typing import Any, Protocol

from pykraft.broker.fetch_sessions.session import Subscribers
from pykraft.broker.logs.producers.rebuild import ProducerRebuild
from pykraft.broker.logs.producers.state import ProducerState
from pykraft.broker.replicas.partition.isr import (
    FollowerProgress,
    IsrState,
    high_watermark_candidate,
)
from pykraft.broker.replicas.partition.observer import UNOBSERVED, PartitionObserver
from pykraft.broker.replicas.partition.purgatory import OffsetQueue
from pykraft.broker.replicas.traffic import Traffic
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.markers import Marker
from pykraft.kafka_protocol.records import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from pykraft.log_store.interface import CorruptLogError
from pykraft.log_store.log.log import Log
from pykraft.metadata_log.image import required_in_sync

NO_EPOCH = -1
IN_TRANSACTIONS = CONTROL_BIT | TRANSACTIONAL_BIT


class PartitionEvents(Protocol):
    """Receives the events of a partition, synchronously with each change.

    ``partition`` is the whole :class:`.Partition`, which is made of the modules here and unknown to this one.
    """

    def log_grew(self, partition: Any) -> None: ...
    def high_watermark_moved(self, partition: Any) -> None:
        """The high watermark, or the last stable offset: there may be more to read."""
        ...

    def log_start_moved(self, partition: Any) -> None:
        """Followers must be told, and the log start must be stored (:meth:`.Partition.log_start_stored`)."""
        ...

    def state_changed(self, partition: Any) -> None:
        """Role, epoch or ISR have changed, or the log was truncated."""
        ...

    def producers_lost(self, partition: Any) -> None:
        """The state of its producers must be rebuilt from the log."""
        ...

    def storage_failed(self, partition: Any, error: OSError | CorruptLogError) -> None:
        """The log can no longer be used."""
        ...

    def replication_failed(self, partition: Any, error: Exception) -> None:
        """An error that nobody has foreseen: it is fetched again later."""
        ...


class FetchWaiter(Protocol):
    """A fetch that waits for more to read, or a deletion that waits for the log starts of replicas."""

    def wake(self) -> None: ...


def _replay_producers(log: Log) -> ProducerState:
    start = log.log_start_offset
    rebuild = ProducerRebuild((), complete=start == 0)
    for header, marker in log.iter_produced(start):
        rebuild.replay(header, marker)
    log.restore_aborted(rebuild.aborted, min(start, log.first_stored_offset))
    return rebuild.finish()


class ReplicaState:
    """Attributes are read-only for others."""

    __slots__ = (
        "_events",
        "_has_enough",
        "_may_commit",
        "_node_id",
        "_observer",
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
        observer: PartitionObserver = UNOBSERVED,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self._node_id = node_id
        self.log = log
        self._events = events
        self._observer = observer
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

    def storage_failed(self, error: OSError | CorruptLogError) -> KafkaError:
        """Report that the log could not be written or read; returns the error to answer with."""
        self._events.storage_failed(self, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def replication_failed(self, error: Exception) -> None:
        """Report an error that nobody has foreseen, in the answer of its leader."""
        self._events.replication_failed(self, error)

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
        self._observer.high_watermark_moved(self)

    def _advance_log_start(self, offset: int) -> None:
        if offset > self.log.log_start_offset:
            self.log.advance_log_start(offset)
            self.last_stable_offset = max(self.last_stable_offset, offset)
            self._events.log_start_moved(self)

    def _wake_log_start_waiters(self) -> None:
        for waiter in self.log_start_waiters:
            waiter.wake()
