"""Batches that hold values only: the same bytes and values as with the record codec, for any values."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.record_codec import RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.records import HEADER_BYTES, LOG_OVERHEAD_BYTES, crc_is_valid, read_header
from pykraft.kafka_protocol.value_batches import decode_values, encode_values
from tests.seeds import seeds

SIZES = (0, 1, 57, 58, 59, 60, 63, 64, 65, 8180, 8186, 8191, 8192, 20_000)


def _plain(values: Sequence[bytes], timestamp_ms: int = 1_700_000_000_000) -> bytes:
    inputs = [RecordInput(None, value, (), timestamp_ms) for value in values]
    return encode_batch(inputs, base_offset=77, leader_epoch=5)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 8191, 8192, 8200])
@pytest.mark.parametrize("size", [0, 3, 60, 100])
def test_many_values_are_encoded_and_decoded_as_by_the_record_codec(count: int, size: int) -> None:
    values = [bytes([number % 251]) * size for number in range(count)]
    batch = encode_values(values, base_offset=77, leader_epoch=5, timestamp_ms=1_700_000_000_000)
    assert batch == _plain(values)
    header = read_header(batch)
    assert crc_is_valid(batch, 0, header) and decode_values(batch, header) == tuple(values)


@pytest.mark.parametrize("size", SIZES)
def test_values_whose_lengths_take_any_number_of_bytes_are_the_same(size: int) -> None:
    values = [b"a", b"x" * size, b""]
    batch = encode_values(values, base_offset=77, leader_epoch=5, timestamp_ms=1_700_000_000_000)
    assert batch == _plain(values)
    assert decode_values(batch, read_header(batch)) == tuple(values)


@pytest.mark.parametrize(
    "inputs",
    [
        [RecordInput(b"key", b"value", (), 5)],
        [RecordInput(None, None, (), 5)],
        [RecordInput(None, b"value", [("name", b"x")], 5)],
        [RecordInput(None, b"a", (), 5), RecordInput(None, b"b", (), 9)],
    ],
)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_batches_of_other_forms_are_read_as_well(inputs: list[RecordInput], compression: Compression) -> None:
    batch = encode_batch(inputs, compression=compression)
    expected = tuple(record.value or b"" for record in decode_batch(batch))
    assert decode_values(batch, read_header(batch)) == expected


def test_negative_number_of_values_is_refused() -> None:
    batch = encode_values([b"a"], base_offset=0, leader_epoch=1, timestamp_ms=5)
    for count in (-1, -(2**31)):
        header = replace(
            read_header(batch), record_count=count, batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES
        )
        with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
            decode_values(batch, header)


@pytest.mark.parametrize("seed", seeds(300, checked=80))
def test_damaged_batches_are_refused_as_by_the_record_codec(seed: int) -> None:
    rng = random.Random(seed)
    values = [rng.randbytes(rng.choice((0, 1, 5, 70, 200))) for _ in range(rng.randrange(1, 90))]
    data = bytearray(encode_values(values, base_offset=0, leader_epoch=1, timestamp_ms=5))
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(61, len(data))] = rng.randrange(256)
    batch = bytes(data[: rng.choice((len(data), len(data), rng.randrange(61, len(data) + 1)))])
    header = read_header(batch)
    try:
        expected = tuple(record.value or b"" for record in decode_batch(batch, header))
    except KafkaError as error:
        with pytest.raises(KafkaError) as caught:
            decode_values(batch, header)
        assert caught.value.code is error.code
    else:
        assert decode_values(batch, header) == expected
