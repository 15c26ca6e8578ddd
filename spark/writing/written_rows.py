"""The rows that are written: which columns a frame may have, and their values as the producer takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES: Final = ("binary", "string")
_TYPES: Final = {
    "key": _BYTES,
    "value": _BYTES,
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
}


class WriteError(ValueError):
    """A frame, or a row of it, cannot be written."""


class WrittenRow(NamedTuple):
    """``partition`` None: by the key, or any."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def check_columns(columns: Sequence[tuple[str, str]], topic: str | None) -> None:
    """(name, simple Spark type) of the columns of a frame. :class:`WriteError` for one that is missing or of
    another type; other columns are ignored, as by Spark's Kafka sink."""
    found = dict(columns)
    if "value" not in found:
        raise WriteError("the frame has no column 'value', which is required")
    if "topic" not in found and topic is None:
        raise WriteError("the frame has no column 'topic': name the topic with option 'topic'")
    for name, kind in columns:
        allowed = _TYPES.get(name, (kind,))
        if kind not in allowed:
            raise WriteError(f"column {name!r} is of type {kind}, not {' or '.join(allowed)}")


def rows_of(batch: pa.RecordBatch, topic: str | None) -> Iterator[WrittenRow]:
    """``topic``: of all rows, whatever their column says, as in Spark's Kafka sink."""
    columns = {name: _values(batch, name) for name in _TYPES if name in batch.schema.names}
    nothing = [None] * batch.num_rows
    topics = nothing if topic is not None else columns["topic"]
    for named, partition, key, value, headers in zip(
        topics,
        columns.get("partition", nothing),
        columns.get("key", nothing),
        columns["value"],
        columns.get("headers", nothing),
        strict=True,
    ):
        to = topic if topic is not None else named
        if to is None:
            raise WriteError("a row names no topic: set a default one with option 'topic'")
        if partition is not None and partition < 0:
            raise WriteError(f"a row names partition {partition}")
        pairs = [(one["key"], one["value"]) for one in headers] if headers else ()
        yield WrittenRow(to, partition, key, value, pairs)


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    import pyarrow as pa

    column = batch.column(batch.schema.get_field_index(name))
    values: list[Any] = (column.cast(pa.binary()) if name in ("key", "value") else column).to_pylist()
    return values
