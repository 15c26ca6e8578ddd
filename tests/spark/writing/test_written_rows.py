"""What may be written, and how: options, columns and rows."""

import pyarrow as pa
import pytest

from pykraft.kafka_protocol.compression import Compression
from pykraft.spark.option_values import OptionError
from pykraft.spark.writing.write_options import WriteOptions, parse_write_options
from pykraft.spark.writing.written_rows import WriteError, WrittenRow, check_columns, rows_of


def parse(**changes: str) -> WriteOptions:
    changed = {name.replace("__", "."): value for name, value in changes.items()}
    return parse_write_options({"kafka.bootstrap.servers": "a:9092"} | changed)


def test_defaults_are_safe_and_made_for_bulk() -> None:
    options = parse()
    assert (options.topic, options.is_exactly_once, options.job_id) == (None, False, None)
    assert options.producer.acks == -1 and options.producer.enable_idempotence
    assert options.producer.batch_size_bytes == 256 * 1024


def test_settings_of_kafkas_producer_are_honoured() -> None:
    producer = parse(kafka__acks="1", kafka__compression__type="zstd", kafka__linger__ms="0").producer
    assert (producer.acks, producer.enable_idempotence) == (1, False)
    assert (producer.compression, producer.linger_ms) == (Compression.ZSTD, 0)
    assert parse(kafka__retries="3", checkpointLocation="/x", topic="t").topic == "t"


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("'deliveryGuarantee' is 'at_least_once' or 'exactly_once'", {"deliveryGuarantee": "once"}),
        ("needs 'all'", {"deliveryGuarantee": "exactly_once", "kafka.acks": "1"}),
        ("'kafka.compression.type': 'lzma' is none of", {"kafka.compression.type": "lzma"}),
        ("'startingoffsets' applies to reads only", {"startingOffsets": "latest"}),
        ("did you mean 'topic'", {"topics": "t"}),
        ("'jobId' may have letters", {"jobId": "a b"}),
        ("'jobId' may have letters", {"jobId": "a/b"}),
        ("'topic' is empty", {"topic": " "}),
        ("values are always bytes", {"kafka.value.serializer": "x"}),
    ],
)
def test_what_is_wrong_is_refused(message: str, changes: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=message):
        parse(**changes)


@pytest.mark.parametrize(
    ("message", "columns", "topic"),
    [
        ("no column 'value'", [("key", "string")], "t"),
        ("no column 'topic': name the topic", [("value", "string")], None),
        ("'value' is of type int, not binary or string", [("value", "int")], "t"),
        ("'partition' is of type bigint, not int", [("value", "string"), ("partition", "bigint")], "t"),
    ],
)
def test_frames_that_cannot_be_written_are_refused(
    message: str, columns: list[tuple[str, str]], topic: str | None
) -> None:
    with pytest.raises(WriteError, match=message):
        check_columns(columns, topic)


def test_rows_have_the_values_of_their_columns() -> None:
    headers = pa.array(
        [[{"key": "h", "value": b"1"}], None], pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    )
    batch = pa.record_batch(
        {
            "value": pa.array(["a", None]),
            "other": pa.array([1, 2]),
            "topic": pa.array(["x", "y"]),
            "partition": pa.array([3, None], pa.int32()),
            "headers": headers,
        }
    )
    check_columns([("value", "string"), ("other", "bigint"), ("topic", "string"), ("partition", "int")], None)
    assert list(rows_of(batch, None)) == [
        WrittenRow("x", 3, None, b"a", [("h", b"1")]),
        WrittenRow("y", None, None, None, ()),
    ]
    assert [row.topic for row in rows_of(batch, "t")] == ["t", "t"]


def test_row_without_a_topic_is_refused() -> None:
    batch = pa.record_batch({"value": pa.array(["a"]), "topic": pa.array([None], pa.string())})
    with pytest.raises(WriteError, match="names no topic"):
        list(rows_of(batch, None))
