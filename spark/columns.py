"""The columns of the data source: those of Spark's Kafka source, as Spark types and as Arrow types.

Spark compares the Arrow schema it gets with the one it derives from its own types, and requires that they are
equal; a test pins that the two tables here agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"

_SPARK_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}


def column_names(include_headers: bool) -> tuple[str, ...]:
    return (*COLUMNS, HEADERS) if include_headers else COLUMNS


def spark_schema(columns: Sequence[str]) -> str:
    """The schema as Spark's DDL."""
    return ", ".join(f"{name} {_SPARK_TYPES[name]}" for name in columns)


def select_columns(asked: Sequence[tuple[str, str]], include_headers: bool) -> tuple[str, ...]:
    """The columns of a user's own schema: (name, simple Spark type) pairs, any of ours in any order.

    :class:`ValueError` for a name or type that is not ours. A schema with fewer columns is the way to prune
    them, because Spark does not tell a Python source which columns a query uses.
    """
    allowed = column_names(include_headers)
    for name, kind in asked:
        if name not in allowed:
            hint = " (set 'includeHeaders' to 'true')" if name == HEADERS else ""
            raise ValueError(
                f"the data source has no column {name!r}{hint}; its columns are {', '.join(allowed)}"
            )
        if kind != _SPARK_TYPES[name]:
            raise ValueError(f"column {name!r} is of type {_SPARK_TYPES[name]}, not {kind}")
    return tuple(name for name, _ in asked)


@cache
def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """The schema as Arrow."""
    import pyarrow as pa

    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        HEADERS: pa.list_(
            pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
        ),
    }
    return pa.schema([pa.field(name, types[name]) for name in columns])
