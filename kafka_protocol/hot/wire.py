"""Shared by the hand-written codecs: layouts taken from the message tables, strings, counts, tags.

A layout is a run of fixed fields as a message table has them at a version, so that a hand-written codec names
fields and never counts bytes. Everything works on a position in a whole frame; lengths are checked before
slices, counts before lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple

from pykraft.kafka_protocol.codec.field_types import FIXED_FORMATS
from pykraft.kafka_protocol.codec.plan_source import fields_at, run_format, split_runs
from pykraft.kafka_protocol.codec.tagged import skip_tagged_fields, write_tagged_field
from pykraft.kafka_protocol.primitives import (
    MAX_STRING_BYTES,
    ProtocolError,
    read_uvarint,
    write_uvarint,
)

INT16 = Struct(">h")
INT32 = Struct(">i")
INT16_BYTES, INT32_BYTES, UUID_BYTES = INT16.size, INT32.size, 16

# Bound to module names: CPython 3.11 looks up a method of an imported object slowly, a function fast.
pack_int16 = INT16.pack
pack_int32 = INT32.pack
pack_int32_into = INT32.pack_into
unpack_int16 = INT16.unpack_from
unpack_int32 = INT32.unpack_from

_NULL_TEXT = pack_int16(-1)
_ENDPOINTS_TAG = 0


def layout(table: Any, first: str, version: int) -> Struct:
    """The fixed fields of ``table`` from ``first`` on, up to the next that has a length of its own."""
    for run in split_runs(fields_at(table, version)[0]):
        if run[0].name == first and run[0].kind in FIXED_FORMATS:
            return Struct(run_format(run))
    raise AssertionError(f"no run of {table.__name__} v{version} begins with {first}")


def since(table: Any, name: str) -> int:
    """The first version in which ``table`` has a field."""
    (spec,) = (spec for spec in table.FIELDS if spec.name == name)
    lowest: int = spec.versions.lowest
    return lowest


class TaggedStruct:
    """A tagged field that holds a struct of fixed fields: ``layout`` is that of the struct."""

    __slots__ = ("_head", "layout", "tag")

    def __init__(self, holder: Any, name: str, first: str) -> None:
        """The field ``name`` of ``holder``; its struct begins with the field ``first``."""
        (spec,) = (spec for spec in holder.FIELDS if spec.name == name)
        self.tag: int = spec.tag
        self.layout = layout(spec.element, first, spec.versions.lowest)
        self._head = bytes((self.tag, self.layout.size + 1))

    def encode(self, *values: int) -> bytes:
        """Tag, size, fields, and an end without further tags."""
        return self._head + self.layout.pack(*values) + b"\0"


def read_text(body: bytes | memoryview, position: int) -> tuple[str, int]:
    """A string of a version that is not flexible, and the position behind it."""
    (length,) = unpack_int16(body, position)
    start = position + INT16_BYTES
    stop = start + length
    if stop < start or stop > len(body):
        raise _text_too_long()
    return str(body[start:stop], "utf-8"), stop


def read_compact_text(body: bytes | memoryview, position: int) -> tuple[str, int]:
    """A string of a flexible version, and the position behind it."""
    length, start = read_uvarint(body, position)
    stop = start + length - 1
    if stop < start or stop > len(body) or length > MAX_STRING_BYTES + 1:
        raise _text_too_long()
    return str(body[start:stop], "utf-8"), stop


def read_nullable_compact_text(body: bytes | memoryview, position: int) -> tuple[str | None, int]:
    """As :func:`read_compact_text`, or None: a length of zero, in however many bytes."""
    if not body[position]:
        return None, position + 1
    length, start = read_uvarint(body, position)
    return read_compact_text(body, position) if length else (None, start)


def _text_too_long() -> ProtocolError:
    return ProtocolError("a string is too long, or reaches past the end of the request")


def skip_tags(body: bytes | memoryview, position: int, end: int) -> int:
    """The position behind a tagged section of no interest."""
    return position + 1 if body[position] == 0 else skip_tagged_fields(body, position, end)


def check_count(count: int, left_bytes: int, min_bytes: int) -> None:
    """Raise :class:`ProtocolError` for a count that the bytes left cannot hold."""
    if count < 0 or count * min_bytes > left_bytes:
        raise ProtocolError(f"an array of {count} elements in {left_bytes} bytes")


def write_count(out: bytearray, count: int, flexible: bool) -> None:
    """The length of an array that is not null."""
    if flexible:
        write_uvarint(out, count + 1)
    else:
        out += pack_int32(count)


def write_text(out: bytearray, text: str | None) -> None:
    """A nullable string of a version that is not flexible."""
    if text is None:
        out += _NULL_TEXT
        return
    raw = text.encode()
    out += pack_int16(len(raw))
    out += raw


def write_compact_text(out: bytearray, text: str | None) -> None:
    """A nullable string of a flexible version."""
    if text is None:
        out.append(0)
        return
    raw = text.encode()
    write_uvarint(out, len(raw) + 1)
    out += raw


class NodeEndpoint(NamedTuple):
    """The address of a hinted leader."""

    node_id: int
    host: str
    port: int
    rack: str | None


def write_node_endpoints(out: bytearray, endpoints: Sequence[NodeEndpoint]) -> None:
    """A tagged section with one field: the endpoints of hinted leaders (KIP-951)."""
    field = bytearray()
    write_uvarint(field, len(endpoints) + 1)
    for node in endpoints:
        field += pack_int32(node.node_id)
        write_compact_text(field, node.host)
        field += pack_int32(node.port)
        write_compact_text(field, node.rack)
        field.append(0)
    out.append(1)
    write_tagged_field(out, _ENDPOINTS_TAG, field)
