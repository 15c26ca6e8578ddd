"""Rows encoded by column are the records that the producer would have made of each row."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykraft.kafka_client.producer.partitioner import murmur2, partition_of_key
from pykraft.kafka_protocol.record_codec import Record, decode_batch, seal_batch
from pykraft.kafka_protocol.records import HEADER_BYTES
from pykraft.spark.writing.written_rows import WriteError, rows_of

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install pykraft[spark]")

from pykraft.spark.writing.encoded_rows import Encoded, blocks_of, encode_rows, has_headers, murmur2_of  # noqa: E402

Records = defaultdict[tuple[str, int | None], list[tuple[bytes | None, bytes | None]]]

TIME_MS = 1_700_000_000_000
PARTITIONS = {"a": 3, "b": 1}


def block(rows: list[tuple[Any, ...]]) -> Any:
    """Of rows of topic, partition, key and value."""
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[], [], [], []]
    types = {"topic": pa.string(), "partition": pa.int32(), "key": pa.string(), "value": pa.binary()}
    return pa.record_batch(
        {
            name: pa.array(list(column), kind)
            for (name, kind), column in zip(types.items(), columns, strict=True)
        }
    )


def records_in(one: Encoded) -> list[Record]:
    return decode_batch(seal_batch(one.records))


sizes = st.integers(0, 6) | st.sampled_from([62, 63, 64, 65, 8190, 8192])
keys = st.none() | st.text(max_size=9)
row = st.tuples(
    st.sampled_from(sorted(PARTITIONS)), st.none() | st.integers(0, 2), keys, st.none() | sizes.map(bytes)
)


@settings(deadline=None, max_examples=300)
@given(st.lists(row, max_size=60), st.sampled_from([100, 500, 20_000]))
def test_records_are_those_of_the_rows(rows: list[tuple[Any, ...]], max_bytes: int) -> None:
    rows = [(topic, None if topic == "b" else index, *rest) for topic, index, *rest in rows]
    expected: Records = defaultdict(list)
    for written in rows_of(block(rows), None):
        where = written.partition
        if where is None and written.key is not None:
            where = partition_of_key(written.key, PARTITIONS[written.topic])
        expected[written.topic, where].append((written.key, written.value))
    found: Records = defaultdict(list)
    for one in encode_rows(block(rows), None, PARTITIONS.__getitem__, max_bytes, TIME_MS):
        records = records_in(one)
        assert [record.offset for record in records] == list(range(one.records.record_count))
        assert {record.timestamp_ms for record in records} == {TIME_MS}
        assert len(one.records.body) <= max_bytes or one.records.record_count == 1
        found[one.topic, one.partition] += [(record.key, record.value) for record in records]
    assert found == expected


def test_batches_are_filled() -> None:
    rows = [("a", 0, None, bytes(100))] * 10_000
    found = list(encode_rows(block(rows), None, PARTITIONS.__getitem__, 50_000, TIME_MS))
    assert all(len(one.records.body) > 40_000 for one in found[:-1])
    assert sum(one.records.record_count for one in found) == 10_000
    assert HEADER_BYTES + len(found[0].records.body) < 50_100


@settings(deadline=None, max_examples=300)
@given(st.lists(st.binary(max_size=21), max_size=20), st.integers(0, 3))
def test_hashes_are_those_of_the_partitioner(keys: list[bytes], skipped: int) -> None:
    found = murmur2_of(pa.array(keys, pa.binary()).slice(skipped))
    assert found.tolist() == [murmur2(key) for key in keys[skipped:]]


def test_given_topic_goes_before_that_of_the_rows() -> None:
    (one,) = encode_rows(block([("a", None, "k", b"v")]), "b", PARTITIONS.__getitem__, 1000, TIME_MS)
    assert (one.topic, one.partition) == ("b", 0)


@pytest.mark.parametrize(
    ("bad", "message"), [((None, 0, "k", b"v"), "names no topic"), (("a", -2, "k", b"v"), "partition -2")]
)
def test_rows_that_cannot_be_written_are_refused(bad: tuple[Any, ...], message: str) -> None:
    with pytest.raises(WriteError, match=message):
        list(encode_rows(block([("a", 0, "k", b"v"), bad]), None, PARTITIONS.__getitem__, 1000, TIME_MS))
    with pytest.raises(WriteError, match=message):
        list(rows_of(block([bad]), None))


def test_small_batches_are_collected_and_none_is_lost() -> None:
    batches = [block([("a", 0, str(number), bytes(1 << 20))]) for number in range(10)]
    found = list(blocks_of(batches))
    assert 1 < len(found) < 10
    assert [key for one in found for key in one.column("key").to_pylist()] == [str(n) for n in range(10)]


def test_headers_are_left_to_the_other_path() -> None:
    kind = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    for headers, expected in (([None, []], False), ([None, [{"key": "h", "value": b"1"}]], True)):
        rows = pa.record_batch({"value": pa.array([b"1", b"2"]), "headers": pa.array(headers, kind)})
        assert has_headers(rows) is expected
    assert not has_headers(block([("a", 0, "k", b"v")]))
