"""A segment file as an audit reads it: by blocks, with every CRC checked, and past what is damaged."""

from __future__ import annotations

import os
import re
import struct
from typing import BinaryIO, Final

from pykraft.kafka_protocol.crc import crc32c
from pykraft.kafka_protocol.primitives import Buffer
from pykraft.kafka_protocol.records import CRC_START, HEADER_BYTES, MAGIC, BatchHeader, read_header
from pykraft.spark.jobs.audit_files import EVERYTHING

_BLOCK_BYTES: Final = 4 << 20
_ZERO_TAIL_BYTES: Final = 8
"""So many zeros at the end of a file, reaching into a bad batch, are not the end of its last record."""
_UP_TO_MAGIC: Final = rb"(?=.{8}" + bytes([MAGIC]) + rb")"
"""What follows the base offset of every batch: length, leader epoch, magic."""


class SegmentFile:
    """A file by blocks: batches that follow each other are read once."""

    def __init__(self, file: BinaryIO) -> None:
        self._descriptor = file.fileno()
        self.size_bytes = os.fstat(self._descriptor).st_size
        self._block: Buffer = b""
        self._start = 0

    def read(self, position: int, size_bytes: int) -> memoryview:
        """At most a block; less than asked for only where the file ends."""
        begin = position - self._start
        if begin < 0 or begin + size_bytes > len(self._block):
            self._block = os.pread(self._descriptor, _BLOCK_BYTES, position)
            self._start, begin = position, 0
        return memoryview(self._block)[begin : begin + size_bytes]

    def header(self, position: int) -> BatchHeader | None:
        """None if the file ends before."""
        data = self.read(position, HEADER_BYTES)
        return read_header(data) if len(data) == HEADER_BYTES else None

    def crc_is_valid(self, position: int, header: BatchHeader) -> bool:
        at, end, crc = position + CRC_START, position + header.size_bytes, 0
        while at < end:
            data = self.read(at, min(end - at, _BLOCK_BYTES))
            if not data:
                return False
            crc = crc32c(data, crc)
            at += len(data)
        return crc == header.crc

    def problem(self, position: int, header: BatchHeader | None) -> str | None:
        """Why no batch with this header can be here."""
        left_bytes = self.size_bytes - position
        if header is None:
            return f"a header is cut short after {left_bytes} bytes"
        if header.magic != MAGIC:
            return f"magic is {header.magic}"
        if header.size_bytes < HEADER_BYTES:
            return f"batch length is {header.batch_length}"
        if header.size_bytes > left_bytes:
            return f"batch of {header.size_bytes} bytes is cut short after {left_bytes}"
        return None

    def find_batch(self, base_offset: int, position: int) -> int | None:
        """The first position from ``position`` on where a batch of this offset begins, with a valid CRC."""
        wanted = re.compile(re.escape(struct.pack(">q", base_offset)) + _UP_TO_MAGIC, re.DOTALL)
        while position + HEADER_BYTES <= self.size_bytes:
            data = bytes(self.read(position, _BLOCK_BYTES))
            for match in wanted.finditer(data):
                at = position + match.start()
                header = self.header(at)
                if header is not None and self.problem(at, header) is None and self.crc_is_valid(at, header):
                    return at
            position += max(1, len(data) - HEADER_BYTES)
        return None

    def written_end(self, position: int) -> int:
        """The end of what is not zero, or ``position``."""
        end = self.size_bytes
        while end > position:
            begin = max(position, end - _BLOCK_BYTES)
            content = bytes(self.read(begin, end - begin)).rstrip(b"\0")
            if content:
                return begin + len(content)
            end = begin
        return position

    def is_torn(self, position: int, header: BatchHeader | None) -> bool:
        """Whether an interrupted write explains the bad batch here, in the newest segment: the file ends
        within it, or holds only zeros from some point of it on."""
        written_end = self.written_end(position)
        if header is None or written_end == position:
            return True
        end = position + max(header.size_bytes, HEADER_BYTES)
        if header.magic == MAGIC and end > self.size_bytes:
            return self._find_next(position, header) is None
        return written_end < end and self.size_bytes - written_end >= _ZERO_TAIL_BYTES

    def position_after_bad(self, position: int, header: BatchHeader) -> int | None:
        """Where the batch after a bad one begins, or None: the length may be what is wrong."""
        if self.problem(position, header) is not None:
            return self._find_next(position, header)
        end = position + header.size_bytes
        if end == self.size_bytes or self.problem(end, self.header(end)) is None:
            return end
        return self._find_next(position, header) or end

    def _find_next(self, position: int, header: BatchHeader) -> int | None:
        """By the offset after a bad batch, if those in its header are right."""
        if header.last_offset_delta < 0 or not 0 <= header.next_offset < EVERYTHING:
            return None
        return self.find_batch(header.next_offset, position + 1)
