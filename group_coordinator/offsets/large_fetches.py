"""OffsetFetch of very many offsets: the answer is written over several turns, from offsets of one moment.

The answer is the same as that of :mod:`.fetch`, in bytes.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from itertools import islice

from pykraft.group_coordinator.offsets.fetch import TOPIC_ID_VERSION, Found, group_error_code, of_topic
from pykraft.group_coordinator.state.names import sorted_runs
from pykraft.group_coordinator.state.offset_table import NO_PARTITIONS, ROW_BYTES, Rows, TopicOffsets
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.hot.offset_fetch import OffsetFetchWriter
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages.offsets import OffsetFetchRequestGroup, OffsetFetchRequestTopics

LARGE_PARTITIONS = 1_000
"""Answers with more partitions than that, and topics, are large: 2 ms."""

SLICE_STEPS = 2_000
"""The steps of a slice, each about a microsecond."""

_TOPIC_STEPS = 8
_PARTITION_STEPS = 3
_COLUMN_STEPS = 40
"""The steps of up to 256 partitions that are written as columns."""

_SORT_STEPS = 1_500


def is_large(groups: Sequence[OffsetFetchRequestGroup], found: Sequence[Found | KafkaError]) -> bool:
    """Whether the answer is large. ``found``: the offsets of each group, or its error."""
    return sum(islice(_sizes(groups, found), LARGE_PARTITIONS + 1)) > LARGE_PARTITIONS


def _sizes(groups: Sequence[OffsetFetchRequestGroup], found: Sequence[Found | KafkaError]) -> Iterator[int]:
    """The number of partitions of each topic, and one for the topic, and for each group."""
    for group, one in zip(groups, found, strict=True):
        yield 1
        if group.topics is not None:
            yield from (1 + len(topic.partition_indexes) for topic in group.topics)
        elif not isinstance(one, KafkaError):
            yield from (1 + len(partitions) for partitions in one.offsets.values())


class LargeFetch:
    """One request: :meth:`build` to its end, then :attr:`body`."""

    def __init__(
        self,
        groups: Sequence[OffsetFetchRequestGroup],
        found: Sequence[Found | KafkaError],
        topics: TopicsView,
        version: int,
    ) -> None:
        self._groups = groups
        self._found = found
        self._topics = topics
        self._version = version
        self._writer = OffsetFetchWriter(version, len(groups))
        self.body = b""

    def build(self) -> Iterator[None]:
        """Write the answer; yields after each slice."""
        steps = 0
        for more in self._write():
            steps += more
            if steps >= SLICE_STEPS:
                yield
                steps = 0
        self.body = self._writer.finish()

    def _write(self) -> Iterator[int]:
        """Write the answer; yields the steps that each part has taken."""
        for group, found in zip(self._groups, self._found, strict=True):
            self._writer.begin_group()
            code = ErrorCode.NONE
            if isinstance(found, KafkaError):
                code = group_error_code(found.code)
                if self._version < 2:  # it has no error code for the group: every partition carries it
                    yield from self._write_refused(group.topics or (), code)
            elif group.topics is None:
                yield from self._write_all(found)
            else:
                yield from self._write_named(group.topics, found)
            self._writer.end_group(group.group_id, code)
            yield _TOPIC_STEPS

    def _write_refused(self, topics: Iterable[OffsetFetchRequestTopics], code: ErrorCode) -> Iterator[int]:
        for topic in topics:
            yield from self._write_topic(topic, NO_PARTITIONS, None, code, ())

    def _write_named(self, topics: Iterable[OffsetFetchRequestTopics], found: Found) -> Iterator[int]:
        view, by_id = self._topics, self._version >= TOPIC_ID_VERSION
        for topic in topics:
            name = view.topic_name(topic.topic_id) if by_id else topic.name
            committed = NO_PARTITIONS if name is None else found.offsets.get(name, NO_PARTITIONS)
            unstable = () if name is None else found.unstable.get(name, ())
            topic_id = None if name is None else view.topic_id(name)
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.NONE
            yield from self._write_topic(topic, committed, topic_id, code, unstable)

    def _write_topic(
        self,
        topic: OffsetFetchRequestTopics,
        committed: TopicOffsets,
        topic_id: Uuid | None,
        code: ErrorCode,
        unstable: Container[int],
    ) -> Iterator[int]:
        writer = self._writer
        writer.begin_topic()
        for index in topic.partition_indexes:
            value = of_topic(committed.get(index), topic_id)
            if index in unstable:
                writer.add_partition(index, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
            elif value is None:
                writer.add_partition(index, -1, -1, "", code)
            else:
                writer.add_partition(index, value.offset, value.leader_epoch, value.metadata, code)
            yield _PARTITION_STEPS
        writer.end_topic(topic.name, topic.topic_id)
        yield _TOPIC_STEPS

    def _write_all(self, found: Found) -> Iterator[int]:
        offsets = found.offsets
        runs = []
        for run in sorted_runs(offsets):
            runs.append(run)
            yield _SORT_STEPS
        writer = self._writer
        for name in heapq.merge(*runs):
            topic_id, unstable = self._topics.topic_id(name), found.unstable.get(name, ())
            writer.begin_topic()
            for part in offsets[name].runs():
                yield self._write_rows(part.rows(), topic_id, unstable)
            if not writer.partitions or (topic_id is None and self._version >= TOPIC_ID_VERSION):
                writer.drop_topic()  # it has just been deleted
            else:
                writer.end_topic(name, topic_id or ZERO_UUID)
            yield _TOPIC_STEPS

    def _write_rows(self, run: Rows, topic_id: Uuid | None, unstable: Collection[int]) -> int:
        partitions, rows, rows_topic_id, extras = run
        writer = self._writer
        if extras is None and not unstable:
            if rows_topic_id in (ZERO_UUID, topic_id):
                writer.add_partitions(partitions, rows, "", ErrorCode.NONE)
            return _COLUMN_STEPS
        for place, index in enumerate(partitions):
            extra = None if extras is None else extras.get(index)
            if (rows_topic_id if extra is None else extra.topic_id) not in (ZERO_UUID, topic_id):
                continue
            if index in unstable:
                writer.add_partition(index, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
            else:
                row = rows[place * ROW_BYTES : (place + 1) * ROW_BYTES]
                writer.add_partitions((index,), row, "" if extra is None else extra.metadata, ErrorCode.NONE)
        return len(partitions) * _PARTITION_STEPS
