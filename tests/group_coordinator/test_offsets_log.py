"""The coordinator's log as the broker reads it: odd batches, truncated ends, a log that begins above zero."""

from __future__ import annotations

from pykraft.broker.replicas.offsets_writer import decode_records
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import HEADER_BYTES


def batch(base_offset: int, *keys: bytes, is_control: bool = False) -> bytes:
    records = [RecordInput(key=key, value=b"v", timestamp_ms=1) for key in keys]
    return encode_batch(records, base_offset=base_offset, is_control=is_control)


def read(data: bytes, start_offset: int = 0) -> tuple[list[bytes | None], int]:
    records, next_offset = decode_records(data, start_offset)
    return [record.key and bytes(record.key) for record in records], next_offset


def test_batch_of_random_bytes_is_skipped() -> None:
    """Brokers accept batches without decoding their records, so they can hold anything."""
    malformed = bytearray(batch(1, b"x" * 50))
    malformed[HEADER_BYTES:] = b"\xff" * (len(malformed) - HEADER_BYTES)
    assert read(batch(0, b"a") + bytes(malformed) + batch(2, b"c")) == ([b"a", b"c"], 3)


def test_log_of_only_random_bytes_is_read_to_its_end() -> None:
    malformed = bytearray(batch(4, b"x" * 50))
    malformed[HEADER_BYTES:] = b"\xff" * (len(malformed) - HEADER_BYTES)
    assert read(bytes(malformed), 4) == ([], 5)


def test_control_batches_and_a_truncated_end_are_left_out() -> None:
    cut = batch(3, b"later")[:-1]
    assert read(batch(0, b"a", b"b") + batch(2, b"c", is_control=True) + cut) == ([b"a", b"b"], 3)


def test_reading_may_start_inside_a_batch() -> None:
    assert read(batch(5, b"a", b"b", b"c"), 6) == ([b"b", b"c"], 8)


def test_log_that_begins_above_zero_is_read_from_its_start() -> None:
    assert read(batch(90, b"a"), 0) == ([b"a"], 91)


def test_reading_at_the_end_of_the_log_does_not_advance() -> None:
    assert read(b"", 7) == ([], 7)
