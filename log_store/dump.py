"""Reads one segment or snapshot file batch by batch, damaged ones included, as a tool shows it.

Unlike recovery (:mod:`.scan`) this never changes a file, and continues after a batch with a wrong CRC as long
as its length leads to another batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykraft.kafka_protocol.records import HEADER_BYTES, MAGIC, BatchHeader, crc_is_valid, read_header
from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.disk import DiskFile


@dataclass(frozen=True, slots=True)
class FoundBatch:
    """One batch at ``position``; ``is_valid``: whether its CRC matches."""

    position: int
    header: BatchHeader
    data: bytes
    is_valid: bool


@dataclass(frozen=True, slots=True)
class Remainder:
    """No whole batch is at ``position``: ``size_bytes`` remain to the end of the file."""

    position: int
    size_bytes: int


def read_batches(file: DiskFile) -> Iterator[FoundBatch | Remainder]:
    """Every batch in the order of the file; last, and only if there is one, the remainder."""
    position, end = 0, file.size()
    while position < end:
        head = file.pread(position, HEADER_BYTES)
        header = read_header(head) if len(head) == HEADER_BYTES else None
        if (
            header is None
            or header.magic != MAGIC
            or header.size_bytes < HEADER_BYTES
            or position + header.size_bytes > end
        ):
            yield Remainder(position, end - position)
            return
        data = file.pread(position, header.size_bytes)
        yield FoundBatch(position, header, data, crc_is_valid(data, 0, header))
        position += header.size_bytes
