"""Metadata records as JSON, for people and tools: ``{"type", "version", "data"}`` with Kafka's names.

Types are spelt as Kafka's metadata tools spell them (``PARTITION_CHANGE_RECORD``), fields in camelCase, ids
as URL-safe base64. A field that a change record leaves as it was is left out. JSON cannot be converted back
to a record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgpack

from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.metadata_log.codec import decode_record


def record_to_json(data: bytes) -> dict[str, Any]:
    """An encoded record, with the version it was written in. RecordFormatError as :func:`decode_record`."""
    record = decode_record(data)
    version = msgpack.unpackb(data)[1]
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(record).__name__)
    return {"type": words.upper(), "version": version, "data": value_to_json(record)}


def value_to_json(value: Any) -> Any:
    """A record, an image or a part of one, in JSON's types; ``None`` fields of structures are left out."""
    if is_dataclass(value):
        found = {_camel_case(field.name): getattr(value, field.name) for field in fields(value)}
        return {name: value_to_json(item) for name, item in found.items() if item is not None}
    if isinstance(value, bytes):
        return uuid_to_str(Uuid(value)) if len(value) == 16 else value.hex()
    if isinstance(value, Mapping):
        return {str(key): value_to_json(value[key]) for key in sorted(value)}
    if isinstance(value, frozenset):
        value = sorted(value)
    if isinstance(value, tuple | list):
        return [value_to_json(item) for item in value]
    return value


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
