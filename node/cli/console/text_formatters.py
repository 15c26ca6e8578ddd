"""Records as text and as JSON: the formatters that have properties. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import click

from pykraft.node.cli.console.consumed_record import ConsumedRecord, Formatter, UnprintableError
from pykraft.node.cli.console.deserializers import Deserializer, find_deserializer, printed, text_or_base64
from pykraft.node.cli.shared.property_options import GivenProperties, ToolProperties

_PARTS: Final = ("key", "value", "headers")
_PRINTED: Final = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
PROPERTIES: Final = (
    *(f"print.{part}" for part in _PRINTED),
    *("key.separator", "line.separator", "headers.separator", "null.literal"),
    *(f"{part}.deserializer" for part in _PARTS),
)


def default_formatter(given: GivenProperties) -> Formatter:
    """Parts with separators between, in the order of Kafka's formatter."""
    deserializers, printing = _deserializers(given, PROPERTIES)
    separator, end = printing.separator("key.separator", "\t"), printing.separator("line.separator", "\n")
    between_headers = printing.separator("headers.separator", ",")
    null = printing.separator("null.literal", "null")

    def shown(part: str, data: bytes | None) -> bytes:
        if data is None:
            return null
        deserializer = deserializers.get(part)
        return data if deserializer is None else printed(deserializer(data))

    def headers(record: ConsumedRecord) -> bytes:
        found = [name.encode() + b":" + shown("headers", data) for name, data in record.headers]
        return between_headers.join(found) if found else b"NO_HEADERS"

    writers: dict[str, Callable[[ConsumedRecord], bytes]] = {
        "timestamp": _timestamp,
        "partition": lambda record: f"Partition:{record.partition}".encode(),
        "offset": lambda record: f"Offset:{record.offset}".encode(),
        "delivery": lambda record: b"Delivery:NOT_PRESENT",  # only share groups count deliveries
        "epoch": _epoch,
        "headers": headers,
        "key": lambda record: shown("key", record.key),
        "value": lambda record: shown("value", record.value),
    }
    wanted = [writers[part] for part in _PRINTED if printing.flag(f"print.{part}", part == "value")]

    def write(record: ConsumedRecord) -> bytes:
        try:
            return separator.join([writer(record) for writer in wanted]) + end if wanted else b""
        except ValueError as error:
            raise _unprintable(record, error) from None

    return write


def json_formatter(given: GivenProperties) -> Formatter:
    """One object a line. Bytes are text if they are UTF-8, else ``{"base64": …}``, unless a deserializer is given."""
    deserializers, _ = _deserializers(given, ())

    def shown(part: str, data: bytes | None) -> Any:
        return None if data is None else deserializers.get(part, text_or_base64)(data)

    def write(record: ConsumedRecord) -> bytes:
        try:
            fields = {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "leaderEpoch": record.leader_epoch,
                "timestampType": record.timestamp_type,
                "timestamp": None if record.timestamp_type is None else record.timestamp_ms,
                "headers": [{"key": name, "value": shown("headers", data)} for name, data in record.headers],
                "key": shown("key", record.key),
                "value": shown("value", record.value),
            }
        except ValueError as error:
            raise _unprintable(record, error) from None
        return json.dumps(fields, default=text_or_base64).encode() + b"\n"

    return write


def _deserializers(
    given: GivenProperties, known: tuple[str, ...]
) -> tuple[dict[str, Deserializer], ToolProperties]:
    """Deserializers by part, and the other properties."""
    rest, found = dict(given.values), {}
    for part in _PARTS:
        key = f"{part}.deserializer"
        own = {
            name.removeprefix(f"{key}."): rest.pop(name)
            for name in given.values
            if name.startswith(f"{key}.")
        }
        class_given = rest.pop(key, "")
        if not class_given:
            continue
        try:
            found[part] = find_deserializer(class_given, own)
        except ValueError as error:
            raise click.UsageError(f"{given.option} {key}: {error}") from None
    return found, ToolProperties(GivenProperties(rest, given.option), known)


def _timestamp(record: ConsumedRecord) -> bytes:
    if record.timestamp_type is None:
        return b"NO_TIMESTAMP"
    return f"{record.timestamp_type}:{record.timestamp_ms}".encode()


def _epoch(record: ConsumedRecord) -> bytes:
    return f"Epoch:{'NOT_PRESENT' if record.leader_epoch is None else record.leader_epoch}".encode()


def _unprintable(record: ConsumedRecord, error: ValueError) -> UnprintableError:
    return UnprintableError(
        f"the record at offset {record.offset} of {record.topic}-{record.partition} cannot be printed: {error}"
    )
