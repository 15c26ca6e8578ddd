"""Makes the state of a shard from its log, a slice at a time, with a result equal to replaying each record.

Almost all records of a large log are committed offsets. They are read where they are in their batch, without
an object for each: the key without its last byte names a table, and what of the value goes into a row is
appended to it. A table of few rows is one string of bytes, since most of the time of a load that finds the
records of very many groups in random order is spent waiting for their memory. Only when the whole log is read
are rows that a later record replaced dropped (and before, as often as a table has doubled), and the tables
(:mod:`.loading_tables`) become part of the state. Every other record is decoded and replayed, those of
transactions among them. Records that are unknown or cannot be decoded are skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from pykraft.coordinator.writer import BatchBody
from pykraft.group_coordinator.loading_tables import (
    CHUNK_BYTES,
    FIELDS_AT,
    FIELDS_END,
    GROUP_AT,
    INDEX,
    INDEX_BYTES,
    NO_TAGS,
    PLAIN_HEAD,
    SMALL_BYTES,
    SMALL_HEAD,
    TAGGED_BYTES,
    TIME_END,
    TOPIC_ID_TAG,
    Offsets,
    Table,
    few_rows,
    read_name,
    split_name,
)
from pykraft.group_coordinator.replay import replay
from pykraft.group_coordinator.state.codec import decode_record
from pykraft.group_coordinator.state.commits import build_key_start
from pykraft.group_coordinator.state.offset_table import (
    Rows,
    TopicOffsets,
    rows_of,
)
from pykraft.group_coordinator.state.pending_offsets import NOTHING_PENDING
from pykraft.group_coordinator.state.records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from pykraft.group_coordinator.state.shard_state import EMPTY_STATE, ShardState, TopicKey
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.markers import COMMIT, Marker
from pykraft.kafka_protocol.primitives import ProtocolError, read_uvarint_tail, read_varlong
from pykraft.kafka_protocol.record_codec import read_records
from pykraft.metadata_log.persistent import Map

log = logging.getLogger(__name__)
SLICE_STEPS = 2_000
"""Steps of one slice: a committed offset is one step, some microseconds."""
_OTHER_STEPS = 40
"""The steps of a record that is decoded and replayed by itself."""
_ADDED_STEPS = 10
"""The steps of an offset that counts because of a marker."""
_PASSED_STEPS = 3
"""The steps of a record that is looked at a second time, since offsets of transactions are pending."""
_FEW_NAMES = 64
"""So many names of topics with pending offsets are searched for in a batch."""
_TABLE_STEPS = 10
"""The steps of a table that becomes part of the state, besides one for every eighth row."""


class Loader:
    """One load. :meth:`load` takes the log in order; after :meth:`finish` ``state`` is the result."""

    def __init__(self, partition: int) -> None:
        self.state: ShardState = EMPTY_STATE
        self._partition = partition
        self._tables: dict[bytes, Table | bytes] = {}
        """By the key of a record without the last byte, which numbers the partitions of a chunk.

        A small table is the topic id, as it is tagged in each of its values, and then its units.
        """
        self._topic_ids: dict[bytes, Uuid] = {}
        self._pending = NOTHING_PENDING
        self._open_names: set[bytes] = set()
        """With what the keys of pending offsets begin: up to the partition."""

    def load(self, batches: Iterable[BatchBody]) -> Iterator[int]:
        """Read batches; yields the number of steps after each slice."""
        for batch in batches:
            try:
                if batch.marker is not None:
                    yield from self._end_transaction(batch.producer_id, batch.marker)
                elif batch.producer_id >= 0:
                    yield from self._load_transactional(batch)
                else:
                    if self._open_names:
                        yield from self._cross_out(batch)
                    yield from self._load(batch)
            except (IndexError, ProtocolError) as error:
                log.error("__consumer_offsets-%d, batch %d: %s", self._partition, batch.base_offset, error)

    def _load(self, batch: BatchBody) -> Iterator[int]:
        """The hot loop: the common case of each varint is inlined, the others call a function."""
        base_offset, count, body, start_offset, _, _ = batch
        size, tables = len(body), self._tables
        unwanted = start_offset - base_offset
        prefix: bytes | None = None
        table = Table("", "")
        position = steps = 0
        for _ in range(count):
            n = body[position]
            position += 1
            if n > 127:
                m = body[position]
                if m < 128:
                    n += (m << 7) - 128
                    position += 1
                else:
                    n, position = read_uvarint_tail(body, position, n)
            end = position + (n >> 1)
            if n & 1 or end > size:
                raise ProtocolError("a record is cut short")
            position += 1  # the record's attributes: unused
            if body[position] > 127:
                _, position = read_varlong(body, position)
            else:
                position += 1
            delta = body[position]
            position += 1
            if delta > 127:
                delta, position = read_uvarint_tail(body, position, delta)
            n = body[position]
            position += 1
            if n > 127:
                n, position = read_uvarint_tail(body, position, n)
            key_at, key_end = position, position + (n >> 1)
            if n & 1 or key_end >= end:
                if n != 1:
                    raise ProtocolError("a key does not fit into its record")
                position = end  # a record without a key
                continue
            n = body[key_end]
            value_at = key_end + 1
            if n > 127:
                n, value_at = read_uvarint_tail(body, value_at, n)
            value_end = value_at + (n >> 1)
            if value_end >= end or (n & 1 and n != 1):
                raise ProtocolError("a value does not fit into its record")
            position = end
            if delta >> 1 < unwanted:
                continue
            index_at = key_end - INDEX_BYTES
            name = body[key_at : key_end - 1]
            if name != prefix:
                known = tables.get(name)
                if not isinstance(known, Table):
                    if (
                        body[key_end : value_at + FIELDS_AT] == SMALL_HEAD
                        and body[value_at + FIELDS_END] == 1
                    ):
                        tags = body[value_at + TIME_END : value_end]
                        small = self._begin_small(name, tags) if known is None else known
                        if len(small) < SMALL_BYTES and small.startswith(tags):
                            tables[name] = small + body[index_at : value_at + TIME_END]
                            steps += 1
                            if steps >= SLICE_STEPS:
                                yield steps
                                steps = 0
                            continue
                    known = self._begin_table(name, body[value_at:value_end], known)
                    steps += _TABLE_STEPS
                if known is None:
                    value = None if n & 1 else body[value_at:value_end]
                    self._replay(base_offset + (delta >> 1), body[key_at:key_end], value)
                    steps += _OTHER_STEPS
                    if steps >= SLICE_STEPS:
                        yield steps
                        steps = 0
                    continue
                if len(table.units) >= table.due_bytes:
                    table.clean()
                prefix, table = name, known
            if (
                body[value_at + TIME_END : value_end] == table.tags
                and body[key_end : value_at + FIELDS_AT] == table.head
                and body[value_at + FIELDS_END] == 1
            ):
                table.units += body[index_at : value_at + TIME_END]
                steps += 1
            else:
                value = None if n & 1 else body[value_at:value_end]
                self._replay(base_offset + (delta >> 1), body[key_at:key_end], value)
                steps += _OTHER_STEPS
            if steps >= SLICE_STEPS:
                if len(table.units) >= table.due_bytes:
                    table.clean()
                yield steps
                steps = 0
        if position != size:
            raise ProtocolError("bytes follow the last record")
        if len(table.units) >= table.due_bytes:
            table.clean()
        yield steps

    def _load_transactional(self, batch: BatchBody) -> Iterator[int]:
        """Records of a transaction: its offsets count when it is committed."""
        steps = 0
        for one in read_records(batch.body, batch.record_count, batch.base_offset, 0):
            if one.offset >= batch.start_offset and one.key is not None:
                record = self._decode(one.offset, one.key, one.value)
                steps += _OTHER_STEPS
                if record is None:
                    continue
                if isinstance(record.key, OffsetCommitKey) and isinstance(record.value, OffsetCommitValue):
                    self._add_pending(batch.producer_id, record.key, record.value)
                else:
                    if isinstance(record.key, OffsetCommitKey):
                        key = record.key
                        self._pending = self._pending.without((key.group_id, key.topic), (key.partition,))
                    self._replay_decoded(record)
            if steps >= SLICE_STEPS:
                yield steps
                steps = 0
        yield steps

    def _add_pending(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        rows = rows_of(key.partition, value)
        self._pending = self._pending.with_commits(producer_id, key.group_id, [(key.topic, rows)])
        self._open_names.add(build_key_start(key.group_id, key.topic))

    def _end_transaction(self, producer_id: int, marker: Marker) -> Iterator[int]:
        places = list(self._pending.by_producer.get(producer_id, ()))
        self._pending, commits = self._pending.ended(producer_id, is_commit=marker.kind == COMMIT)
        for place in places:
            if not self._pending.of_topic(*place):
                self._open_names.discard(build_key_start(*place))
        steps = 1
        for commit in commits:
            for partition, value in TopicOffsets.of_chunk(commit.rows).items():
                self._add(OffsetCommitKey(commit.group_id, commit.topic, partition), value)
                steps += _ADDED_STEPS
                if steps >= SLICE_STEPS:
                    yield steps
                    steps = 0
        yield steps

    def _cross_out(self, batch: BatchBody) -> Iterator[int]:
        """Offsets are committed or deleted outside of transactions: what that means for those that are
        pending. The common case, a batch that names none of their topics, is told by its bytes.
        """
        names = self._open_names
        if len(names) <= _FEW_NAMES and not any(name in batch.body for name in names):
            return
        steps = 0
        for one in read_records(batch.body, batch.record_count, batch.base_offset, 0):
            steps += _PASSED_STEPS
            if one.offset >= batch.start_offset and one.key is not None and one.key[:-INDEX_BYTES] in names:
                record = self._decode(one.offset, one.key, one.value)
                steps += _OTHER_STEPS
                if record is not None and isinstance(record.key, OffsetCommitKey):
                    place, partitions = (record.key.group_id, record.key.topic), (record.key.partition,)
                    if record.value is None:
                        self._pending = self._pending.without(place, partitions)
                    else:
                        self._pending = self._pending.crossed_out(place, partitions)
            if steps >= SLICE_STEPS:
                yield steps
                steps = 0
        yield steps

    def _begin_small(self, name: bytes, tags: bytes) -> bytes:
        """A small table without rows; nothing if the name is not that of one, or not in ASCII."""
        if not tags.startswith(TOPIC_ID_TAG) or not name.isascii() or split_name(name) is None:
            return b""
        return tags

    def _begin_table(self, name: bytes, value: bytes, small: bytes | None) -> Table | None:
        """The table of a small one, or of the first plain offset of a group and topic; None if not plain."""
        if small is not None:
            self._tables[name] = table = Table.of_small(name, small)
            return table
        tags = value[TIME_END:]
        if tags != NO_TAGS and not (tags.startswith(TOPIC_ID_TAG) and len(tags) == TAGGED_BYTES):
            return None
        if not value.startswith(PLAIN_HEAD) or value[FIELDS_END] != 1:
            return None
        places = split_name(name)
        if places is None:
            return None
        group_end, topic_at, topic_end = places
        topic_id = ZERO_UUID
        if tags != NO_TAGS:
            topic_id = self._topic_id(tags)
        try:
            table = Table(
                str(name[GROUP_AT:group_end], "utf-8"),
                str(name[topic_at:topic_end], "utf-8"),
                topic_id,
                tags,
            )
        except UnicodeDecodeError:
            return None
        self._tables[name] = table
        return table

    def _replay(self, offset: int, key: bytes, value: bytes | None) -> None:
        """Replay a record that is not a plain offset of a known group and topic."""
        record = self._decode(offset, key, value)
        if record is not None:
            self._replay_decoded(record)

    def _decode(self, offset: int, key: bytes, value: bytes | None) -> GroupRecord | None:
        try:
            return decode_record(key, value)
        except ProtocolError as error:
            log.error("__consumer_offsets-%d, offset %d: %s", self._partition, offset, error)
            return None

    def _replay_decoded(self, record: GroupRecord) -> None:
        if not isinstance(record.key, OffsetCommitKey):
            self.state = replay(self.state, record)
            return
        assert record.value is None or isinstance(record.value, OffsetCommitValue)
        self._add(record.key, record.value)

    def _add(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Add an offset, or a tombstone, to its table."""
        name = build_key_start(key.group_id, key.topic)
        name += INDEX.pack(key.partition)[:CHUNK_BYTES]
        table = self._tables.get(name)
        if isinstance(table, bytes):
            table = self._tables[name] = Table.of_small(name, table)
        elif table is None:
            table = self._tables[name] = Table(key.group_id, key.topic)
        table.add(key.partition, value)

    def finish(self) -> Iterator[int]:
        """Make the offsets part of the state; yields the number of steps after each slice."""
        offsets = Offsets()
        steps = 0
        while self._tables:
            group_id, topic, rows = self._rows_of(*self._tables.popitem())
            steps += _TABLE_STEPS
            if rows is not None:
                offsets.add(group_id, topic, rows)
                steps += len(rows.partitions) // 8
            if steps >= SLICE_STEPS:
                yield steps
                steps = 0
        self._tables = {}  # one that was large keeps its memory
        index = _NO_INDEX.mutate()
        while offsets.by_topic:
            named, counted = offsets.by_topic.popitem()
            index[named] = counted.finish()
            steps += 1
            if steps >= SLICE_STEPS:
                yield steps
                steps = 0
        self.state = ShardState(self.state.groups, offsets.by_group.finish(), index.finish(), self._pending)
        yield steps

    def _rows_of(self, name: bytes, table: Table | bytes) -> tuple[str, str, Rows | None]:
        """The group id and the topic of a table, and its newest offsets; None if all were deleted."""
        if isinstance(table, Table):
            return table.group_id, table.topic, table.rows()
        group_id, topic = read_name(name)
        topic_id = self._topic_id(table[:TAGGED_BYTES])
        return group_id, topic, few_rows(memoryview(table)[TAGGED_BYTES:], topic_id)

    def _topic_id(self, tags: bytes) -> Uuid:
        """The topic id in the tags of a value; equal ones are kept once."""
        known = self._topic_ids.get(tags)
        if known is None:
            known = self._topic_ids[tags] = Uuid(tags[len(TOPIC_ID_TAG) :])
        return known


_NO_INDEX: Map[TopicKey, Map[str, int]] = Map()
