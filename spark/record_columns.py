"""From batches to rows: the columns that differ from record to record.

Two modules read them, with the same results: ``compiled_columns`` in C, where it is installed, and
``numpy_columns``.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from pykraft.kafka_protocol.primitives import Buffer
from pykraft.kafka_protocol.records import BatchHeader


class Span(NamedTuple):
    """The records of one batch, uncompressed: ``data[start:end]``."""

    header: BatchHeader
    data: Buffer
    start: int
    end: int


class Wanted(NamedTuple):
    """Offsets ``start`` up to but not including ``end``, and which of the costly columns."""

    start: int
    end: int
    key: bool
    value: bool
    headers: bool


class RecordColumns(NamedTuple):
    """The columns of all wanted records, in order. A column that is not wanted is None.

    ``timestamps``: microseconds, UTC. ``headers``: null, not empty, for a record without any, as in Spark's
    own source.
    """

    offsets: pa.Array
    timestamps: pa.Array
    timestamp_types: pa.Array
    key: pa.Array | None
    value: pa.Array | None
    headers: pa.Array | None


class MalformedRecordsError(Exception):
    """The records of span number ``span`` are not as they were written."""

    def __init__(self, span: int, what: str) -> None:
        super().__init__(what)
        self.span = span
        self.what = what
