"""Where a connection receives what does not fit into the buffer that all share.

Decides how memory grows under an incomplete frame. A large buffer is a mapping of memory that the operating
system extends where it is: nothing is copied, and a page is taken when the first byte arrives in it.
"""

from __future__ import annotations

import mmap

MAPPED_BYTES = 1024 * 1024
"""Smaller buffers are plain memory, and are copied when they grow."""


class ReceiveBuffer:
    """``view`` is all of it. Views of it keep the memory alive after the connection has let go of it."""

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
        """Go on with ``size_bytes`` in all, which are more; what was received stays at its place."""
        if self._mapping is not None:
            self.view.release()
            try:
                self._mapping.resize(size_bytes)
                return
            except (BufferError, SystemError, OSError):
                pass  # somebody still has a view of it, or mappings cannot be extended here
            finally:
                self.view = memoryview(self._mapping)
        grown = ReceiveBuffer(size_bytes)
        grown.view[: len(self.view)] = self.view
        self._mapping, self.view = grown._mapping, grown.view
