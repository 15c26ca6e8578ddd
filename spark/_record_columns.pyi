"""See ``_record_columns.c``."""

from pykraft.kafka_protocol.primitives import Buffer

GivenSpan = tuple[Buffer, int, int, int, int, int, int, bool]
"""Data, start and end of the records in it, their count, base offset, base and maximum timestamp, whether the
broker stamped them."""

Strings = tuple[int, bytes | None, bytes, bytes]
"""Their number, validity bits (None: none is null), bounds, data."""

Headers = tuple[bytes, bytes, Strings, Strings]
"""By row: whether it has any, bounds; of all: keys, values."""

def columns_of(
    spans: list[GivenSpan], start: int, end: int, wants_key: bool, wants_value: bool, wants_headers: bool, /
) -> tuple[int, bytes, bytes, bytes, Strings, Strings, Headers]: ...
