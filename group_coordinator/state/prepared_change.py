"""The records of one large change, encoded before they are decided on, and the state that they make.

The maps of offsets are made for the state at one moment, over several turns (:meth:`PreparedChange.merge`).
If the group's offsets and the index are still the same objects when the commit is replayed, it costs nothing
more; what has changed is merged again, from the offsets of each topic as they then are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.group_offsets import GroupOffsets
from pykraft.group_coordinator.state.offset_table import NO_PARTITIONS, Rows, TopicCounts, TopicOffsets
from pykraft.group_coordinator.state.shard_state import ShardState, TopicKey
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.metadata_log.persistent import Map

_SLICE_TOPICS = 250
"""About 2 ms."""

Index: TypeAlias = Map[TopicKey, Map[str, int]]


class _Change:
    """The change of one topic: ``new`` is ``old`` with ``rows``, without ``removed``. None: not made yet."""

    __slots__ = ("counts", "new", "old", "removed", "rows")

    def __init__(self) -> None:
        self.rows: tuple[Rows, ...] = ()
        self.removed: set[int] | None = None
        self.old: TopicOffsets | None = None
        self.new = NO_PARTITIONS
        self.counts: list[tuple[TopicKey, int]] = []
        """By how much the number of the group's offsets of a topic changes."""

    def make(self, topic: str, old: TopicOffsets) -> None:
        if self.old is old:
            return
        counts: TopicCounts = {}
        new = old
        for rows in self.rows:
            new = new.with_rows(rows, counts)
        if self.removed is not None:
            new = new.without(self.removed, counts)
        self.old, self.new = old, new
        self.counts = [((topic, topic_id), count) for topic_id, count in counts.items() if count]


class PreparedBatch:
    """A record of :mod:`.result` that stands for many: it is at the beginning of a batch."""

    def __init__(self, group_id: str, builder: BatchBuilder) -> None:
        """``builder``: a batch with nothing but these records."""
        self.group_id = group_id
        self.builder = builder


class PreparedGroup(PreparedBatch):
    """The records that make a group what it is here, whatever it was."""

    def __init__(self, group: ConsumerGroup, builder: BatchBuilder) -> None:
        super().__init__(group.group_id, builder)
        self.group = group


class PreparedChange(PreparedBatch):
    """The offsets that one group commits or deletes."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, BatchBuilder())
        self.changes: dict[str, _Change] = {}
        self._from: GroupOffsets | None = None
        self._offsets: GroupOffsets = Map()
        """``_from`` after this change."""
        self._counts: list[tuple[TopicKey, int]] = []
        self._from_index: Index | None = None
        self._index: Index = Map()

    def add(self, topic: str, rows: Rows) -> None:
        """Rows of one topic, whose records were written to :attr:`builder`."""
        self.changes.setdefault(topic, _Change()).rows += (rows,)

    def remove(self, topic: str, partitions: Sequence[int]) -> None:
        """Partitions of one topic, whose tombstones were written to :attr:`builder`."""
        change = self.changes.setdefault(topic, _Change())
        if change.removed is None:
            change.removed = set()
        change.removed.update(partitions)
        change.old = None

    def removed_of(self, topic: str) -> Collection[int]:
        """The partitions of a topic that were given to :meth:`remove`."""
        change = self.changes.get(topic)
        return () if change is None or change.removed is None else change.removed

    def committed(self) -> Iterator[tuple[str, Sequence[int]]]:
        """The topics and partitions that were given to :meth:`add`."""
        for topic, change in self.changes.items():
            for rows in change.rows:
                yield topic, rows.partitions

    def merge(self, state: ShardState) -> Iterator[None]:
        """Prepare :meth:`merged` for a state; yields after each slice."""
        offsets = state.group_offsets(self.group_id)
        if offsets is not self._from:
            yield from self._merge_offsets(offsets)
        if state.groups_by_topic is not self._from_index:
            yield from self._merge_index(state.groups_by_topic)

    def merged(self, state: ShardState) -> tuple[GroupOffsets, Index]:
        """The group's offsets and the index of topics after this change."""
        for _ in self.merge(state):
            pass
        return self._offsets, self._index

    def _merge_offsets(self, offsets: GroupOffsets) -> Iterator[None]:
        merged = offsets.mutate()
        counts: list[tuple[TopicKey, int]] = []
        for number, (topic, change) in enumerate(self.changes.items()):
            if number and not number % _SLICE_TOPICS:
                yield
            change.make(topic, offsets.get(topic, NO_PARTITIONS))
            if change.new:
                merged[topic] = change.new
            elif topic in offsets:
                del merged[topic]
            counts += change.counts
        self._from, self._offsets = offsets, merged.finish()
        self._counts, self._from_index = counts, None

    def _merge_index(self, index: Index) -> Iterator[None]:
        merged = index.mutate()
        alone: dict[int, Map[str, int]] = {}
        """The groups of a topic of which no other group has offsets: the same for many topics."""
        for number, (key, change) in enumerate(self._counts):
            if number and not number % _SLICE_TOPICS:
                yield
            groups = index.get(key)
            if groups is None:
                groups = alone.get(change)
                if groups is None:
                    groups = alone[change] = Map({self.group_id: change})
                merged[key] = groups
                continue
            count = groups.get(self.group_id, 0) + change
            groups = groups.set(self.group_id, count) if count else groups.delete(self.group_id)
            if groups:
                merged[key] = groups
            else:
                del merged[key]
        self._from_index, self._index = index, merged.finish()
