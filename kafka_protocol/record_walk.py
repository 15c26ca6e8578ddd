"""Whether the records of a batch are what its header says, without making an object of any of them.

Accepts what ``record_codec.decode_batch`` reads, and only if the offset deltas are 0, 1, 2 … and the last
record ends where the batch ends. Records of one length often follow each other; the bytes at the same place
of each are then a column: ``body[place::length]``. As long as the columns of all lengths are constant and
those of the offset deltas are the expected ones, records are checked by a few comparisons in C; every other
record is read by itself. A walk stops after a given amount of work and is continued later. The same walk in C
is in :mod:`~pykraft.kafka_protocol.compiled_walk`.

Record layout (numbers are zigzag varints): length, attributes 1, timestamp delta, offset delta, key length
and key (-1: null), value length and value, header count, and for each header name length and name, value
length (-1: null) and value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.primitives import (
    Buffer,
    ProtocolError,
    read_uvarint_tail,
    read_varint,
    read_varlong,
)
from pykraft.lazy_dataclass import dataclass

MAX_REJECTED_RECORDS = 1000
"""A walk ends after this many rejected records: the answer lists them and must not outgrow the request."""

_MIN_RECORD_BYTES = 7
_MIN_HEADER_BYTES = 2

# The bytes of an offset delta by index: where it takes one byte, and the first and the second of several. No
# run crosses a multiple of PERIOD, so that all bytes after the second are constant.
PERIOD = 8192
_ONLY_BYTE = bytes(2 * index for index in range(64))
_FIRST_BYTE = bytes(byte | 0x80 for byte in _ONLY_BYTE) * (PERIOD // 64)
_LAST_BYTE = b"".join(bytes([byte]) * 64 for byte in range(PERIOD // 64))
_SECOND_BYTE = b"".join(bytes([byte | 0x80]) * 64 for byte in range(PERIOD // 64))

_EVEN = bytes(range(0, 256, 2))
_CONTINUES = bytes(byte ^ 0x80 for byte in range(256))
"""Turns those bytes of a varint that another byte follows into ASCII, and no others."""

# Work done in C is cheap, but it is counted: looking for a run costs as much as reading _RUN_WORK records;
# within a run, _RUN_RECORDS_PER_WORK records or _RUN_BYTES_PER_WORK bytes cost as much as one.
_RUN_WORK = 4
_RUN_RECORDS_PER_WORK = 16
_RUN_BYTES_PER_WORK = 16 << 10
_LONGEST_RUN_BYTES = 1 << 20
# After a search that found no run the walk pauses for twice as many records as the last time, up to this.
_LONGEST_PAUSE = 256

_MANY_HEADERS = 16
"""If a record has more headers, they are read one by one, and each counts as work."""


Places = tuple[int, int]


@dataclass(slots=True)  # one is made of each batch
class RecordRules:
    """A topic's rules for each record. Times are deltas to the base timestamp, both ends inclusive.

    ``exempt_delta`` is the delta that means that a record has no timestamp.
    """

    requires_keys: bool
    least_delta: int
    greatest_delta: int
    exempt_delta: int


class RejectedRecord(NamedTuple):
    """A well-formed record that breaks a rule: it has no key, or else its timestamp is out of range."""

    record_index: int
    lacks_key: bool
    timestamp_delta: int


class RecordWalk:
    """A walk over ``record_count`` records in ``body``: everything after a batch's header, decompressed.

    After the walk ``greatest_delta`` is the greatest of all timestamp deltas, and ``rejected`` lists the
    records that break a rule. :class:`ProtocolError` (INVALID_RECORD), also from :meth:`advance`, if ``body``
    is not a sequence of ``record_count`` records.
    """

    __slots__ = (
        "_body",
        "_count",
        "_end",
        "_headers_left",
        "_index",
        "_pause",
        "_position",
        "_rules",
        "_seek_from",
        "greatest_delta",
        "is_done",
        "rejected",
    )

    def __init__(self, body: Buffer, record_count: int, rules: RecordRules) -> None:
        if not 0 < record_count <= len(body) // _MIN_RECORD_BYTES:
            raise malformed(f"{record_count} records in {len(body)} bytes")
        self._body = body
        self._count = record_count
        self._rules = rules
        self._index = 0
        self._position = 0
        self._headers_left = 0  # of a record that ends at _end and is read up to its headers
        self._end = 0
        self._pause = 1
        self._seek_from = 0  # no run is looked for before this index
        self.greatest_delta = -1 << 63
        self.is_done = False
        self.rejected: list[RejectedRecord] = []

    def advance(self, work: int) -> int:
        """Continue to the end or until ``work`` is done; returns how much was done (1: one record read)."""
        done = self._continue(work)
        if self._index == self._count and not self._headers_left:
            if self._position != len(self._body):
                raise malformed("bytes follow the last record")
            self.is_done = True
        elif len(self.rejected) >= MAX_REJECTED_RECORDS:
            self.is_done = True
        return done

    def _continue(self, work: int) -> int:
        try:
            return self._read_headers(work) if self._headers_left else self._read_records(work)
        except IndexError:
            raise malformed("the last record is cut short") from None
        except ProtocolError as error:
            raise malformed(error.message) from None

    def _read_records(self, work: int) -> int:
        """The hot loop: varints of one byte, and of two where they are common, are inlined.

        A key or value that reaches past its record leaves ``position`` past ``end``, where it can never be
        again.
        """
        body, size, count = self._body, len(self._body), self._count
        requires_keys = self._rules.requires_keys
        index, position, seek_from = self._index, self._position, self._seek_from
        known_stamp = -1
        left = work
        while index < count and left > 0:
            left -= 1
            start = position
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
                raise malformed("a record is cut short")
            stamp_at = position + 1  # the byte before it holds the record's attributes: unused
            n = body[stamp_at]
            delta_at = stamp_at + 1
            if n != known_stamp:
                if n > 127:
                    stamp, delta_at = read_varlong(body, stamp_at)
                else:
                    known_stamp = n
                    stamp = (n >> 1) ^ -(n & 1)
                if not self._is_in_time(stamp):
                    known_stamp = -1
                    self.rejected.append(RejectedRecord(index, False, stamp))
            n = body[delta_at]
            position = delta_at + 1
            if n > 127:
                m = body[position]
                if m < 128:
                    n += (m << 7) - 128
                    position += 1
                else:
                    n, position = read_uvarint_tail(body, position, n)
            if n != index << 1:
                raise malformed(f"record {index} has the offset delta {(n >> 1) ^ -(n & 1)}")
            key_at = position
            n = body[position]
            position += 1
            if n > 127:
                n, position = read_uvarint_tail(body, position, n)
            key_start = position
            if n & 1 == 0:
                position += n >> 1
            elif n != 1:
                raise malformed("a key of negative length")
            elif requires_keys:
                self._reject_keyless(index)
            value_at = position
            n = body[position]
            position += 1
            if n > 127:
                m = body[position]
                if m < 128:
                    n += (m << 7) - 128
                    position += 1
                else:
                    n, position = read_uvarint_tail(body, position, n)
            value_start = position
            if n & 1 == 0:
                position += n >> 1
            elif n != 1:
                raise malformed("a value of negative length")
            headers_at = position
            if body[position] == 0:
                position += 1
            else:
                n, position = read_varint(body, position)
                if not 0 <= n <= (end - position) // _MIN_HEADER_BYTES:
                    raise malformed(f"{n} headers")
                if n > _MANY_HEADERS:
                    index += 1
                    self._headers_left, self._end = n, end
                    break
                for _ in range(n):
                    position = _read_header(body, position)[-1]
            if position != end:
                raise malformed("a record does not fill its length")
            index += 1
            if index > seek_from and index < count and body[end] == body[start] and not self.rejected:
                lengths = (start, stamp_at - 1), (key_at, key_start), (value_at, value_start)
                met = self._run(index, end, stamp_at, delta_at, key_at, (*lengths, (headers_at, end)))
                self._pause = 0 if met > _RUN_WORK else min(2 * self._pause + 1, _LONGEST_PAUSE)
                index += met
                position += met * (end - start)
                seek_from = index + self._pause
                left -= _RUN_WORK + met // _RUN_RECORDS_PER_WORK + met * (end - start) // _RUN_BYTES_PER_WORK
        self._index, self._position, self._seek_from = index, position, seek_from
        return work - left

    def _read_headers(self, work: int) -> int:
        """Read the headers of a record with more than _MANY_HEADERS."""
        count = min(work, self._headers_left)
        position = self._position
        for _ in range(count):
            position = _read_header(self._body, position)[-1]
        self._position = position
        self._headers_left -= count
        if not self._headers_left and position != self._end:
            raise malformed("a record does not fill its length")
        return count

    def _is_in_time(self, stamp: int) -> bool:
        if stamp > self.greatest_delta:
            self.greatest_delta = stamp
        rules = self._rules
        return rules.least_delta <= stamp <= rules.greatest_delta or stamp == rules.exempt_delta

    def _reject_keyless(self, index: int) -> None:
        """A record that breaks both rules is reported as one without a key."""
        if self.rejected and self.rejected[-1].record_index == index:
            self.rejected.pop()
        self.rejected.append(RejectedRecord(index, True, 0))

    def _run(
        self,
        index: int,
        end: int,
        stamp_at: int,
        delta_at: int,
        key_at: int,
        places: tuple[Places, ...],
    ) -> int:
        """How many records from ``end`` on are like the one before: equal lengths, and the expected deltas.

        ``index`` is the index of the first of them; the other positions are those of the record before, which
        has been read. ``places`` are its lengths, that of the record first: as long as that length is the
        same, the next record begins where the walk looks for it.
        """
        body, stride = self._body, end - places[0][0]
        count = min(
            self._count - index,
            min(len(body) - end, _LONGEST_RUN_BYTES) // stride,
            PERIOD - index % PERIOD,
        )
        expected = offset_delta_columns(index, count, key_at - delta_at)
        if not expected or not expected[0]:
            return 0
        if places[-1][1] - places[-1][0] > 1:
            places = (*places[:-1], *_find_header_lengths(body, places[-1][0]))
        count = len(expected[0])
        for place_start, place_stop in places:
            for place in range(place_start, place_stop):
                known = bytes(body[place : place + 1])
                column = bytes(body[place + stride : end + count * stride : stride])
                if column != known * count:
                    count -= len(column.lstrip(known))
                    if count == 0:
                        return 0
        for place, column in enumerate(expected, delta_at):
            if body[place + stride : end + count * stride : stride] != column[:count]:
                return 0
        stamps = [
            bytes(body[place + stride : end + count * stride : stride]) for place in range(stamp_at, delta_at)
        ]
        return count if self._are_in_time(stamps) else 0

    def _are_in_time(self, columns: list[bytes]) -> bool:
        """Whether the timestamp deltas in these columns are in range, not negative, and as wide as the
        columns.

        If not, each record must be read by itself."""
        *continued, last = columns
        if columns[0].translate(None, _EVEN) or not last.isascii():
            return False
        if any(not column.translate(_CONTINUES).isascii() for column in continued):
            return False
        least = min(last) << 7 * len(continued) >> 1  # or a little more
        if not continued:
            return self._is_in_time(max(last) >> 1) and self._rules.least_delta <= least
        greatest, _ = read_varlong(bytes(max(zip(last, *reversed(continued), strict=True))[::-1]), 0)
        return self._is_in_time(greatest) and self._rules.least_delta <= least


def offset_delta_columns(index: int, count: int, width: int) -> list[bytes]:
    """The bytes of the offset deltas from ``index`` on, as columns of varints of ``width`` bytes.

    For at most ``count`` records of one period; empty if the deltas do not fit into so many bytes."""
    first = index % PERIOD
    if width == 1:
        return [_ONLY_BYTE[index : index + count]] if index < len(_ONLY_BYTE) else []
    columns = [_FIRST_BYTE[first : first + count]]
    rest = 2 * index >> 14
    if width == 2:
        columns.append(_LAST_BYTE[first : first + count])
    else:
        columns.append(_SECOND_BYTE[first : first + count])
        for _ in range(width - 3):
            columns.append(bytes([rest & 0x7F | 0x80]) * len(columns[0]))
            rest >>= 7
        columns.append(bytes([rest & 0x7F]) * len(columns[0]))
        rest >>= 7
    return [] if rest else columns


def _read_header(body: Buffer, position: int) -> tuple[int, int, int, int]:
    """Where the name and the value of the header at ``position`` start and end, in this order."""
    length, name_at = read_varint(body, position)
    if length < 0:
        raise malformed("a header without a name")
    name_end = name_at + length
    length, value_at = read_varint(body, name_end)
    if length < -1:
        raise malformed("a header value of negative length")
    return name_at, name_end, value_at, value_at + max(length, 0)


def _find_header_lengths(body: Buffer, position: int) -> Iterator[Places]:
    """The places of the count of headers at ``position`` and of the lengths in them."""
    count, start = read_varint(body, position)
    yield position, start
    for _ in range(count):
        name_at, name_end, value_at, value_end = _read_header(body, start)
        yield start, name_at
        yield name_end, value_at
        start = value_end


def malformed(what: str) -> ProtocolError:
    """The error of a body that is not what its batch's header says."""
    return ProtocolError(f"malformed records: {what}", ErrorCode.INVALID_RECORD)
