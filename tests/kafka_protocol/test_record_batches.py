"""Record batches: compared with two other implementations, changed in place, and malformed."""

import datetime
import io
import random
import struct
import warnings
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from crc32c import crc32c
from kio.records.readers import read_batch as kio_read_batch
from kio.records.schema import NewRecordBatch
from kio.records.schema import Record as KioRecord
from kio.records.schema import RecordHeader as KioRecordHeader
from kio.records.writers import write_new_batch

from pykraft.kafka_protocol import records
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.record_codec import Record, RecordInput, decode_batch, encode_batch

with warnings.catch_warnings():  # kafka-python reads its schemas with a deprecated function
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder

NOW_MS = 1_700_000_000_000
INPUTS = [
    RecordInput(b"key", b"value", (("h", b"1"), ("\u00e9", None)), NOW_MS),
    RecordInput(None, b"v" * 300, (), NOW_MS + 100_000),
    RecordInput(b"k" * 70, None, (("empty", b""),), NOW_MS - 5),
    RecordInput(b"", b"", (), NOW_MS),
]


def expected(inputs: list[RecordInput], base_offset: int) -> list[Record]:
    return [
        Record(base_offset + index, item.timestamp_ms, item.key, item.value, tuple(item.headers))  # type: ignore[arg-type]
        for index, item in enumerate(inputs)
    ]


def read_all(batch: Any) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]


def random_inputs(rng: random.Random) -> list[RecordInput]:
    def maybe(size: int) -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.randint(0, size))

    return [
        RecordInput(
            maybe(20),
            maybe(200),
            tuple((f"h{i}", maybe(5)) for i in range(rng.randint(0, 3))),
            NOW_MS + rng.randint(-(10**6), 10**6),
        )
        for _ in range(rng.randint(1, 200))
    ]


@pytest.mark.parametrize("codec", Compression, ids=lambda codec: codec.name)
@pytest.mark.parametrize("seed", range(5))
def test_batch_round_trips(codec: Compression, seed: int) -> None:
    inputs = random_inputs(random.Random(seed))
    batch = encode_batch(
        inputs,
        base_offset=7,
        leader_epoch=3,
        producer_id=9,
        producer_epoch=2,
        base_sequence=4,
        compression=codec,
        is_transactional=True,
    )
    header = records.read_header(batch)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.partition_leader_epoch, header.magic) == (7, 3, 2)
    assert (header.last_offset, header.next_offset) == (6 + len(inputs), 7 + len(inputs))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 4)
    assert header.last_sequence == 3 + len(inputs)
    assert header.compression is codec
    assert (header.is_transactional, header.is_control, header.is_log_append_time) == (True, False, False)
    assert header.max_timestamp == max(item.timestamp_ms for item in inputs)
    assert header.record_count == len(inputs)
    assert records.crc_is_valid(batch, 0, header)
    assert decode_batch(batch) == expected(inputs, 7)
    assert decode_batch(memoryview(bytearray(batch))) == expected(inputs, 7)


@pytest.mark.parametrize("codec", Compression, ids=lambda codec: codec.name)
def test_aiokafka_reads_our_batches(codec: Compression) -> None:
    batch = encode_batch(INPUTS, base_offset=100, compression=codec)
    theirs = AiokafkaBatch(batch)
    assert theirs.validate_crc()
    assert read_all(theirs) == expected(INPUTS, 100)


def test_kafka_python_reads_our_batches() -> None:
    theirs = KafkaPythonBatch(encode_batch(INPUTS, base_offset=100, producer_id=5, is_control=False))
    assert theirs.validate_crc()
    assert theirs.producer_id == 5
    assert read_all(theirs) == expected(INPUTS, 100)


@pytest.mark.parametrize("codec", [0, 1])
def test_we_read_batches_of_kafka_python(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=True,
        producer_id=1,
        producer_epoch=2,
        base_sequence=3,
        batch_size=1 << 20,
    )
    for offset, item in enumerate(INPUTS):
        builder.append(offset, item.timestamp_ms, item.key, item.value, list(item.headers))
    batch = bytes(builder.build())
    header = records.read_header(batch)
    assert records.crc_is_valid(batch, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 2, 3)
    assert header.is_transactional
    assert decode_batch(batch) == expected(INPUTS, 0)


def test_uncompressed_batches_equal_those_of_kio() -> None:
    inputs = [item._replace(timestamp_ms=NOW_MS + 1000 * index) for index, item in enumerate(INPUTS)]
    new_batch = NewRecordBatch(
        producer_id=11,  # type: ignore[arg-type]
        producer_epoch=1,  # type: ignore[arg-type]
        partition_leader_epoch=6,  # type: ignore[arg-type]
        base_sequence=0,  # type: ignore[arg-type]
        attributes=0,  # type: ignore[arg-type]
        records=tuple(
            KioRecord(
                attributes=0,  # type: ignore[arg-type]
                timestamp=datetime.datetime.fromtimestamp(item.timestamp_ms / 1000, datetime.UTC),  # type: ignore[arg-type]
                offset=50 + index,  # type: ignore[arg-type]
                key=item.key,  # type: ignore[arg-type]
                value=item.value,  # type: ignore[arg-type]
                headers=tuple(KioRecordHeader(key=k.encode(), value=v) for k, v in item.headers),  # type: ignore[arg-type]
            )
            for index, item in enumerate(inputs)
        ),
    )
    out = io.BytesIO()
    write_new_batch(out, new_batch)
    ours = encode_batch(
        inputs, base_offset=50, leader_epoch=6, producer_id=11, producer_epoch=1, base_sequence=0
    )
    assert ours == out.getvalue()
    theirs, size = kio_read_batch(ours, 0)
    assert size == len(ours)
    assert [record.value for record in theirs.records] == [item.value for item in inputs]


@pytest.mark.parametrize(
    ("data", "checksum"),
    [(b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)],
)
def test_checksum_is_castagnoli(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum
    header = bytearray(records.CRC_START)
    struct.pack_into(">i", header, 8, records.CRC_START + len(data) - records.LOG_OVERHEAD_BYTES)
    buffer = header + data
    records.write_crc(buffer, 0, len(buffer))
    assert struct.unpack_from(">I", buffer, records.CRC_OFFSET) == (checksum,)


def test_every_flipped_bit_after_the_crc_field_is_noticed() -> None:
    batch = bytearray(encode_batch(INPUTS))
    header = records.read_header(batch)
    for position in range(records.CRC_START, len(batch)):
        batch[position] ^= 1 << position % 8
        assert not records.crc_is_valid(batch, 0, header)
        batch[position] ^= 1 << position % 8
    assert records.crc_is_valid(batch, 0, header)


def test_offset_and_epoch_are_written_in_place_and_leave_the_crc_valid() -> None:
    buffer = bytearray(b"before" + encode_batch(INPUTS))
    records.assign_offset(memoryview(buffer), 6, 2**40, 12)
    header = records.read_header(buffer, 6)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 12)
    assert records.crc_is_valid(buffer, 6, header)
    assert [record.offset for record in decode_batch(bytes(buffer[6:]))] == list(range(2**40, 2**40 + 4))


def test_append_time_replaces_all_timestamps_and_updates_the_crc() -> None:
    buffer = bytearray(encode_batch(INPUTS, is_transactional=True, compression=Compression.ZSTD))
    records.set_log_append_time(buffer, 0, NOW_MS + 77)
    header = records.read_header(buffer)
    assert header.is_log_append_time
    assert header.is_transactional
    assert header.compression is Compression.ZSTD
    assert records.crc_is_valid(buffer, 0, header)
    assert {record.timestamp_ms for record in decode_batch(bytes(buffer))} == {NOW_MS + 77}


def test_headers_are_iterated_up_to_a_partial_batch() -> None:
    first, second = encode_batch(INPUTS), encode_batch(INPUTS[:1], base_offset=4)
    whole = first + second
    assert [(p, h.base_offset) for p, h in records.iter_headers(whole)] == [(0, 0), (len(first), 4)]
    for cut in range(len(first), len(whole)):
        assert [position for position, _ in records.iter_headers(memoryview(whole)[:cut])] == [0]
    assert list(records.iter_headers(b"")) == []


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_batch_length_below_the_header_is_corrupt(length: int) -> None:
    batch = bytearray(encode_batch(INPUTS))
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(ProtocolError) as refusal:
        list(records.iter_headers(batch))
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(ProtocolError):
        decode_batch(batch)
    assert not records.crc_is_valid(batch, 0, records.read_header(batch))


def test_sequence_wraps_to_zero() -> None:
    header = records.read_header(encode_batch(INPUTS, producer_id=1, base_sequence=2**31 - 2))
    assert header.last_sequence == 1
    assert records.read_header(encode_batch(INPUTS)).last_sequence == -1


@pytest.mark.parametrize("count", [-1, 3, 5, 2**31 - 1])
def test_record_count_that_does_not_match_is_corrupt(count: int) -> None:
    batch = bytearray(encode_batch(INPUTS))
    struct.pack_into(">i", batch, 57, count)
    with pytest.raises(ProtocolError) as refusal:
        decode_batch(batch)
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


def test_other_magic_and_unknown_codec_are_refused() -> None:
    batch = bytearray(encode_batch(INPUTS))
    batch[16] = 1
    with pytest.raises(ProtocolError, match="magic"):
        decode_batch(batch)
    batch[16], batch[22] = 2, 7
    with pytest.raises(ProtocolError, match="codec"):
        decode_batch(batch)


def test_truncated_header_is_refused() -> None:
    batch = encode_batch(INPUTS)
    for cut in range(len(batch)):
        with pytest.raises(ProtocolError):
            decode_batch(batch[:cut])


@pytest.mark.parametrize("codec", Compression, ids=lambda codec: codec.name)
def test_damaged_batches_never_raise_anything_else(codec: Compression) -> None:
    rng = random.Random(f"damage/{codec}")
    batch = encode_batch(INPUTS, compression=codec)
    for _ in range(400):
        damaged = bytearray(batch)
        for _ in range(rng.randint(1, 4)):
            position = rng.randrange(records.HEADER_BYTES, len(damaged))
            damaged[position] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        try:
            decode_batch(bytes(damaged), max_bytes=1 << 20)
        except ProtocolError as refusal:
            assert refusal.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


def test_positions_in_the_header_are_those_of_its_fields() -> None:
    header = records.BatchHeader(*range(1, 14))
    data = header.packed()
    for field, position, size in (
        ("crc", records.CRC_OFFSET, 4),
        ("attributes", records.ATTRIBUTES_OFFSET, 2),
        ("max_timestamp", records.MAX_TIMESTAMP_OFFSET, 8),
        ("partition_leader_epoch", records.LOG_OVERHEAD_BYTES, 4),
    ):
        assert int.from_bytes(data[position : position + size], "big") == getattr(header, field)
    assert (records.HEADER_BYTES, records.LOG_OVERHEAD_BYTES) == (61, 12)
