"""The file ``flushed-offset``: how far the log was flushed, so that damage is not mistaken for a torn write.

A batch that a power loss tore was never acknowledged, and truncating it is harmless. A batch that was flushed
and can no longer be read may have been acknowledged. Its bytes do not tell which it is; so the flushed end is
written, durably, after each flush of the log and before that flush counts. A log that ends before its mark
has lost something. (This costs one small write per flush. Writing the mark without waiting for the flush
would be cheaper, but a power loss in the middle of a flush would then look like lost records, and a cluster
that loses power everywhere might elect no leader.) Before the log is truncated on purpose the mark is
lowered.

The mark also holds the epoch of the last record, which the CRC of a batch does not cover.

An entry has 32 bytes: version, whether the replica is recovering, how often it has lost something, end
offset, epoch, seven zeros, a CRC and a byte that is never zero. No entry crosses a sector boundary of the
disk, since the next sector may be written first. Entries are appended; the last counts. One at the end of the
file that is short, or ends in zeros, was torn; any other damage means that the end is not known.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from pykraft.runtime.disk import Disk, DiskFile

FLUSHED_OFFSET_FILE = "flushed-offset"
MAX_FILE_BYTES = 48 * 1024

_VERSION = 1
_UNKNOWN = -1
_BODY = struct.Struct(">BBxxiqi7x")
_TAIL = struct.Struct(">IB")
_WRITTEN = 0xA5
ENTRY_BYTES = _BODY.size + _TAIL.size


class FlushedMark(NamedTuple):
    """``end_offset`` (exclusive) of what was flushed, None for unknown; of a recovering replica: before its
    loss.

    ``epoch``: of the last record before it, 0 if the log held none. ``losses``: how often records were lost.
    """

    end_offset: int | None
    epoch: int = 0
    losses: int = 0
    is_recovering: bool = False


def encode_mark(mark: FlushedMark) -> bytes:
    end_offset = _UNKNOWN if mark.end_offset is None else mark.end_offset
    body = _BODY.pack(_VERSION, mark.is_recovering, mark.losses, end_offset, mark.epoch)
    return body + _TAIL.pack(zlib.crc32(body), _WRITTEN)


def decode_mark(entry: bytes) -> FlushedMark:
    """:class:`ValueError` if the entry is damaged, or of an unknown version."""
    body = entry[: _BODY.size]
    version, is_recovering, losses, end_offset, epoch = _BODY.unpack(body)
    if version != _VERSION or _TAIL.unpack(entry[_BODY.size :]) != (zlib.crc32(body), _WRITTEN):
        raise ValueError("not an intact entry")
    return FlushedMark(None if end_offset == _UNKNOWN else end_offset, epoch, losses, bool(is_recovering))


class FlushedMarkFile:
    """Reads and writes ``<directory>/flushed-offset``. ``mark`` is its content; None without a file."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._file: DiskFile | None = None
        self.path = f"{directory}/{FLUSHED_OFFSET_FILE}"
        self.mark: FlushedMark | None = None

    def read(self) -> FlushedMark | None:
        """Unknown if the file is damaged; None if there is none."""
        try:
            data = self._disk.read(self.path)
        except FileNotFoundError:
            return None
        end = len(data) - len(data) % ENTRY_BYTES
        try:
            if not data[end - 1]:
                end -= ENTRY_BYTES
            self.mark = decode_mark(data[end - ENTRY_BYTES : end])
        except (ValueError, IndexError, struct.error):
            self.mark = FlushedMark(None)
        return self.mark

    def write(self, mark: FlushedMark) -> None:
        """Replace the file. Durable on return."""
        self._close()
        self._disk.write_atomic(self.path, encode_mark(mark))
        self.mark = mark

    def advance(self, end_offset: int, epoch: int) -> None:
        """Everything below is flushed now. Durable on return; nothing to do for a smaller offset.

        The mark of a recovering replica stays that from before its loss, since nothing that it flushes
        counts.
        """
        mark = self.mark
        if mark is None:
            self.write(FlushedMark(end_offset, epoch))
            return
        if mark.is_recovering or (mark.end_offset is not None and end_offset <= mark.end_offset):
            return
        mark = mark._replace(end_offset=end_offset, epoch=epoch)
        if self._file is None:
            self._file = self._disk.open(self.path)
        if self._file.size() >= MAX_FILE_BYTES or self._file.size() % ENTRY_BYTES:
            self.write(mark)
            return
        self._file.append(encode_mark(mark))
        self._file.flush()
        self.mark = mark

    def lower(self, end_offset: int, epoch: int) -> None:
        """The log is about to be truncated there on purpose. Durable on return."""
        mark = self.mark
        if mark is not None and mark.end_offset is not None and end_offset < mark.end_offset:
            self.replace(end_offset, epoch)

    def replace(self, end_offset: int, epoch: int) -> None:
        """A flushed snapshot that ends there has taken the place of the log. Durable on return.

        Nothing to do where no mark is kept, nor on a recovering replica.
        """
        if self.mark is not None and not self.mark.is_recovering:
            self.write(self.mark._replace(end_offset=end_offset, epoch=epoch))

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
