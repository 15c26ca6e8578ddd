"""A leader's log: it appends records, and its followers fetch them."""

from __future__ import annotations

from pykraft.broker.logs.producers.verification import Guard
from pykraft.broker.replicas.partition.isr_changes import IsrChanges
from pykraft.broker.replicas.partition.state import NO_EPOCH
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import EndOfTransaction, Marker, build_marker
from pykraft.kafka_protocol.records import (
    BatchHeader,
    assign_offset,
    read_header,
    set_log_append_time,
)
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store.interface import LOG_APPEND_TIME, EpochEnd


@dataclass(slots=True)  # one is made of each batch
class AppendInfo:
    """Where a batch was appended. The high watermark must reach ``next_offset`` for acks=all."""

    base_offset: int
    next_offset: int
    log_append_time_ms: int


class Leading(IsrChanges):
    """A record is committed once the whole maximal ISR has it."""

    __slots__ = ()

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
                f"offset {fetch_offset} is outside [{log.log_start_offset}, {log.log_end_offset}]",
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
        """Whether fetches from ``offset`` change nothing for now: it is in the ISR and has the whole log."""
        follower = self.followers.get(replica_id)
        return (
            follower is not None
            and follower.log_end_offset == offset == self.log.log_end_offset
            and replica_id in self.isr.committed
        )
