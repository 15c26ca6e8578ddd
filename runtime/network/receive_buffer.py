"""The buffer in which a connection receives frames that do not fit into the shared buffer.

It grows while a frame is incomplete. A large buffer is a memory mapping that the operating system extends in
place: nothing is copied, and a page is allocated when its first byte arrives.
"""

from __future__ import annotations

import mmap

MAPPED_BYTES = 1024 * 1024
"""Smaller buffers are plain memory, and are copied when they grow."""


class ReceiveBuffer:
    """``view`` is the whole buffer. Views of it keep the memory alive after the connection has dropped it."""

    __slots__ = ("_mapping", "view")

    def __init__(self, size_bytes: int) -> None:
        self._mapping: mmap.mmap | None = None
        if size_bytes < MAPPED_BYTES:
            self.view = memoryview(bytearray(size_bytes))
        else:
            self._mapping = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.view = memoryview(self._mapping)

    def __len__(self) -> int:
        return len(self.view)

    def grow(self, size_bytes: int) -> None:
        """Grow to ``size_bytes`` in total; received bytes stay at their positions."""
        if self._mapping is not None:
            self.view.release()
            try:
                self._mapping.resize(size_bytes)
                return
            except (BufferError, SystemError, OSError):
                pass  # a view of it still exists, or mappings cannot be extended on this system
            finally:
                self.view = memoryview(self._mapping)
        grown = ReceiveBuffer(size_bytes)
        grown.view[: len(self.view)] = self.view
        self._mapping, self.view = grown._mapping, grown.view
