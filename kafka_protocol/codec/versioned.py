"""Messages that are stored rather than sent: they start with their version, two bytes, signed.

The records of coordinators, the control records of logs, and the messages between consumers have this form.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeVar

from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.primitives import Buffer, truncated

_VERSION = Struct(">h")
VERSION_BYTES = _VERSION.size

M = TypeVar("M", bound=Message)


def encode_versioned(table: type[Message], value: object, version: int, stated: int | None = None) -> bytes:
    """The version, then the fields of ``table``, read by name from ``value``, which may be of any class.

    ``stated`` is the number to write in place of the version, where the first number is a type of record.
    """
    out = bytearray(_VERSION.pack(version if stated is None else stated))
    table.encode_fields(value, version, out)
    return bytes(out)


def read_version(data: Buffer) -> int:
    """The number that the data start with."""
    if len(data) < VERSION_BYTES:
        raise truncated("a version")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def decode_versioned(table: type[M], data: Buffer) -> M:
    """The message, in the version that it states. Bytes after it are ignored.

    :class:`~pykraft.kafka_protocol.primitives.ProtocolError` if it is malformed, or the version not known.
    """
    return table.decode_from(data, VERSION_BYTES, read_version(data))[0]
