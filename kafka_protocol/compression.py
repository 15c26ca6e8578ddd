"""Compressing record batches, and decompressing them without trusting them.

A few kilobytes can decompress to gigabytes (zstd: 32,000 to 1), so every decompression has a limit and writes
into a buffer that never grows beyond it. The size that a frame claims only chooses the size of the first
buffer; it is never trusted.

Formats: gzip (several members may follow each other), LZ4 frames, zstd frames, and for snappy the framing of
the Java library (a magic header, then blocks with their size). Producers in C send a bare snappy block, which
is also read.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any

import cramjam

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.primitives import Buffer, ProtocolError

_FIRST_BUFFER_BYTES = 64 << 10
_EXPECTED_RATIO = 4
_GROWTH = 4
_GZIP_LEVEL = 6
_LZ4_LEVEL = 1
_ZSTD_LEVEL = 3

_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK_BYTES = 32 << 10
_BLOCK_LENGTH = struct.Struct(">i")


class Compression(IntEnum):
    """The codec numbers in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """``data`` compressed by ``codec``; ``level`` as in Kafka's topic configuration, None for a fast one.

    Large data belong in a thread: the libraries release the GIL while they work."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(data, _GZIP_LEVEL if level in (None, -1) else level))
        case Compression.SNAPPY:
            return _snappy_compress(data)
        case Compression.LZ4:
            return _lz4_compress(data, _LZ4_LEVEL if level is None else level)
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL if level is None else level))


def decompress(codec: Compression, data: Buffer, max_bytes: int) -> bytes:
    """``data`` decompressed, at most ``max_bytes``.

    :class:`ProtocolError` for corrupt data (CORRUPT_MESSAGE) and for more than the limit (MESSAGE_TOO_LARGE).
    """
    if codec is Compression.NONE and len(data) > max_bytes:
        raise _too_large(max_bytes)
    return bytes(unfold(codec, data, max_bytes))


def unfold(codec: Compression, data: Buffer, max_bytes: int) -> Buffer:
    """As :func:`decompress`, without the copy to ``bytes``; uncompressed data is returned unchanged.

    Large data belong in a thread: the libraries release the GIL while they work."""
    try:
        match codec:
            case Compression.NONE:
                return data
            case Compression.GZIP:
                return _decompress_bounded(cramjam.gzip, data, max_bytes)
            case Compression.SNAPPY:
                return _snappy_decompress(data, max_bytes)
            case Compression.LZ4:
                return _decompress_bounded(cramjam.lz4, data, max_bytes)
            case Compression.ZSTD:
                return _decompress_bounded(cramjam.zstd, data, max_bytes)
    except cramjam.DecompressionError as error:
        raise ProtocolError(
            f"{codec.name.lower()} data is corrupt: {error}", ErrorCode.CORRUPT_MESSAGE
        ) from None


def _too_large(max_bytes: int) -> ProtocolError:
    return ProtocolError(f"data unfolds to more than {max_bytes} bytes", ErrorCode.MESSAGE_TOO_LARGE)


def _decompress_bounded(library: Any, data: Buffer, max_bytes: int) -> bytearray:
    """Decompress into buffers of growing size; the last one tried has the limit's size."""
    size = min(max_bytes, max(_FIRST_BUFFER_BYTES, len(data) * _EXPECTED_RATIO))
    while True:
        out = bytearray(size)
        try:
            written = library.decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if size >= max_bytes:
                raise _too_large(max_bytes) from None
            size = min(max_bytes, size * _GROWTH)
            continue
        del out[written:]
        return out


def _lz4_compress(data: Buffer, level: int) -> bytes:
    """A frame of independent blocks: Java clients refuse the linked blocks that are the library's default."""
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # it takes nothing else
    return bytes(compressor.finish())


def _snappy_compress(data: Buffer) -> bytes:
    out = bytearray(_SNAPPY_HEADER)
    view = memoryview(data)
    for start in range(0, len(view), _SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _SNAPPY_BLOCK_BYTES]))
        out += _BLOCK_LENGTH.pack(len(block))
        out += block
    return bytes(out)


def _snappy_decompress(data: Buffer, max_bytes: int) -> Buffer:
    if bytes(data[: len(_SNAPPY_MAGIC)]) != _SNAPPY_MAGIC:
        return _snappy_block(data, max_bytes)
    parts: list[bytearray] = []
    position, left = len(_SNAPPY_HEADER), max_bytes
    if len(data) < position:
        raise ProtocolError("truncated snappy header", ErrorCode.CORRUPT_MESSAGE)
    while position < len(data):
        if len(data) - position < _BLOCK_LENGTH.size:
            raise ProtocolError("truncated snappy block", ErrorCode.CORRUPT_MESSAGE)
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise ProtocolError("snappy block of impossible size", ErrorCode.CORRUPT_MESSAGE)
        part = _snappy_block(data[position : position + length], left)
        parts.append(part)
        left -= len(part)
        position += length
    return b"".join(parts)


_SNAPPY_MAX_RATIO = 64
"""A snappy copy of at most 64 bytes takes at least two bytes, so no block decompresses further than this."""


def _snappy_block(block: Buffer, max_bytes: int) -> bytearray:
    size = int(cramjam.snappy.decompress_raw_len(block))
    if size > max_bytes:
        raise _too_large(max_bytes)
    if size > len(block) * _SNAPPY_MAX_RATIO:
        raise ProtocolError("snappy block of impossible size", ErrorCode.CORRUPT_MESSAGE)
    out = bytearray(size)
    written = cramjam.snappy.decompress_raw_into(block, out)
    if written != size:
        raise ProtocolError("snappy block shorter than its header says", ErrorCode.CORRUPT_MESSAGE)
    return out
