"""The committed offsets of one group and topic, packed: about 27 bytes for each partition of a large topic.

Partitions are kept in chunks of 256. A chunk has one bit for each partition it holds and, in their order, one
row of 20 bytes for each: offset, leader epoch, commit timestamp. Its topic id is stored once. What few
offsets have (metadata, an expiry time of their own, the id of an older topic of the same name) is kept beside
the rows. Chunks and tables are immutable: a commit copies the rows of the chunks that it changes and shares
all others, so that the version before it costs nothing and stays readable until the new one is committed.

Equality is that of the offsets: how often a partition was committed, and in which order, makes no difference.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from struct import Struct
from sys import intern
from typing import NamedTuple

from pykraft.group_coordinator.state.records import OffsetCommitValue
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.persistent import Map, MapMutation

ROW = Struct(">qiq")
"""Offset, leader epoch, commit timestamp in ms."""

ROW_BYTES = ROW.size
CHUNK_PARTITIONS = 256
_CHUNK_BITS = 8
_LAST = CHUNK_PARTITIONS - 1
_LOW_BITS = tuple((1 << count) - 1 for count in range(CHUNK_PARTITIONS + 1))
"""One of these is the mask of most chunks: so many numbers, and not one for each chunk."""

unpack_row = ROW.unpack_from
pack_row = ROW.pack


class Extra(NamedTuple):
    """The fields that a row has no room for. ``topic_id`` is the offset's, whatever its chunk says."""

    metadata: str
    expire_timestamp_ms: int | None
    topic_id: Uuid


class Rows(NamedTuple):
    """Offsets to be set: ``partitions`` ascending without repetition, and as many rows.

    ``extras``, by partition, for those that have metadata or an expiry time; None: no offset has.
    """

    partitions: Sequence[int]
    rows: bytes
    topic_id: Uuid
    extras: Mapping[int, Extra] | None = None


TopicCounts = dict[Uuid, int]
"""How many offsets of each topic id a change has added (below zero: removed)."""


class _Chunk:
    __slots__ = ("extras", "mask", "rows", "topic_id")

    def __init__(self, topic_id: Uuid, mask: int, rows: bytes, extras: Map[int, Extra] | None) -> None:
        self.topic_id = topic_id
        self.mask = mask
        self.rows = rows
        self.extras = extras

    def get(self, place: int) -> OffsetCommitValue | None:
        bit = 1 << place
        if not self.mask & bit:
            return None
        return self._value(place, (self.mask & (bit - 1)).bit_count() * ROW_BYTES)

    def _value(self, place: int, at: int) -> OffsetCommitValue:
        offset, leader_epoch, timestamp_ms = unpack_row(self.rows, at)
        extra = None if self.extras is None else self.extras.get(place)
        if extra is None:
            return OffsetCommitValue(offset, leader_epoch, "", timestamp_ms, None, self.topic_id)
        metadata, expire_ms, topic_id = extra
        return OffsetCommitValue(offset, leader_epoch, metadata, timestamp_ms, expire_ms, topic_id)

    def items(self) -> Iterator[tuple[int, OffsetCommitValue]]:
        at = 0
        for place in _places(self.mask):
            yield place, self._value(place, at)
            at += ROW_BYTES

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Chunk):
            return NotImplemented
        if self.mask != other.mask or self.rows != other.rows:
            return False
        if self.topic_id == other.topic_id and self.extras == other.extras:
            return True
        return (self.extras is not None or other.extras is not None) and all(
            self._extra(place) == other._extra(place) for place in _places(self.mask)
        )

    __hash__ = None  # type: ignore[assignment]

    def _extra(self, place: int) -> Extra:
        extra = None if self.extras is None else self.extras.get(place)
        return Extra("", None, self.topic_id) if extra is None else extra

    def is_replaced(self, bits: int, topic_id: Uuid) -> bool:
        """Whether offsets of this topic in ``bits`` replace all of its own, which are of that topic, too."""
        return self.mask == bits and self.topic_id == topic_id and self.extras is None

    def count_topics(self, bits: int, sign: int, counts: TopicCounts) -> None:
        """Add the topics of the offsets in ``bits`` to ``counts``."""
        number = (self.mask & bits).bit_count()
        if self.extras is not None:
            for place, extra in self.extras.items():
                if bits >> place & 1:
                    number -= 1
                    counts[extra.topic_id] = counts.get(extra.topic_id, 0) + sign
        if number:
            counts[self.topic_id] = counts.get(self.topic_id, 0) + sign * number

    def with_rows(
        self, places: Sequence[int], rows: bytes, topic_id: Uuid, extras: Mapping[int, Extra] | None
    ) -> _Chunk:
        """The chunk after these rows, at ascending places, have replaced or joined its own."""
        mask, bits = self.mask, _bits_of(places)
        if mask & ~bits == 0:
            return _rebased(topic_id, bits, rows, None if extras is None else Map(extras))
        kept = self.extras
        if topic_id != self.topic_id:  # the others are of an older topic of this name, or of a newer one
            plain = Extra("", None, topic_id)
            extras = dict.fromkeys(places, plain) | dict(extras or {})
        if kept is not None or extras is not None:
            kept = _merged(kept, bits, extras)
        return _rebased(self.topic_id, mask | bits, _merge_rows(self.rows, mask, places, rows), kept)

    def without(self, places: Iterable[int]) -> _Chunk | None:
        """The chunk without these places; None if nothing is left."""
        bits = _bits_of(places) & self.mask
        left = self.mask & ~bits
        if not left:
            return None
        rows, mask = bytearray(self.rows), self.mask
        for place in _places(bits):
            at = (mask & ((1 << place) - 1)).bit_count() * ROW_BYTES
            del rows[at : at + ROW_BYTES]
            mask ^= 1 << place
        extras = None if self.extras is None else _merged(self.extras, bits, None)
        return _rebased(self.topic_id, left, bytes(rows), extras)


def _bits_of(places: Iterable[int]) -> int:
    if isinstance(places, range):
        bits = _LOW_BITS[len(places)]
        return bits << places.start if places.start else bits
    bits = 0
    for place in places:
        bits |= 1 << place
    return bits


def _places(mask: int) -> Iterator[int]:
    """The places of the bits of a mask, ascending."""
    while mask:
        bit = mask & -mask
        yield bit.bit_length() - 1
        mask ^= bit


def _merge_rows(old: bytes, mask: int, places: Sequence[int], rows: bytes) -> bytes:
    """The rows of a chunk after those at ``places`` were replaced or inserted, run by run."""
    merged = bytearray(old)
    count, first = len(places), 0
    while first < count:
        start = places[first]
        behind = first + 1
        if isinstance(places, range):
            behind = count
        else:
            while behind < count and places[behind] == start + behind - first:
                behind += 1
        bits = ((1 << (behind - first)) - 1) << start
        begin = (mask & ((1 << start) - 1)).bit_count() * ROW_BYTES
        end = begin + (mask & bits).bit_count() * ROW_BYTES
        merged[begin:end] = rows[first * ROW_BYTES : behind * ROW_BYTES]
        mask |= bits
        first = behind
    return bytes(merged)


def _merged(
    kept: Map[int, Extra] | None, bits: int, extras: Mapping[int, Extra] | None
) -> Map[int, Extra] | None:
    """``kept`` without those in ``bits``, and ``extras``."""
    changing: MapMutation[int, Extra] = (Map() if kept is None else kept).mutate()
    if kept is not None:
        for place in _places(bits):
            if place in kept and (extras is None or place not in extras):
                del changing[place]
    if extras is not None:
        changing.update(extras)
    return changing.finish() or None


def _rebased(topic_id: Uuid, mask: int, rows: bytes, extras: Map[int, Extra] | None) -> _Chunk:
    """A chunk; if no offset is of its topic any more, it becomes one of the topic of its first offset."""
    if extras is not None and len(extras) == mask.bit_count():
        first = extras[(mask & -mask).bit_length() - 1].topic_id
        if first != topic_id:
            topic_id = first
            extras = Map((n, extra) for n, extra in extras.items() if extra != ("", None, first)) or None
    return _Chunk(topic_id, mask, rows, extras)


class Run(NamedTuple):
    """The offsets of up to 256 partitions of a table, from ``first`` on, at one moment."""

    first: int
    chunk: _Chunk

    @property
    def partitions(self) -> list[int]:
        return [self.first | place for place in _places(self.chunk.mask)]

    @property
    def has_extras(self) -> bool:
        """Whether some have metadata, an expiry time or a topic id of their own."""
        return self.chunk.extras is not None

    @property
    def topic_id(self) -> Uuid:
        """The topic of all offsets, if they have no extras."""
        return self.chunk.topic_id

    def rows(self) -> Rows:
        """As :meth:`TopicOffsets.with_rows` takes them."""
        extras = self.chunk.extras
        by_partition = None if extras is None else {self.first | n: extra for n, extra in extras.items()}
        return Rows(self.partitions, self.chunk.rows, self.chunk.topic_id, by_partition)

    def items(self) -> Iterator[tuple[int, OffsetCommitValue]]:
        for place, value in self.chunk.items():
            yield self.first | place, value

    def commit_times_ms(self) -> Iterator[tuple[int, int]]:
        """By partition, without an object for each offset."""
        times = [timestamp_ms for _, _, timestamp_ms in ROW.iter_unpack(self.chunk.rows)]
        return zip(self.partitions, times, strict=True)


_NO_CHUNKS: Map[int, _Chunk] = Map()
_number, _value = itemgetter(0), itemgetter(1)


class TopicOffsets:
    """The committed offsets of one topic by partition; immutable, with the methods of a mapping."""

    __slots__ = ("_chunks", "_number")

    def __init__(self, chunks: Map[int, _Chunk] | _Chunk = _NO_CHUNKS, number: int = 0) -> None:
        """Chunks by number; or, in less memory, the only chunk and its number."""
        self._chunks = chunks
        self._number = number

    def _chunk(self, number: int) -> _Chunk | None:
        chunks = self._chunks
        if isinstance(chunks, _Chunk):
            return chunks if number == self._number else None
        return chunks.get(number)

    def _numbered(self) -> Iterable[tuple[int, _Chunk]]:
        """The chunks in order."""
        chunks = self._chunks
        return (
            ((self._number, chunks),) if isinstance(chunks, _Chunk) else sorted(chunks.items(), key=_number)
        )

    def _with(self, number: int, chunk: _Chunk) -> TopicOffsets:
        chunks = self._chunks
        if isinstance(chunks, _Chunk):
            if number != self._number:
                return TopicOffsets(Map({self._number: chunks, number: chunk}))
        elif chunks:
            return TopicOffsets(chunks.set(number, chunk))
        return TopicOffsets(chunk, number)

    def _without(self, number: int) -> TopicOffsets:
        """Without a chunk that is there."""
        if isinstance(self._chunks, _Chunk):
            return NO_PARTITIONS
        left = self._chunks.delete(number)
        if len(left) > 1:
            return TopicOffsets(left)
        ((number, chunk),) = left.items()
        return TopicOffsets(chunk, number)

    def __len__(self) -> int:
        return sum(chunk.mask.bit_count() for _, chunk in self._numbered())

    def __bool__(self) -> bool:
        return isinstance(self._chunks, _Chunk) or bool(self._chunks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicOffsets):
            return NotImplemented
        return self._number == other._number and self._chunks == other._chunks

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TopicOffsets({dict(self.items())})"

    def __iter__(self) -> Iterator[int]:
        for number, chunk in self._numbered():
            for place in _places(chunk.mask):
                yield number << _CHUNK_BITS | place

    def __contains__(self, partition: int) -> bool:
        chunk = self._chunk(partition >> _CHUNK_BITS)
        return chunk is not None and bool(chunk.mask >> (partition & _LAST) & 1)

    def get(self, partition: int) -> OffsetCommitValue | None:
        chunk = self._chunk(partition >> _CHUNK_BITS)
        return None if chunk is None else chunk.get(partition & _LAST)

    def items(self) -> Iterator[tuple[int, OffsetCommitValue]]:
        """All offsets in order of their partitions."""
        for number, chunk in self._numbered():
            for place, value in chunk.items():
                yield number << _CHUNK_BITS | place, value

    def runs(self) -> Iterator[Run]:
        """All offsets in order of their partitions, up to 256 at a time."""
        for number, chunk in self._numbered():
            yield Run(number << _CHUNK_BITS, chunk)

    def unchanged(self, run: Run, partitions: Sequence[int]) -> Sequence[int]:
        """Those of these partitions of a run, of an older version, whose offsets are still the same."""
        chunk = self._chunk(run.first >> _CHUNK_BITS)
        if chunk is run.chunk:
            return partitions
        if chunk is None:
            return ()
        return [n for n in partitions if chunk.get(n & _LAST) == run.chunk.get(n & _LAST)]

    def values(self) -> Iterator[OffsetCommitValue]:
        return map(_value, self.items())

    @classmethod
    def of_chunk(cls, given: Rows) -> TopicOffsets:
        """A table of these offsets, which are of partitions of one chunk."""
        partitions, rows, topic_id, extras = given
        number = partitions[0] >> _CHUNK_BITS
        base = number << _CHUNK_BITS
        places: Sequence[int]
        if partitions[-1] - partitions[0] == len(partitions) - 1:
            places = range(partitions[0] - base, partitions[-1] - base + 1)
        else:
            places = [partition - base for partition in partitions]
        own = None if extras is None else Map({partition - base: one for partition, one in extras.items()})
        return cls(_rebased(topic_id, _bits_of(places), rows, own), number)

    def count_topics(self, counts: TopicCounts) -> None:
        """Add the topics of all offsets to ``counts``."""
        for _, chunk in self._numbered():
            chunk.count_topics(chunk.mask, 1, counts)

    def with_rows(self, given: Rows, counts: TopicCounts) -> TopicOffsets:
        """The table after a commit. What it changes is added to ``counts``."""
        partitions, rows, topic_id, extras = given
        if len(partitions) == 1 and extras is None:
            number, place = partitions[0] >> _CHUNK_BITS, partitions[0] & _LAST
            return self._with(number, _set_in(self._chunk(number), (place,), rows, topic_id, None, counts))
        table = self
        first, end = 0, len(partitions)
        while first < end:
            number = partitions[first] >> _CHUNK_BITS
            limit = (number + 1) << _CHUNK_BITS
            behind = end if partitions[-1] < limit else bisect_left(partitions, limit, first)
            base = number << _CHUNK_BITS
            run = partitions[first:behind]
            places: Sequence[int]
            if run[-1] - run[0] == behind - first - 1:
                places = range(run[0] - base, run[-1] - base + 1)
            else:
                places = [partition - base for partition in run]
            own = (
                None
                if extras is None
                else {place: extras[base + place] for place in places if base + place in extras} or None
            )
            part = rows if behind - first == end else rows[first * ROW_BYTES : behind * ROW_BYTES]
            table = table._with(number, _set_in(table._chunk(number), places, part, topic_id, own, counts))
            first = behind
        return table

    def without(self, partitions: Iterable[int], counts: TopicCounts) -> TopicOffsets:
        """The table without these partitions; those that it does not have are ignored."""
        table = self
        for number, places in _by_chunk(partitions).items():
            chunk = table._chunk(number)
            if chunk is None:
                continue
            chunk.count_topics(_bits_of(places), -1, counts)
            left = chunk.without(places)
            table = table._without(number) if left is None else table._with(number, left)
        return table


def _set_in(
    chunk: _Chunk | None,
    places: Sequence[int],
    rows: bytes,
    topic_id: Uuid,
    extras: Mapping[int, Extra] | None,
    counts: TopicCounts,
) -> _Chunk:
    bits = _bits_of(places)
    if chunk is not None and extras is None and chunk.is_replaced(bits, topic_id):
        return _Chunk(topic_id, bits, rows, None)
    counts[topic_id] = counts.get(topic_id, 0) + len(places)
    if chunk is None:
        return _rebased(topic_id, bits, rows, None if extras is None else Map(extras))
    chunk.count_topics(bits, -1, counts)
    return chunk.with_rows(places, rows, topic_id, extras)


def _by_chunk(partitions: Iterable[int]) -> dict[int, list[int]]:
    by_chunk: dict[int, list[int]] = {}
    for partition in partitions:
        by_chunk.setdefault(partition >> _CHUNK_BITS, []).append(partition & _LAST)
    return by_chunk


def make_extra(metadata: str, expire_timestamp_ms: int | None, topic_id: Uuid) -> Extra | None:
    """The extra of an offset; None for one that is told by its row. Equal texts are kept once."""
    if not metadata and expire_timestamp_ms is None:
        return None
    return Extra(intern(metadata), expire_timestamp_ms, topic_id)


def rows_of(partition: int, value: OffsetCommitValue) -> Rows:
    """One offset, as a table takes it."""
    row = pack_row(value.offset, value.leader_epoch, value.commit_timestamp_ms)
    extra = make_extra(value.metadata, value.expire_timestamp_ms, value.topic_id)
    return Rows((partition,), row, value.topic_id, None if extra is None else {partition: extra})


NO_PARTITIONS = TopicOffsets()
