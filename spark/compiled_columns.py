"""The columns of records, by the compiled loop where it is installed.

Wheels have it, and a source installation with a C compiler. Without it ``numpy_columns`` does the same, in
three times the processor time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from pykraft.spark.columns import HEADERS, arrow_schema
from pykraft.spark.numpy_columns import read_with_numpy
from pykraft.spark.record_columns import MalformedRecordsError, RecordColumns, Span, Wanted

try:
    from pykraft.spark import _record_columns
except ImportError:  # no wheel for this platform, and no compiler
    IS_COMPILED = False
else:
    IS_COMPILED = True

if TYPE_CHECKING:
    from pykraft.spark._record_columns import Headers, Strings


def read_columns(spans: Sequence[Span], wanted: Wanted) -> RecordColumns:
    """The columns, in the fastest way there is. :class:`MalformedRecordsError`."""
    return read_compiled(spans, wanted) if IS_COMPILED else read_with_numpy(spans, wanted)


def read_compiled(spans: Sequence[Span], wanted: Wanted) -> RecordColumns:
    """As :func:`~pykraft.spark.numpy_columns.read_with_numpy`."""
    given = [
        (
            data,
            start,
            end,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp,
            header.is_log_append_time,
        )
        for header, data, start, end in spans
    ]
    try:
        rows, offsets, timestamps_us, types, keys, values, headers = _record_columns.columns_of(
            given, *wanted
        )
    except ValueError as error:
        raise MalformedRecordsError(*error.args) from None
    return RecordColumns(
        _numbers("offset", rows, offsets),
        _numbers("timestamp", rows, timestamps_us),
        _numbers("timestampType", rows, types),
        _strings(keys) if wanted.key else None,
        _strings(values) if wanted.value else None,
        _headers(rows, headers) if wanted.headers else None,
    )


def _numbers(column: str, rows: int, data: bytes) -> pa.Array:
    return pa.Array.from_buffers(arrow_schema((column,)).field(0).type, rows, [None, pa.py_buffer(data)])


def _strings(strings: Strings) -> pa.Array:
    count, valid, bounds, data = strings
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _headers(rows: int, headers: Headers) -> pa.Array:
    present, bounds, keys, values = headers
    kind = arrow_schema((HEADERS,)).field(0).type
    structs = pa.StructArray.from_arrays(
        [_texts(_strings(keys)), _strings(values)], fields=list(kind.value_type)
    )
    return pa.Array.from_buffers(
        kind, rows, [pa.py_buffer(present), pa.py_buffer(bounds)], children=[structs]
    )


def _texts(keys: pa.Array) -> pa.Array:
    """Brokers accept any bytes as the key of a header."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.as_py().decode(errors="replace") for key in keys], pa.string())
