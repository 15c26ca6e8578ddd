"""The smallest pieces of the wire format: varints, and the one exception the codec raises.

Everything here works on whole frames (``bytes`` or a ``memoryview`` of bytes) and a position; nothing copies
and nothing trusts a length. Lengths are checked against the bytes that are left before anything is allocated
for them. Nothing here waits for more bytes: a frame that is not whole is an error.
"""

from __future__ import annotations

from typing import TypeAlias

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_STRING_BYTES = 0x7FFF
"""Kafka refuses longer strings in every version, although compact strings could carry more."""

_MAX_VARINT_BYTES = 5
_MAX_VARLONG_BYTES = 10


class ProtocolError(KafkaError):
    """Bytes that are not what the protocol says they must be, or a message that a version cannot carry."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(code, message)


def truncated(what: str) -> ProtocolError:
    """The error for a length or count that reaches past the end of the frame."""
    return ProtocolError(f"truncated or oversized: {what}")


def write_uvarint(out: bytearray, value: int) -> None:
    """Append ``value`` (not negative) as an unsigned varint, seven bits a byte, low bits first."""
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint: (value, next position). At most five bytes, at most 32 bits."""
    first = buffer[position]
    if first < 128:
        return first, position + 1
    return read_uvarint_tail(buffer, position + 1, first)


def read_uvarint_tail(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose ``first`` byte, already read, had its top bit set."""
    value = first & 0x7F
    for shift in range(7, 7 * _MAX_VARINT_BYTES, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise ProtocolError("a varint does not fit into 32 bits")


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed value of any width, zigzag encoded. Used for both varint and varlong."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a zigzag encoded 32-bit value: (value, next position)."""
    raw, position = read_uvarint(buffer, position)
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a zigzag encoded 64-bit value: (value, next position)."""
    raw = 0
    for shift in range(0, 7 * _MAX_VARLONG_BYTES, 7):
        byte = buffer[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 128:
            if raw > 0xFFFFFFFFFFFFFFFF:
                break
            return (raw >> 1) ^ -(raw & 1), position
    raise ProtocolError("a varlong does not fit into 64 bits")
