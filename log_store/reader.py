"""The start and end of a read: from offsets to positions, the hot path of Fetch.

A consumer that keeps up continues where its last slice ended, and is bounded by a high watermark at which
some follower's slice ended; one that reads batch by batch continues after the last. Those positions are
remembered (a few a segment), to be found at once; anything else costs an index look-up and a scan of at most
one index interval.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.records import MAGIC, BatchHeader, crc_is_valid
from pykraft.kafka_protocol.records import iter_headers as iter_batch_headers
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store.epoch_cache import Epochs, find_wrong_epoch
from pykraft.log_store.index_build import repairing_indexes
from pykraft.log_store.interface import CorruptLogError, LogSlice, MissingOffsetError
from pykraft.log_store.scan import iter_headers
from pykraft.log_store.segment.reading import FoundBatch
from pykraft.log_store.segment.segment import Segment

_CACHED_POSITIONS = 32


def segment_index(base_offsets: Sequence[int], offset: int) -> int:
    """Which segment holds ``offset``: the last that does not begin above it."""
    if offset >= base_offsets[-1]:
        return len(base_offsets) - 1
    return max(0, bisect_right(base_offsets, offset) - 1)


def read_slice(
    segments: Sequence[Segment],
    base_offsets: Sequence[int],
    log_end_offset: int,
    offset: int,
    bound: int,
    max_bytes: int,
    at_least_one: bool,
) -> LogSlice | None:
    """See :meth:`Log.read`; ``offset`` lies within the log and ``bound`` is not above its end."""
    index = segment_index(base_offsets, offset)
    while offset < bound:
        segment = segments[index]
        is_newest = index == len(segments) - 1
        found = _locate(segment, offset)
        if found is not None:
            position, base_offset, next_offset, first_bytes = found
            if bound < (log_end_offset if is_newest else base_offsets[index + 1]):
                end = _end_position(segment, bound)
            else:
                end = segment.size_bytes
                if is_newest:
                    _remember(segment, bound, end)
            size = end - position
            if size > max_bytes:
                size = max(max_bytes, first_bytes) if at_least_one else max_bytes
            if size == first_bytes:
                _remember(segment, next_offset, position + size)
            return LogSlice(segment.file, position, size, base_offset) if size > 0 else None
        if is_newest:
            return None
        # a gap at the end of a segment: the requested records begin in the next
        index += 1
        offset = max(offset, base_offsets[index])
    return None


@dataclass(frozen=True, slots=True)
class Extent:
    """The range of a walk: batches up to the end of the log, without gaps unless compaction left them.

    ``log_end`` is asked again for each batch, since the log may grow meanwhile.
    """

    log_end: Callable[[], int]
    may_have_gap_at: Callable[[int], bool]


def walk(
    segments: Sequence[Segment],
    base_offsets: Sequence[int],
    start_offset: int,
    bound: int,
    read_ahead_bytes: int,
    extent: Extent,
) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """(segment, position, header) of each batch from the one that holds ``start_offset`` up to ``bound``.

    :class:`MissingOffsetError` where the batches do not continue each other: no CRC covers the base offset of
    a batch, and one that has become larger hides what follows it.
    """
    expected = start_offset
    for segment in segments[segment_index(base_offsets, start_offset) :]:
        if expected >= bound:
            return
        found = repairing_indexes(partial(segment.find, start_offset))
        if found is None:
            continue
        for position, header in iter_headers(segment.file, found[0], segment.size_bytes, read_ahead_bytes):
            if expected >= bound:
                return
            if header.next_offset > extent.log_end() or (
                header.base_offset > expected and not extent.may_have_gap_at(expected)
            ):
                raise MissingOffsetError(
                    segment.path,
                    position,
                    f"no batch holds offset {expected}, the next has offset {header.base_offset}",
                )
            if header.next_offset > bound:
                return
            yield segment, position, header
            expected = header.next_offset
    if expected < bound and not extent.may_have_gap_at(expected):
        last = segments[-1]
        raise MissingOffsetError(last.path, last.size_bytes, f"no batch holds offset {expected}")


def read_checked(piece: LogSlice, epochs: Epochs = ()) -> bytes:
    """The bytes of a slice that holds at least one whole batch; the last may be cut. Blocks.

    :class:`CorruptLogError` if a batch is not as it was written; ``epochs`` tell its leader epoch.
    """
    path, data = piece.file.path, piece.file.pread(piece.position, piece.size_bytes)
    if len(data) < piece.size_bytes:
        raise CorruptLogError(path, piece.position + len(data), "the file ends here")
    checked = 0
    try:
        for position, header in iter_batch_headers(data):
            if header.magic != MAGIC or not crc_is_valid(data, position, header):
                raise CorruptLogError(path, piece.position + position, "CRC does not match")
            if wrong := find_wrong_epoch(epochs, header):
                raise CorruptLogError(path, piece.position + position, wrong)
            checked = position + header.size_bytes
    except ProtocolError as error:
        raise CorruptLogError(path, piece.position + checked, str(error)) from None
    if checked == 0:
        raise CorruptLogError(path, piece.position, "no whole batch begins here")
    return data


def _locate(segment: Segment, offset: int) -> FoundBatch | None:
    """The batch that holds or follows ``offset``."""
    position = segment.positions.get(offset)
    if position is not None and position < segment.size_bytes:
        found = segment.batch_at(position)
        if found[2] <= offset:
            raise CorruptLogError(segment.path, position, f"no batch holds offset {offset}")
        return found
    return segment.find(offset)


def _end_position(segment: Segment, bound: int) -> int:
    """The position at which the batches below ``bound`` end."""
    position = segment.positions.get(bound)
    if position is None:
        found = segment.find(bound)
        position = segment.size_bytes if found is None else found[0]
        _remember(segment, bound, position)
    return position


def _remember(segment: Segment, offset: int, position: int) -> None:
    positions = segment.positions
    if offset not in positions:
        if len(positions) >= _CACHED_POSITIONS:
            del positions[next(iter(positions))]
        positions[offset] = position
