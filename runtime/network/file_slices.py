"""Ranges of files among the output of a connection, and what can go wrong with one."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from pykraft.runtime.disk import DiskFile, UnreadableError


@runtime_checkable
class FileSlice(Protocol):
    """A range of a file, to be sent unchanged. The bytes are read when they are sent, not before."""

    @property
    def file(self) -> DiskFile: ...

    @property
    def position(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


class TruncatedSliceError(OSError):
    """A file ended before the end of a range whose length the peer was already sent."""


class UnreadableSliceError(OSError):
    """The medium cannot read ``chunk``, whose length the peer was already sent."""

    def __init__(self, chunk: FileSlice, error: UnreadableError) -> None:
        super().__init__(*error.args, error.filename)
        self.chunk = chunk
