"""Offsets that transactions have committed, until their markers say whether they count (KIP-98, KIP-447).

They are kept for each producer. A marker makes those of its producer the group's committed offsets, or drops
them. Of several commits of one partition the last *record* wins, not the last marker: an offset does not
count if another was committed behind its record, whether by itself or by a transaction that has ended
already. Apache Kafka compares the offsets of records for that. Here each partition has a line of its
producers in the order of their records, and those that can no longer count are crossed out: so committed
offsets need not know where they are in the log.

Until its marker a transaction holds back readers of its partitions, also where it was crossed out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import field
from typing import TypeAlias

from pykraft.group_coordinator.state.commits import TopicCommit
from pykraft.group_coordinator.state.offset_table import NO_PARTITIONS, Rows, TopicOffsets
from pykraft.kafka_protocol.ids import Uuid
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.persistent import Map

Line: TypeAlias = tuple[int, ...]
"""The producers that have committed a partition, by the order of their last records; ``~id``: crossed out."""

OpenPartitions: TypeAlias = Map[int, Line]
OpenTopics: TypeAlias = Map[str, OpenPartitions]
"""The partitions of one group that have pending offsets, by topic."""

Place: TypeAlias = tuple[str, str]
"""A group and a topic."""

_NO_LINES: OpenPartitions = Map()
NO_OPEN_TOPICS: OpenTopics = Map()
_NO_TABLES: Map[Place, TopicOffsets] = Map()


@dataclass(frozen=True, slots=True)
class PendingOffsets:
    """Immutable. ``by_producer``: what each has committed. ``open``: the lines, by group; none is empty."""

    by_producer: Map[int, Map[Place, TopicOffsets]] = field(default_factory=Map)
    open: Map[str, OpenTopics] = field(default_factory=Map)

    def of_group(self, group_id: str) -> OpenTopics:
        return self.open.get(group_id, NO_OPEN_TOPICS)

    def of_topic(self, group_id: str, topic: str) -> OpenPartitions:
        return self.of_group(group_id).get(topic, _NO_LINES)

    def live_values_of(self, place: Place, partition: int) -> Iterator[Uuid]:
        """The topic ids of the offsets of a partition that may still count."""
        for producer_id in self.of_topic(*place).get(partition, ()):
            if producer_id >= 0:
                value = self.by_producer[producer_id][place].get(partition)
                assert value is not None, "a producer in a line has committed the partition"
                yield value.topic_id

    def with_commits(
        self, producer_id: int, group_id: str, commits: Iterable[tuple[str, Rows]]
    ) -> PendingOffsets:
        """After commits of topics by a transaction: the producer is last in the lines of their partitions."""
        tables = self.by_producer.get(producer_id, _NO_TABLES).mutate()
        topics = self.of_group(group_id).mutate()
        alone = (producer_id,)
        for topic, rows in commits:
            place = (group_id, topic)
            tables[place] = tables.get(place, NO_PARTITIONS).with_rows(rows, {})
            lines = topics.get(topic, _NO_LINES).mutate()
            for partition in rows.partitions:
                line = lines.get(partition)
                lines[partition] = alone if line is None else (*_without(line, producer_id), producer_id)
            topics[topic] = lines.finish()
        return PendingOffsets(
            self.by_producer.set(producer_id, tables.finish()), self.open.set(group_id, topics.finish())
        )

    def count(self, producer_id: int) -> tuple[int, int]:
        """How many topics of groups, and partitions, a transaction has committed."""
        tables = self.by_producer.get(producer_id, _NO_TABLES)
        return len(tables), sum(map(len, tables.values()))

    def crossed_out(self, place: Place, partitions: Iterable[int]) -> PendingOffsets:
        """After offsets were committed outside of transactions: nothing before them counts any more."""
        lines = old = self.of_topic(*place)
        for partition in partitions:
            line = old.get(partition)
            if line is not None:
                lines = lines.set(partition, _crossed_out(line))
        return self if lines is old else PendingOffsets(self.by_producer, self._with_lines(place, lines))

    def without(self, place: Place, partitions: Collection[int]) -> PendingOffsets:
        """After the offsets of these partitions were deleted: nobody waits for their transactions."""
        old = self.of_topic(*place)
        gone = [partition for partition in partitions if partition in old]
        if not gone:
            return self
        lines = old.mutate()
        by_id: dict[int, list[int]] = {}
        for partition in gone:
            for one in lines.pop(partition):
                by_id.setdefault(one if one >= 0 else ~one, []).append(partition)
        by_producer = self.by_producer
        for producer_id, removed in by_id.items():
            tables = by_producer[producer_id]
            table = tables[place].without(removed, {})
            tables = tables.set(place, table) if table else tables.delete(place)
            by_producer = by_producer.set(producer_id, tables) if tables else by_producer.delete(producer_id)
        return PendingOffsets(by_producer, self._with_lines(place, lines.finish()))

    def ended(self, producer_id: int, *, is_commit: bool) -> tuple[PendingOffsets, list[TopicCommit]]:
        """After a marker; and what the group has committed by it."""
        tables = self.by_producer.get(producer_id)
        if tables is None:
            return self, []
        after, commits = self, list[TopicCommit]()
        for place in sorted(tables):
            table, lines = tables[place], after.of_topic(*place).mutate()
            void = []
            for partition in table:
                line = lines[partition]
                if line == (producer_id,):
                    del lines[partition]
                    continue
                left = _without(line, producer_id)
                if producer_id not in line:
                    void.append(partition)
                elif is_commit:
                    before = line.index(producer_id)
                    left = (*_crossed_out(line[:before]), *line[before + 1 :])
                if left:
                    lines[partition] = left
                else:
                    del lines[partition]
            after = PendingOffsets(after.by_producer, after._with_lines(place, lines.finish()))
            if is_commit:
                counting = table.without(void, {}) if void else table
                commits += [TopicCommit(*place, run.rows()) for run in counting.runs()]
        return PendingOffsets(after.by_producer.delete(producer_id), after.open), commits

    def _with_lines(self, place: Place, lines: OpenPartitions) -> Map[str, OpenTopics]:
        group_id, topic = place
        topics = self.of_group(group_id)
        if lines:
            topics = topics.set(topic, lines)
        elif topic in topics:
            topics = topics.delete(topic)
        if topics:
            return self.open.set(group_id, topics)
        return self.open.delete(group_id) if group_id in self.open else self.open


def _without(line: Line, producer_id: int) -> Line:
    return tuple([one for one in line if one not in (producer_id, ~producer_id)])


def _crossed_out(line: Line) -> Line:
    return tuple([one if one < 0 else ~one for one in line])


NOTHING_PENDING = PendingOffsets()
