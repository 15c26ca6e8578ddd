"""The fast decoders return, for any batches, exactly what the plain record codec returns."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykraft.kafka_protocol import records as record_batch
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.record_codec import RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.records import iter_headers
from pykraft.spark import decode
from pykraft.spark.columns import COLUMNS, HEADERS, arrow_schema, select_columns, spark_schema
from pykraft.spark.compiled_columns import IS_COMPILED, read_compiled
from pykraft.spark.decode import DecodeConfig, decode_batches
from pykraft.spark.numpy_columns import read_with_numpy
from pykraft.spark.record_columns import MalformedRecordsError, Span, Wanted

ALL = (*COLUMNS, HEADERS)
END = 1 << 62
READERS = (
    pytest.param(
        read_compiled,
        marks=pytest.mark.skipif(
            not IS_COMPILED, reason="NOT TESTED: the compiled columns are not installed (no C compiler)"
        ),
        id="compiled",
    ),
    pytest.param(read_with_numpy, id="numpy"),
)


@pytest.fixture(autouse=True, params=READERS, scope="module")
def reader(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test is about both ways to read columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "read_columns", request.param)
        yield


def decoded(
    data: bytes | bytearray,
    columns: tuple[str, ...] = ALL,
    start: int = 0,
    end: int = END,
    check_crcs: bool = True,
) -> list[dict[str, Any]]:
    config = DecodeConfig("topic", 4, start, end, columns, check_crcs)
    batches = list(decode_batches(memoryview(data), list(iter_headers(data)), config))
    for one in batches:
        assert one.schema.equals(arrow_schema(columns))
        one.validate(full=True)
    return [row for one in batches for row in one.to_pylist()]


def expected(data: bytes | bytearray, start: int = 0, end: int = END) -> list[dict[str, Any]]:
    """The plain decoder as rows of the data source."""
    rows = []
    for position, header in iter_headers(data):
        for record in decode_batch(data[position : position + header.size_bytes]):
            if start <= record.offset < end:
                rows.append(
                    {
                        "key": record.key,
                        "value": record.value,
                        "topic": "topic",
                        "partition": 4,
                        "offset": record.offset,
                        "timestamp": pa.scalar(
                            record.timestamp_ms * 1000, pa.timestamp("us", tz="UTC")
                        ).as_py(),
                        "timestampType": int(header.is_log_append_time),
                        "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
                    }
                )
    return rows


timestamps = st.integers(0, 4_000_000_000_000)
maybe_bytes = st.none() | st.binary(max_size=300)
header_lists = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=40)), max_size=3)
records = st.builds(RecordInput, maybe_bytes, maybe_bytes, header_lists, timestamps)
batches = st.tuples(
    st.lists(records, min_size=1, max_size=30),
    st.sampled_from(Compression),
    st.booleans(),
    st.integers(0, 100_000),
)


Parts: TypeAlias = list[tuple[list[RecordInput], Compression, bool, int]]


def build(parts: Parts) -> bytes:
    """Batches one after the other, with gaps in between as compaction leaves them; some stamped on append."""
    gaps = accumulate(gap for *_, gap in parts)
    lengths = accumulate((len(inputs) for inputs, *_ in parts), initial=0)
    data = bytearray()
    for (inputs, codec, stamped, _), gap, before in zip(parts, gaps, lengths, strict=False):
        raw = bytearray(encode_batch(inputs, base_offset=before + gap, compression=codec))
        if stamped:
            record_batch.set_log_append_time(raw, 0, 1_700_000_000_123)
        data += raw
    return bytes(data)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(batches, max_size=5))
def test_fast_decoder_equals_the_plain_one(parts: Parts) -> None:
    data = build(parts)
    assert decoded(data) == expected(data)


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(batches, min_size=1, max_size=4), st.integers(0, 120), st.integers(0, 120))
def test_only_offsets_inside_the_range_are_kept(parts: Parts, start: int, length: int) -> None:
    data = build([(inputs, codec, stamped, gap % 10) for inputs, codec, stamped, gap in parts])
    assert decoded(data, start=start, end=start + length) == expected(data, start, start + length)


@settings(deadline=None, max_examples=80)
@given(st.lists(batches, min_size=1, max_size=3), st.data())
def test_partial_tail_changes_nothing(parts: Parts, data: st.DataObject) -> None:
    whole = build(parts)
    tail = encode_batch([RecordInput(b"k", b"v" * 50)], base_offset=10**6)
    cut = data.draw(st.integers(0, len(tail) - 1))
    assert decoded(whole + tail[:cut]) == expected(whole)


@settings(deadline=None, max_examples=300)
@given(st.lists(records, min_size=1, max_size=6), st.data())
def test_corrupt_bytes_are_refused_or_decoded_alike(inputs: list[RecordInput], data: st.DataObject) -> None:
    """With the CRC check off, so that the damage reaches the decoder."""
    whole = bytearray(encode_batch(inputs))
    at = data.draw(st.integers(record_batch.HEADER_BYTES, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    try:
        plain = expected(bytes(whole))
    except (KafkaError, OverflowError, ValueError):
        plain = None
    try:
        fast = decoded(bytes(whole), check_crcs=False)
    except (KafkaError, OverflowError, ValueError, pa.ArrowInvalid):
        fast = None
    if plain is not None:
        assert fast == plain


@pytest.mark.skipif(not IS_COMPILED, reason="NOT TESTED: the compiled columns are not installed")
@settings(deadline=None, max_examples=1000)
@given(st.lists(records, min_size=1, max_size=4), st.data(), st.integers(0, 3), st.integers(0, 4))
def test_both_readers_refuse_the_same_bytes(
    inputs: list[RecordInput], data: st.DataObject, start: int, count: int
) -> None:
    whole = bytearray(encode_batch(inputs))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(record_batch.HEADER_BYTES, len(whole) - 1))
        whole[at] = data.draw(st.sampled_from((0, 1, 2, 127, 128, 129, 255)))
    ((_, header),) = iter_headers(memoryview(whole))
    spans = [Span(header, bytes(whole), record_batch.HEADER_BYTES, len(whole))] * 2
    wanted = Wanted(start, start + count, True, True, True)
    outcomes = []
    for read in (read_compiled, read_with_numpy):
        try:
            outcomes.append([pa.array(column).to_pylist() for column in read(spans, wanted)])
        except (MalformedRecordsError, OverflowError, ValueError) as error:
            outcomes.append([type(error)])
    assert outcomes[0] == outcomes[1]


def test_flipped_bit_is_found_by_the_crc() -> None:
    data = bytearray(encode_batch([RecordInput(b"k", b"v" * 20)], base_offset=40))
    data[-5] ^= 1
    with pytest.raises(
        KafkaError, match="topic-4: the batch at offset 40 is corrupt: its CRC does not match"
    ) as caught:
        decoded(bytes(data))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_old_record_format_is_refused() -> None:
    data = bytearray(encode_batch([RecordInput(b"k", b"v")]))
    data[16] = 1
    with pytest.raises(KafkaError, match="format 1 is not supported"):
        decoded(bytes(data))


@pytest.mark.parametrize("count", [1, 4], ids=["too few", "too many"])
def test_wrong_record_count_is_refused(count: int) -> None:
    data = bytearray(encode_batch([RecordInput(b"k", b"v")] * 3))
    data[57:61] = count.to_bytes(4, "big")
    record_batch.write_crc(data, 0, len(data))
    with pytest.raises(KafkaError, match="do not fill it"):
        decoded(bytes(data))


def test_compressed_random_bytes_are_refused() -> None:
    data = bytearray(encode_batch([RecordInput(b"k", b"v" * 100)], compression=Compression.ZSTD))
    data[61:70] = b"\0" * 9
    record_batch.write_crc(data, 0, len(data))
    with pytest.raises(KafkaError) as caught:
        decoded(bytes(data))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_batches_outside_the_range_are_not_even_checked() -> None:
    good = encode_batch([RecordInput(b"k", b"v")], base_offset=5)
    bad = bytearray(encode_batch([RecordInput(b"k", b"v")], base_offset=0))
    bad[-1] ^= 1
    assert [row["offset"] for row in decoded(bytes(bad) + good, start=5)] == [5]


def test_empty_input_gives_no_rows() -> None:
    assert decoded(b"") == []


def test_columns_are_in_the_requested_order() -> None:
    data = encode_batch([RecordInput(b"k", b"v")])
    assert decoded(data, columns=("offset", "value")) == [{"offset": 0, "value": b"v"}]


def test_arrow_schema_is_the_one_spark_derives() -> None:
    types = pytest.importorskip("pyspark.sql.pandas.types")
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    fields = {
        "key": BinaryType(),
        "value": BinaryType(),
        "topic": StringType(),
        "partition": IntegerType(),
        "offset": LongType(),
        "timestamp": TimestampType(),
        "timestampType": IntegerType(),
        "headers": ArrayType(header),
    }
    schema = StructType([StructField(name, kind) for name, kind in fields.items()])
    assert types.to_arrow_schema(schema, timezone="UTC").equals(arrow_schema(ALL))
    assert spark_schema(ALL) == ", ".join(f"{name} {kind.simpleString()}" for name, kind in fields.items())


def test_users_schema_selects_columns() -> None:
    assert select_columns([("offset", "bigint"), ("value", "binary")], False) == ("offset", "value")
    with pytest.raises(ValueError, match="no column 'carrier'"):
        select_columns([("carrier", "string")], False)
    with pytest.raises(ValueError, match="set 'includeHeaders' to 'true'"):
        select_columns([("headers", "array<struct<key:string,value:binary>>")], False)
    with pytest.raises(ValueError, match="column 'value' is of type binary, not string"):
        select_columns([("value", "string")], False)
