"""Length-prefixed frames: four bytes of signed big-endian size, then that many bytes.

Decides only whether a size is acceptable. After a negative, zero or oversized size the start of the next
frame is unknown, so the connection ends. Nothing is ever allocated because of an announced size.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

SIZE_BYTES = 4

_SIZE = Struct(">i")
pack_size = _SIZE.pack
pack_size_into = _SIZE.pack_into
unpack_size_from = _SIZE.unpack_from


class FramingError(Exception):
    """The peer does not speak this protocol, or sends more than it may."""


def read_frame_size(buffer: bytes | bytearray | memoryview, position: int, max_bytes: int) -> int:
    """The size announced at ``position``. :class:`FramingError` if it is not in (0, ``max_bytes``]."""
    size: int = unpack_size_from(buffer, position)[0]
    if 0 < size <= max_bytes:
        return size
    raise FramingError(f"frame of {size} bytes announced; allowed are 1 to {max_bytes}")


def take_frames(data: memoryview, max_bytes: int, take: Callable[[memoryview], None]) -> tuple[int, int]:
    """Pass each whole frame to ``take``. Returns where the next one begins, and how much of it is needed.

    :class:`FramingError` as :func:`read_frame_size`; the frames before have been taken.
    """
    position, end = 0, len(data)
    while end - position >= SIZE_BYTES:
        size = read_frame_size(data, position, max_bytes)
        following = position + SIZE_BYTES + size
        if following > end:
            return position, SIZE_BYTES + size
        take(data[position + SIZE_BYTES : following])
        position = following
    return position, SIZE_BYTES
