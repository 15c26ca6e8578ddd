"""Walking over the batches of a segment file: by headers alone, or with every byte checked.

Decides what a bad batch is. Must never continue past one: nothing after a wrong length can be located.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from pykraft.kafka_protocol.markers import Marker, read_marker
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.records import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    crc_is_valid,
    read_header,
)
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store.interface import CorruptLogError
from pykraft.runtime.disk import DiskFile

READ_AHEAD_BYTES = 4096
SCAN_READ_AHEAD_BYTES = 64 * 1024
SCAN_BLOCK_BYTES = 1 << 20
MIN_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES
PAGE_BYTES = 4096
#: So many zeros at the end of a file, reaching into a bad batch, are not the end of its last record.
ZERO_TAIL_BYTES = 8


@dataclass(frozen=True, slots=True)
class BadBatch:
    """Why a scan stopped. ``is_torn``: the file ends inside the batch, or in zeros only."""

    position: int
    reason: str
    is_torn: bool


def iter_headers(
    file: DiskFile, position: int, end: int, read_ahead_bytes: int = READ_AHEAD_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch in ``[position, end)``, without reading records.

    A batch larger than the read-ahead costs one small read. :class:`CorruptLogError` where there is no
    whole batch.
    """
    block, start = b"", position
    while position < end:
        at = position - start
        if at < 0 or at + HEADER_BYTES > len(block):
            block, start, at = file.pread(position, read_ahead_bytes), position, 0
            if len(block) < HEADER_BYTES:
                raise CorruptLogError(file.path, position, "batch header is cut short")
        header = read_header(block, at)
        length = header.batch_length
        if length < MIN_LENGTH or position + length + LOG_OVERHEAD_BYTES > end:
            raise CorruptLogError(file.path, position, f"batch length is {length}")
        yield position, header
        position += length + LOG_OVERHEAD_BYTES


def read_stored_marker(file: DiskFile, position: int, header: BatchHeader) -> Marker | None:
    """The marker in the control batch at ``position``; None if compaction has left it empty.

    :class:`CorruptLogError` if it is not what was written: it decides what consumers read.
    """
    batch = file.pread(position, header.size_bytes)
    if not crc_is_valid(batch, 0, header):
        raise CorruptLogError(file.path, position, "the checksum is wrong")
    try:
        return read_marker(header, batch)
    except ProtocolError as error:
        raise CorruptLogError(file.path, position, str(error)) from error


class CheckedScan:
    """Iterates over batches with their CRC and order checked; afterwards says where and why it stopped.

    ``bad`` stays None when the file ends exactly after a good batch.
    """

    __slots__ = ("_block", "_block_position", "_end", "_file", "bad", "epoch", "next_offset", "position")

    def __init__(
        self, file: DiskFile, position: int, next_offset: int, epoch: int, *, end: int | None = None
    ) -> None:
        self._file = file
        self._end = file.size() if end is None else min(end, file.size())
        self._block = b""
        self._block_position = position
        self.position = position
        self.next_offset = next_offset
        self.epoch = epoch
        self.bad: BadBatch | None = None

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        while self.position < self._end:
            header, problem = self._check()
            if problem is not None or header is None:
                self.bad = BadBatch(self.position, problem or "", self._is_torn(header))
                return
            yield self.position, header
            self.position += header.batch_length + LOG_OVERHEAD_BYTES
            self.next_offset = header.next_offset
            self.epoch = max(self.epoch, header.partition_leader_epoch)

    def batch(self, header: BatchHeader) -> bytes:
        """The bytes of the batch that was just yielded, with its ``header``."""
        at = self.position - self._block_position
        return self._block[at : at + header.batch_length + LOG_OVERHEAD_BYTES]

    def _locate(self, needed_bytes: int) -> int:
        """The current position within the block, which then holds ``needed_bytes`` from there."""
        at = self.position - self._block_position
        if at + needed_bytes > len(self._block):
            wanted = min(max(needed_bytes, SCAN_BLOCK_BYTES), self._end - self.position)
            self._block = self._file.pread(self.position, wanted)
            self._block_position, at = self.position, 0
        return at

    def _check(self) -> tuple[BatchHeader | None, str | None]:
        """The header at the current position (None if cut short) and what is wrong with the batch."""
        left = self._end - self.position
        if left < HEADER_BYTES:
            return None, f"batch header is cut short after {left} bytes"
        at = self._locate(HEADER_BYTES)
        header = read_header(self._block, at)
        size = header.batch_length + LOG_OVERHEAD_BYTES
        if size < HEADER_BYTES:
            return header, f"batch length is {header.batch_length}"
        if header.magic != MAGIC:
            return header, f"magic is {header.magic}"
        if size > left:
            return header, f"batch of {size} bytes is cut short after {left}"
        at = self._locate(size)
        if not crc_is_valid(self._block, at, header):
            return header, "CRC does not match"
        if header.base_offset < self.next_offset or header.last_offset_delta < 0:
            return header, f"offset falls from {self.next_offset} to {header.base_offset}"
        if header.partition_leader_epoch < self.epoch:
            # the tail of an older log after a truncation that a power loss undid
            return header, f"leader epoch falls from {self.epoch} to {header.partition_leader_epoch}"
        return header, None

    def _is_torn(self, header: BatchHeader | None) -> bool:
        left = self._end - self.position
        if header is None or (header.magic == MAGIC and header.batch_length + LOG_OVERHEAD_BYTES > left):
            return True
        # A power loss may keep any part of an interrupted write, and the file its new length.
        size = max(header.size_bytes, HEADER_BYTES)
        written = self._written_bytes()
        return written == 0 or (written < size and left - written >= ZERO_TAIL_BYTES)

    def _written_bytes(self) -> int:
        """How far after the current position the last non-zero byte is."""
        end = self._end
        while end > self.position:
            begin = max(self.position, end - SCAN_BLOCK_BYTES)
            block = self._file.pread(begin, end - begin).rstrip(b"\0")
            if block:
                return begin + len(block) - self.position
            end = begin
        return 0

    def has_unwritten_page(self) -> bool:
        """Whether the bad batch reaches into a page of zeros: the file system had not yet written that part.

        Of the page in which the batch begins only the rest counts: what is before it may belong to an earlier
        write. No batch begins with that many zeros.
        """
        header = self._bad_header()
        end = self.position + (HEADER_BYTES if header is None else header.size_bytes)
        begin = self.position
        while begin < end:
            next_page = begin - begin % PAGE_BYTES + PAGE_BYTES
            content = self._file.pread(begin, next_page - begin)
            if len(content) >= LOG_OVERHEAD_BYTES and not content.strip(b"\0"):
                return True
            begin = next_page
        return False

    def _bad_header(self) -> BatchHeader | None:
        """The header of the bad batch if its length is one that the file has."""
        self._block = b""
        header, _ = self._check()
        if header is None or not HEADER_BYTES <= header.size_bytes <= self._end - self.position:
            return None
        return header

    def is_followed_by_intact_batch(self) -> bool:
        """Whether the bad batch is an island: of full length, with a good one right after it.

        An interrupted write leaves nothing after it, so this is damage to data that was once complete.
        """
        header = self._bad_header()
        if header is None:
            return False
        # The damage may be in the header, so its offsets are not used.
        after = CheckedScan(self._file, self.position + header.size_bytes, self.next_offset + 1, self.epoch)
        return any(True for _ in islice(after, 1))
