"""Length-prefixed frames: four bytes of signed big-endian size, then that many bytes.

Decides only whether a size is acceptable. After a negative, zero or oversized size the start of the next
frame is unknown, so the connection ends. Nothing is ever allocated because of an announced size.
"""

from __future__ import annotations

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
