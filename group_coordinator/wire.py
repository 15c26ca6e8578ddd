"""Reading and writing the primitive fields of coordinator records, plain and flexible.

Kafka's coordinator records are not requests: no header, an int16 version first, then fields in the same
notation as the protocol's. Lengths are checked against the bytes left before anything is allocated.
"""

from __future__ import annotations

import struct

from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.primitives import ProtocolError, read_uvarint, truncated, write_uvarint


class Writer:
    """Appends fields; ``flexible`` selects compact strings, arrays and tagged fields."""

    __slots__ = ("flexible", "out")

    def __init__(self, version: int, *, flexible: bool = False) -> None:
        self.out = bytearray(struct.pack(">h", version))
        self.flexible = flexible

    def int8(self, value: int) -> None:
        self.out += struct.pack(">b", value)

    def int32(self, value: int) -> None:
        self.out += struct.pack(">i", value)

    def int64(self, value: int) -> None:
        self.out += struct.pack(">q", value)

    def uuid(self, value: Uuid) -> None:
        self.out += value

    def string(self, value: str | None) -> None:
        raw = None if value is None else value.encode("utf-8")
        if self.flexible:
            write_uvarint(self.out, 0 if raw is None else len(raw) + 1)
        else:
            self.out += struct.pack(">h", -1 if raw is None else len(raw))
        if raw is not None:
            self.out += raw

    def byte_string(self, value: bytes) -> None:
        if self.flexible:
            write_uvarint(self.out, len(value) + 1)
        else:
            self.int32(len(value))
        self.out += value

    def count(self, value: int) -> None:
        if self.flexible:
            write_uvarint(self.out, value + 1)
        else:
            self.int32(value)

    def tags(self, fields: tuple[tuple[int, bytes], ...] = ()) -> None:
        """Close a flexible struct with ``fields`` (tag, encoded value) in ascending order of tag."""
        if not self.flexible:
            return
        write_uvarint(self.out, len(fields))
        for tag, raw in fields:
            write_uvarint(self.out, tag)
            write_uvarint(self.out, len(raw))
            self.out += raw

    def finish(self) -> bytes:
        return bytes(self.out)


class Reader:
    """Takes fields off the front; :class:`ProtocolError` where the bytes end too soon."""

    __slots__ = ("buffer", "flexible", "position", "version")

    def __init__(self, buffer: bytes) -> None:
        self.buffer = buffer
        self.position = 0
        self.flexible = False
        self.version = self._unpack(">h", 2)

    def _unpack(self, layout: str, size: int) -> int:
        raw = self._take(size, "a number")
        value: int = struct.unpack(layout, raw)[0]
        return value

    def _take(self, size: int, what: str) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self.buffer):
            raise truncated(what)
        raw = self.buffer[self.position : end]
        self.position = end
        return raw

    def _uvarint(self) -> int:
        try:
            value, self.position = read_uvarint(self.buffer, self.position)
        except IndexError:
            raise truncated("a varint") from None
        return value

    def int8(self) -> int:
        return self._unpack(">b", 1)

    def int32(self) -> int:
        return self._unpack(">i", 4)

    def int64(self) -> int:
        return self._unpack(">q", 8)

    def uuid(self) -> Uuid:
        return Uuid(self._take(16, "an id"))

    def nullable_string(self) -> str | None:
        size = self._uvarint() - 1 if self.flexible else self._unpack(">h", 2)
        if size == -1:
            return None
        try:
            return self._take(size, "a string").decode("utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("a string is not UTF-8") from None

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise ProtocolError("a string is null where it may not be")
        return value

    def byte_string(self) -> bytes:
        return self._take(self._uvarint() - 1 if self.flexible else self.int32(), "bytes")

    def count(self) -> int:
        value = self._uvarint() - 1 if self.flexible else self.int32()
        if value > len(self.buffer) - self.position:
            raise truncated("an array")
        return max(value, 0)

    def tags(self) -> dict[int, bytes]:
        """The tagged fields that close a flexible struct; unknown ones are simply there to be ignored."""
        if not self.flexible:
            return {}
        fields: dict[int, bytes] = {}
        for _ in range(self._uvarint()):
            tag = self._uvarint()
            fields[tag] = self._take(self._uvarint(), "a tagged field")
        return fields
