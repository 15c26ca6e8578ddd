"""Moves of the log start: deleted records and retention; and who has stored it."""

from __future__ import annotations

from collections.abc import Callable

from pykraft.broker.replicas.partition.isr import (
    UNKNOWN_OFFSET,
)
from pykraft.broker.replicas.partition.leading import Leading
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError

HIGH_WATERMARK = -1
"""The offset of a deletion that means the high watermark."""


class Deleting(Leading):
    """Records are deleted when every replica that may lead has stored that log start."""

    __slots__ = ()

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
        self._observer.records_deleted(self)
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
