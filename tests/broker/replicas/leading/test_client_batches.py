"""Batches of clients: what is stored, what is refused and with which error."""

from dataclasses import replace
from itertools import pairwise

import pytest

from pykraft.broker.logs.log_config import build_log_config
from pykraft.broker.replicas.leading.validate import ClientBatch, RejectedRecordsError
from pykraft.kafka_protocol import records
from pykraft.kafka_protocol.compression import Compression, compress
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.primitives import write_varint
from pykraft.kafka_protocol.record_codec import (
    MAX_DECOMPRESSED_BYTES,
    RecordInput,
    decode_batch,
    encode_batch,
)
from pykraft.kafka_protocol.record_walk import MAX_REJECTED_RECORDS
from pykraft.kafka_protocol.records import crc_is_valid, read_header
from pykraft.log_store.interface import LogConfig

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
DEFAULT = LogConfig()
COMPACTED = replace(DEFAULT, cleanup_policy=frozenset({"compact", "delete"}))
LOG_APPEND_TIME = replace(DEFAULT, message_timestamp_type="LogAppendTime")
KEYED = RecordInput(b"k", b"v", (), NOW_MS)
CODECS = [codec for codec in Compression if codec]


def patched(batch: bytes, **fields: int) -> bytes:
    """With other header fields and a CRC that fits."""
    return bytes(
        records.replace_records(
            replace(read_header(batch), **fields),
            batch[records.HEADER_BYTES :],
            Compression(fields.get("attributes", read_header(batch).attributes) & 7),
        )
    )


def around(body: bytes, count: int, codec: Compression = Compression.NONE) -> bytes:
    """A good header over any bytes."""
    header = read_header(encode_batch([KEYED] * count))
    return bytes(records.replace_records(header, body, codec))


def validate(data: bytes | None, config: LogConfig = DEFAULT, version: int = 9) -> ClientBatch:
    view = None if data is None else memoryview(bytearray(data))
    batch = ClientBatch(view, config, NOW_MS, version)
    while not batch.is_done:
        assert batch.advance(1000) > 0
        if batch.is_large:
            batch.unfold()
    batch.finish()
    return batch


def refused(data: bytes, config: LogConfig = DEFAULT, version: int = 9) -> KafkaError:
    with pytest.raises(KafkaError) as refusal:
        validate(data, config, version)
    return refusal.value


GOOD = encode_batch([KEYED, KEYED])
BODY = GOOD[records.HEADER_BYTES :]


@pytest.mark.parametrize(
    "data",
    [
        around(b"\x7f" * 200, 2),
        around(bytes(200), 2),
        around(b"", 1),
        around(BODY[:-1], 2),
        around(BODY + b"\0", 2),
        around(BODY, 1),
        around(BODY, 3),
        patched(GOOD, record_count=1_000_000, last_offset_delta=999_999),
        patched(GOOD, record_count=1),
        patched(GOOD, last_offset_delta=5),
        patched(GOOD, record_count=0, last_offset_delta=-1),
        patched(GOOD, record_count=-2, last_offset_delta=-3),
        patched(GOOD, base_offset=1),
        patched(GOOD, base_offset=-1),
        patched(GOOD, producer_id=1, producer_epoch=0, base_sequence=-1),
        patched(GOOD, producer_id=1, producer_epoch=-1, base_sequence=0),
        patched(GOOD, attributes=0x20),
        patched(GOOD, attributes=0x40),
        patched(GOOD, attributes=0x80),
        patched(GOOD, attributes=-0x8000),
        GOOD + GOOD,
        b"",
    ],
)
def test_malformed_batch_is_refused_as_an_invalid_record(data: bytes) -> None:
    assert refused(data).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("deltas", [(0, 2), (0, 0), (1, 2), (-1, 0), (1, 0), (0, 8193)])
@pytest.mark.parametrize("codec", Compression)
def test_offset_deltas_that_do_not_count_up_from_0_are_refused(
    deltas: tuple[int, int], codec: Compression
) -> None:
    one = BODY[: len(BODY) // 2]
    assert one == bytes([16, 0, 0, 0, 2]) + b"k" + bytes([2]) + b"v" + bytes([0])
    wrong = bytearray()
    for delta in deltas:
        encoded = bytearray()
        write_varint(encoded, delta)
        record = bytes([0, 0]) + encoded + one[4:]
        wrong += bytes([2 * len(record)]) + record
    payload = bytes(wrong) if codec is Compression.NONE else compress(codec, bytes(wrong))
    assert refused(around(payload, 2, codec)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_batch_is_checked_inside_and_stored_unchanged(codec: Compression) -> None:
    data = encode_batch([KEYED] * 300, compression=codec)
    assert bytes(validate(data).records) == data
    short = compress(codec, encode_batch([KEYED] * 299)[records.HEADER_BYTES :])
    assert refused(around(short, 300, codec)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_that_cannot_be_decompressed_are_an_invalid_record(codec: Compression) -> None:
    packed = compress(codec, BODY)
    for payload in (b"no such format at all", packed[:-4], packed + b"\0"):
        assert refused(around(payload, 2, codec)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_refused(codec: int) -> None:
    data = bytearray(GOOD)
    data[records.ATTRIBUTES_OFFSET + 1] = codec
    records.write_crc(data, 0, len(data))
    assert refused(bytes(data)).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_batch_that_decompresses_to_more_than_the_limit_is_too_large() -> None:
    config = replace(DEFAULT, max_message_bytes=1 << 30)
    bomb = compress(Compression.ZSTD, bytes(MAX_DECOMPRESSED_BYTES + 1))
    assert refused(around(bomb, 2, Compression.ZSTD), config).code is ErrorCode.MESSAGE_TOO_LARGE


def test_batch_that_grows_much_waits_until_it_is_decompressed_elsewhere() -> None:
    data = encode_batch([RecordInput(None, bytes(1 << 20), (), NOW_MS)], compression=Compression.ZSTD)
    batch = ClientBatch(memoryview(bytearray(data)), DEFAULT, NOW_MS, 9)
    assert batch.advance(1) > 500
    assert batch.is_large and not batch.is_done
    batch.unfold()
    assert batch.advance(1) == 1
    assert batch.is_done and not batch.is_large


@pytest.mark.parametrize("lie", [NOW_MS + 1, NOW_MS - 1, NOW_MS + 10 * HOUR_MS, -1, -(1 << 63)])
@pytest.mark.parametrize("codec", Compression)
def test_maximum_timestamp_is_that_of_the_records_whatever_the_header_says(
    lie: int, codec: Compression
) -> None:
    inputs = [RecordInput(None, b"v", (), NOW_MS + delta) for delta in (-50, 0, -20)]
    data = encode_batch(inputs, compression=codec)
    batch = validate(patched(data, max_timestamp=lie))
    assert bytes(batch.records) == data
    assert batch.header == read_header(data)
    assert crc_is_valid(batch.records, 0, batch.header)


@pytest.mark.parametrize("stamps", [(-1, -1), (-5, -7), (-(1 << 62), -2)])
def test_maximum_timestamp_of_records_without_timestamps_is_none(stamps: tuple[int, ...]) -> None:
    data = encode_batch([RecordInput(None, b"v", (), stamp) for stamp in stamps])
    assert validate(patched(data, max_timestamp=5)).header.max_timestamp == records.NO_TIMESTAMP


def test_every_timestamp_must_be_in_range_and_the_answer_names_the_records_that_are_not() -> None:
    stamps = [NOW_MS, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1, -1, NOW_MS - 1000, NOW_MS - 1001]
    config = replace(DEFAULT, message_timestamp_before_max_ms=1000)
    data = encode_batch([RecordInput(None, b"v", (), stamp) for stamp in stamps])
    refusal = refused(patched(data, max_timestamp=NOW_MS), config)
    assert refusal.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(refusal, RejectedRecordsError)
    assert [index for index, _ in refusal.record_errors] == [2, 5]
    assert str(stamps[2]) in refusal.record_errors[0][1]
    validate(data, LOG_APPEND_TIME)


@pytest.mark.parametrize("base", [(1 << 63) - 1, -(1 << 63)])
def test_timestamps_beyond_64_bits_are_out_of_range(base: int) -> None:
    limits = replace(
        DEFAULT,
        message_timestamp_before_max_ms=(1 << 63) - 1,
        message_timestamp_after_max_ms=(1 << 63) - 1,
    )
    step = 1 if base > 0 else -1
    data = encode_batch([RecordInput(None, b"v", (), NOW_MS), RecordInput(None, b"v", (), NOW_MS + step)])
    refusal = refused(patched(data, base_timestamp=base), limits)
    assert refusal.code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("config", [DEFAULT, LOG_APPEND_TIME])
def test_only_the_broker_stamps_the_time_of_an_append(config: LogConfig) -> None:
    assert refused(patched(GOOD, attributes=records.TIMESTAMP_TYPE_BIT), config).code is (
        ErrorCode.INVALID_TIMESTAMP
    )


@pytest.mark.parametrize("codec", Compression)
def test_records_of_a_compacted_topic_have_keys(codec: Compression) -> None:
    keyless = RecordInput(None, b"v", (), NOW_MS)
    batch = encode_batch([KEYED, keyless, KEYED, keyless], compression=codec)
    refusal = refused(batch, COMPACTED)
    assert refusal.code is ErrorCode.INVALID_RECORD
    assert isinstance(refusal, RejectedRecordsError)
    assert [index for index, _ in refusal.record_errors] == [1, 3]
    validate(batch)
    validate(encode_batch([RecordInput(b"", None, (), NOW_MS)] * 200, compression=codec), COMPACTED)


def test_answer_lists_no_more_records_than_it_can_hold() -> None:
    batch = encode_batch([RecordInput(None, b"", (), NOW_MS)] * (5 * MAX_REJECTED_RECORDS))
    refusal = refused(batch, COMPACTED)
    assert isinstance(refusal, RejectedRecordsError)
    assert [index for index, _ in refusal.record_errors] == list(range(MAX_REJECTED_RECORDS))


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"])
@pytest.mark.parametrize("sent", Compression)
def test_topic_determines_the_codec_in_which_batches_are_stored(wanted: str, sent: Compression) -> None:
    inputs = [RecordInput(b"k%d" % n, b"v" * n, (("h", b"x"),), NOW_MS + n) for n in range(50)]
    data = encode_batch(inputs, compression=sent, producer_id=7, producer_epoch=1, base_sequence=3)
    batch = validate(data, build_log_config({"compression.type": wanted}, {}))
    expected = {"producer": sent, "uncompressed": Compression.NONE}.get(wanted)
    expected = Compression[wanted.upper()] if expected is None else expected
    assert batch.header.compression is expected
    assert decode_batch(batch.records) == decode_batch(data)
    assert batch.header == read_header(batch.records)
    assert crc_is_valid(batch.records, 0, batch.header)
    assert len(batch.records) == batch.header.size_bytes
    stored, sent_header = batch.header, read_header(data)
    for name in ("producer_id", "producer_epoch", "base_sequence", "record_count"):
        assert getattr(stored, name) == getattr(sent_header, name)
    if expected is sent:
        assert bytes(batch.records) == data


def test_stored_batch_is_compressed_at_the_topics_level() -> None:
    inputs = [RecordInput(None, b"%d little bytes;" % (n * n), (), NOW_MS) for n in range(5000)]
    data = encode_batch(inputs)
    sizes = [
        len(
            validate(
                data, build_log_config({"compression.type": "zstd", "compression.zstd.level": level}, {})
            ).records
        )
        for level in ("-50", "1", "12")
    ]
    assert all(smaller < larger for larger, smaller in pairwise(sizes))


def test_batch_that_is_too_large_once_it_is_not_compressed_is_refused() -> None:
    data = encode_batch([RecordInput(None, bytes(10_000), (), NOW_MS)], compression=Compression.ZSTD)
    config = build_log_config({"compression.type": "uncompressed", "max.message.bytes": "5000"}, {})
    assert refused(data, config).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("data", [GOOD[:-1], GOOD[:20], GOOD[:30] + bytes([GOOD[30] ^ 1]) + GOOD[31:]])
def test_damage_in_transit_is_a_corrupt_message(data: bytes) -> None:
    assert refused(data).code is ErrorCode.CORRUPT_MESSAGE
