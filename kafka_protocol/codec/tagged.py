"""The tagged section that ends every struct of a flexible version (KIP-482).

A section is a count followed by (tag, size, bytes). A reader skips the tags it does not know and never fails
because of one, so that a newer peer can send fields that we do not know. Unknown tags are not kept, since no
message with unknown fields is ever forwarded.
"""

from __future__ import annotations

from pykraft.kafka_protocol.primitives import Buffer, ProtocolError, read_uvarint, truncated, write_uvarint

_MIN_TAGGED_FIELD_BYTES = 2

MAX_TAGGED_FIELDS = 100
"""In one section. Kafka's messages have three at most; every field takes as long to skip as to read, and a
request of 2 MB would have room for a million.
"""


def read_tag_count(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """How many tagged fields follow, checked against the bytes left: (count, next position)."""
    count, position = read_uvarint(buffer, position)
    if count > (end - position) // _MIN_TAGGED_FIELD_BYTES:
        raise truncated(f"{count} tagged fields")
    if count > MAX_TAGGED_FIELDS:
        raise ProtocolError(f"{count} tagged fields in one section")
    return count, position


def read_tag(buffer: Buffer, position: int, end: int) -> tuple[int, int, int]:
    """One tagged field's (tag, start of its bytes, end of its bytes)."""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if size > end - position:
        raise truncated(f"tagged field {tag} of {size} bytes")
    return tag, position, position + size


def skip_tagged_fields(buffer: Buffer, position: int, end: int) -> int:
    """The position after a section of which no tag is of interest."""
    count, position = read_tag_count(buffer, position, end)
    for _ in range(count):
        _, _, position = read_tag(buffer, position, end)
    return position


def check_tag_size(tag: int, position: int, stop: int) -> None:
    """A tagged field must fill exactly the size that it announced."""
    if position != stop:
        raise ProtocolError(f"tagged field {tag} does not have the size it announces")


def write_tagged_field(out: bytearray, tag: int, value: bytes | bytearray) -> None:
    """Append one tagged field. The caller writes them in ascending order of tag, after their count."""
    write_uvarint(out, tag)
    write_uvarint(out, len(value))
    out += value
