"""Random batches of clients for random topics, next to a plain list of what a topic accepts.

Records with and without keys and timestamps, in every codec, for topics with every clean-up policy, limit and
codec; then at most one field of the header is forged. What is stored holds the records that were sent, under
a header that is true of them; everything else is refused with Kafka's error. Nothing large is decompressed at
once.
"""

from dataclasses import dataclass, replace
from random import Random

import pytest

from pykraft.broker.replicas.leading.validate import ClientBatch
from pykraft.kafka_protocol import records
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.record_codec import Record, RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.records import BatchHeader, crc_is_valid, read_header, replace_records
from pykraft.log_store.interface import LogConfig

NOW_MS = 1_800_000_000_000
BEFORE_MS, AFTER_MS = 1_000_000, 5_000
LARGE_BYTES = 1 << 20
FORGED = {
    "attributes": (0x08, 0x10, 0x20, 0x40, 0x80, 0x4000, -0x8000),
    "base_offset": (1, -1, 77),
    "last_offset_delta": (0, 1, -1, 100),
    "record_count": (0, -1, 1, 3, 100_000),
    "max_timestamp": (NOW_MS + 7, NOW_MS - 7, -1, 1 << 60),
    "base_sequence": (-1,),
}
FORGED_ERRORS = {
    0x08: ErrorCode.INVALID_TIMESTAMP,
}


@dataclass
class Sent:
    inputs: list[RecordInput]
    data: bytes
    header: BatchHeader
    forged: str = ""
    value: int = 0


def draw_topic(rng: Random) -> LogConfig:
    policies = ({"delete"}, {"compact"}, {"compact", "delete"})
    return LogConfig(
        cleanup_policy=frozenset(rng.choice(policies)),
        max_message_bytes=rng.choice((300, 4_000, 1 << 20)),
        message_timestamp_type=rng.choice(("CreateTime", "CreateTime", "LogAppendTime")),
        message_timestamp_before_max_ms=BEFORE_MS,
        message_timestamp_after_max_ms=AFTER_MS,
        compression_type=rng.choice(("producer", "producer", "uncompressed", "gzip", "zstd", "lz4")),
    )


def draw_batch(rng: Random) -> Sent:
    has_keys, is_odd = rng.random() < 0.6, rng.random() < 0.2
    inputs = []
    for _ in range(rng.choice((1, 2, 40))):
        size = rng.choice((0, 3, 3, 100, 1_400_000 if rng.random() < 0.05 else 5))
        stamp = NOW_MS - rng.randrange(1_000)
        if is_odd and rng.random() < 0.2:
            stamp = rng.choice((-1, NOW_MS + AFTER_MS, NOW_MS + AFTER_MS + 1, NOW_MS - BEFORE_MS - 1))
        key = b"k" if has_keys and not (is_odd and rng.random() < 0.1) else None
        inputs.append(RecordInput(key, bytes(size), (), stamp))
    producer_id = rng.choice((-1, 7))
    data = encode_batch(
        inputs,
        compression=rng.choice(list(Compression)),
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
    )
    sent = Sent(inputs, data, read_header(data))
    if rng.random() < 0.4:
        sent.forged = rng.choice(sorted(FORGED))
        sent.value = rng.choice(FORGED[sent.forged])
        forged = replace(sent.header, **{sent.forged: sent.value})
        if sent.forged == "attributes":
            forged = replace(sent.header, attributes=sent.header.attributes | sent.value)
        payload = data[records.HEADER_BYTES :]
        sent.data = bytes(replace_records(forged, payload, sent.header.compression))
    return sent


def expected_error(sent: Sent, config: LogConfig) -> set[ErrorCode] | None:
    """What it must be refused with; None if it must be stored."""
    count = len(sent.inputs)
    if len(sent.data) > config.max_message_bytes:
        size_error = {ErrorCode.MESSAGE_TOO_LARGE}
        return size_error | {ErrorCode.INVALID_RECORD} if sent.forged == "base_offset" else size_error
    match sent.forged:
        case "attributes" if sent.value != 0x10 or sent.header.producer_id < 0:
            return {FORGED_ERRORS.get(sent.value, ErrorCode.INVALID_RECORD)}
        case "base_offset":
            return {ErrorCode.INVALID_RECORD}
        case "last_offset_delta" if sent.value != count - 1:
            return {ErrorCode.INVALID_RECORD}
        case "record_count" if sent.value != count:
            return {ErrorCode.INVALID_RECORD}
        case "base_sequence" if sent.header.producer_id >= 0:
            return {ErrorCode.INVALID_RECORD}
    stamps = [one.timestamp_ms for one in sent.inputs]
    errors = set()
    if config.message_timestamp_type != "LogAppendTime":
        allowed = range(NOW_MS - BEFORE_MS, NOW_MS + AFTER_MS + 1)
        if any(stamp != -1 and stamp not in allowed for stamp in stamps):
            errors.add(ErrorCode.INVALID_TIMESTAMP)
    if "compact" in config.cleanup_policy and any(one.key is None for one in sent.inputs):
        errors.add(ErrorCode.INVALID_RECORD)
    return errors or None


def validate(sent: Sent, config: LogConfig) -> ClientBatch:
    body_bytes = sum(len(one.value or b"") for one in sent.inputs)
    batch = ClientBatch(memoryview(bytearray(sent.data)), config, NOW_MS, 9)
    was_large = False
    while not batch.is_done:
        batch.advance(1 + len(sent.data) % 50)
        if batch.is_large:
            was_large = True
            batch.unfold()
    if sent.header.compression is not Compression.NONE and not sent.forged:
        assert was_large is (body_bytes > LARGE_BYTES), "a large batch is decompressed in a thread"
    batch.finish()
    return batch


def contents(found: list[Record]) -> list[tuple[bytes | None, bytes | None, int]]:
    return [(one.key, one.value, one.timestamp_ms) for one in found]


def check_stored(sent: Sent, config: LogConfig, batch: ClientBatch) -> None:
    stored = bytes(batch.records)
    header = read_header(stored)
    assert batch.header == header, "the header that is used is that of another batch"
    assert crc_is_valid(stored, 0, header) and header.size_bytes == len(stored)
    assert len(stored) <= config.max_message_bytes, "a batch is stored that is larger than allowed"
    wanted = config.compression_type
    if wanted == "producer":
        assert header.compression is sent.header.compression
    else:
        assert header.compression is (
            Compression.NONE if wanted == "uncompressed" else Compression[wanted.upper()]
        )
    found = decode_batch(stored)
    assert contents(found) == [(one.key, one.value, one.timestamp_ms) for one in sent.inputs]
    assert [one.offset for one in found] == list(range(len(found)))
    if config.message_timestamp_type != "LogAppendTime":
        newest = max(one.timestamp_ms for one in sent.inputs)
        assert header.max_timestamp == max(newest, -1), "the largest timestamp is another"


@pytest.mark.parametrize("seed", range(12))
def test_stored_batches_hold_what_was_sent_and_others_are_refused(seed: int) -> None:
    rng = Random(seed)
    stored = refused = 0
    for _ in range(120):
        config, sent = draw_topic(rng), draw_batch(rng)
        errors = expected_error(sent, config)
        try:
            batch = validate(sent, config)
        except KafkaError as error:
            if errors is None and config.compression_type not in ("producer", sent.header.compression.name):
                assert error.code is ErrorCode.MESSAGE_TOO_LARGE, "as it would be stored, it is too large"
            else:
                assert errors is not None and error.code in errors, (error, sent.forged, sent.value)
            refused += 1
        else:
            assert errors is None, f"{errors} expected: {sent.forged} {sent.value}"
            check_stored(sent, config, batch)
            stored += 1
    assert stored > 20 and refused > 20, (stored, refused)
