"""The records of one large commit, encoded before they are decided on, and what they make of the state.

The maps of offsets are made for the state at one moment, over several turns (:meth:`PreparedCommit.merge`).
If the group's offsets and the index are still the same objects when the commit is replayed, it costs nothing
more; what has changed is merged again, from the offsets of each topic as they then are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from pykraft.group_coordinator.offset_table import NO_PARTITIONS, Rows, TopicCounts, TopicOffsets
from pykraft.group_coordinator.state import GroupOffsets, ShardState, TopicKey
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.metadata_log.persistent import Map

_SLICE_TOPICS = 250
"""About 2 ms."""

Index: TypeAlias = Map[TopicKey, Map[str, int]]


class _Change:
    """What is committed of one topic: ``new`` is ``old`` with ``rows``. None: not made yet."""

    __slots__ = ("counts", "new", "old", "rows")

    def __init__(self) -> None:
        self.rows: list[Rows] = []
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
        self.old, self.new = old, new
        self.counts = [((topic, topic_id), count) for topic_id, count in counts.items() if count]


class PreparedCommit:
    """A record of :mod:`.result`: alone at the beginning of a batch."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.builder = BatchBuilder()
        """A batch with nothing but these records."""
        self.changes: dict[str, _Change] = {}
        self._from: GroupOffsets | None = None
        self._offsets: GroupOffsets = Map()
        """``_from`` after this commit."""
        self._counts: list[tuple[TopicKey, int]] = []
        self._from_index: Index | None = None
        self._index: Index = Map()

    def add(self, topic: str, rows: Rows) -> None:
        """Rows of one topic, whose records were written to :attr:`builder`."""
        self.changes.setdefault(topic, _Change()).rows.append(rows)

    def merge(self, state: ShardState) -> Iterator[None]:
        """Prepare :meth:`merged` for a state; yields after each slice."""
        offsets = state.group_offsets(self.group_id)
        if offsets is not self._from:
            yield from self._merge_offsets(offsets)
        if state.groups_by_topic is not self._from_index:
            yield from self._merge_index(state.groups_by_topic)

    def merged(self, state: ShardState) -> tuple[GroupOffsets, Index]:
        """The group's offsets and the index of topics after this commit."""
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
            merged[topic] = change.new
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
