"""The invariants of deleted records, of the partitions whose records are guaranteed.

A deletion is answered with the low watermark: no replica that may lead without a fetch has a record below it
any more, and no restart brings one back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from pykraft.kafka_protocol.ids import Uuid

if TYPE_CHECKING:
    from pykraft.broker.replicas.partition.partition import Partition
    from pykraft.jepsen_like.simulation.cluster.model import Model, ModelPartition
    from pykraft.jepsen_like.simulation.cluster.view import Machine

LOG_START = "the log starts at or below the high watermark"
LOW_WATERMARK = "a low watermark is at or below the high watermark"
STAYS_DELETED = "deleted records stay deleted"

Key = tuple[Uuid, int]


class DeletionWatch:
    """``damaged``: the replicas, (broker, topic id, partition), whose logs were damaged on purpose."""

    def __init__(
        self, model: Model, fail: Callable[[str, str], None], damaged: Collection[tuple[int, Uuid, int]]
    ) -> None:
        self._model = model
        self._fail = fail
        self._damaged = damaged
        self._low_watermarks: dict[Key, int] = {}
        """The highest one with which a deletion was answered."""
        self._committed: dict[Key, int] = {}
        """The highest high watermark of any leader."""

    def committed(self, partition: Partition) -> None:
        """The high watermark of a leader has moved."""
        key = (partition.topic_id, partition.index)
        self._committed[key] = max(self._committed.get(key, 0), partition.high_watermark)

    def committed_to(self, partition: Partition) -> int:
        """The highest high watermark that any leader had."""
        return self._committed.get((partition.topic_id, partition.index), 0)

    def exempt(self, key: Key) -> None:
        """No replica is left that is sure to hold the partition's records, nor its log start."""
        self._low_watermarks.pop(key, None)

    def answered(self, topic: str, index: int, low_watermark: int) -> None:
        """A client is told that the records below ``low_watermark`` are deleted."""
        key = next((id, index) for id, known in self._model.topics.items() if known.name == topic)
        committed = self._committed.get(key, 0)
        if low_watermark > committed:
            self._fail(LOW_WATERMARK, f"{topic}-{index}: {low_watermark}, committed was up to {committed}")
        self._low_watermarks[key] = max(self._low_watermarks.get(key, 0), low_watermark)

    def moved(self, machine: Machine, partition: Partition) -> None:
        """Retention or a deletion may have moved the log start."""
        if partition.log.log_start_offset > partition.high_watermark:
            self._fail(LOG_START, f"{machine.id}: {partition} starts at {partition.log.log_start_offset}")

    def opened(self, machine: Machine, partition: Partition) -> None:
        """A start has opened a log, or an empty one was created."""
        known = self._find(partition)
        if known is not None and partition.log.log_end_offset and machine.id in (*known.isr, *known.elr):
            self._check(machine, partition, "starts with")

    def leads(self, machine: Machine, partition: Partition) -> None:
        """A replica becomes leader, in the newest leader epoch or in an earlier one."""
        known = self._find(partition)
        if known is not None and known.leader_epoch == partition.leader_epoch:
            self._check(machine, partition, "leads")

    def served(self, machine: Machine, partition: Partition, offset: int) -> None:
        """A client is sent records from ``offset`` on. A broker that was fenced may not know of deletions."""
        if offset >= self._low_watermarks.get((partition.topic_id, partition.index), 0):
            return
        known, broker = self._find(partition), self._model.brokers.get(machine.id)
        if known is not None and machine.id in known.isr and broker is not None and not broker.fenced:
            self._check(machine, partition, f"serves {offset} of")

    def _check(self, machine: Machine, partition: Partition, what: str) -> None:
        low_watermark = self._low_watermarks.get((partition.topic_id, partition.index), 0)
        start = partition.log.log_start_offset
        is_damaged = (machine.id, partition.topic_id, partition.index) in self._damaged
        if start < low_watermark and not is_damaged:
            detail = f"{machine.id} {what} {partition}, which starts at {start}, deleted is {low_watermark}"
            self._fail(STAYS_DELETED, detail)

    def _find(self, partition: Partition) -> ModelPartition | None:
        topic = self._model.topics.get(partition.topic_id)
        known = topic is not None and partition.index < len(topic.partitions)
        return topic.partitions[partition.index] if topic is not None and known else None
