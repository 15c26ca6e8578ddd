"""The coordinator's log as the broker reads it: odd batches, truncated ends, a log that begins above zero."""

import pytest

from pykraft.broker.replicas.leading.coordinator_topic import unfold_batches
from pykraft.group_coordinator.loading import Loader
from pykraft.group_coordinator.state.codec import encode_record
from pykraft.group_coordinator.state.records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import HEADER_BYTES


def batch(base_offset: int, *groups: str, is_control: bool = False) -> bytes:
    """One committed offset for each group."""
    value = OffsetCommitValue(1, -1, "", 1)
    records = [encode_record(GroupRecord(OffsetCommitKey(group, "t", 0), value)) for group in groups]
    inputs = [RecordInput(key=key, value=value, timestamp_ms=1) for key, value in records]
    return encode_batch(inputs, base_offset=base_offset, is_control=is_control)


def read(data: bytes, start_offset: int = 0) -> tuple[list[str], int]:
    """The groups that are loaded, and the next offset."""
    batches, next_offset = unfold_batches(data, start_offset, "offsets-0")
    loader = Loader(0)
    for work in (loader.load(batches), loader.finish()):
        for _ in work:
            pass
    return sorted(loader.state.offsets), next_offset


def test_batch_of_random_bytes_is_skipped() -> None:
    """Brokers accept batches without decoding their records, so they can hold anything."""
    malformed = bytearray(batch(1, "x" * 50))
    malformed[HEADER_BYTES:] = b"\xff" * (len(malformed) - HEADER_BYTES)
    assert read(batch(0, "a") + bytes(malformed) + batch(2, "c")) == (["a", "c"], 3)


def test_log_of_only_random_bytes_is_read_to_its_end() -> None:
    malformed = bytearray(batch(4, "x" * 50))
    malformed[HEADER_BYTES:] = b"\xff" * (len(malformed) - HEADER_BYTES)
    assert read(bytes(malformed), 4) == ([], 5)


def test_control_batches_and_a_truncated_end_are_left_out() -> None:
    cut = batch(3, "later")[:-1]
    assert read(batch(0, "a", "b") + batch(2, "c", is_control=True) + cut) == (["a", "b"], 3)


def test_reading_may_start_inside_a_batch() -> None:
    assert read(batch(5, "a", "b", "c"), 6) == (["b", "c"], 8)


def test_log_that_begins_above_zero_is_read_from_its_start() -> None:
    assert read(batch(90, "a"), 0) == (["a"], 91)


def test_reading_at_the_end_of_the_log_does_not_advance() -> None:
    assert read(b"", 7) == ([], 7)


@pytest.mark.parametrize("place", ["record", "key", "value"])
def test_record_with_a_length_below_zero_costs_only_its_batch(place: str) -> None:
    """The lowest bit of a length is its sign."""
    malformed = bytearray(batch(1, "x"))
    body = HEADER_BYTES
    key_at = body + 4  # behind the record's length, its attributes, and its two deltas
    value_at = key_at + 1 + (malformed[key_at] >> 1)
    malformed[{"record": body, "key": key_at, "value": value_at}[place]] |= 1
    assert read(batch(0, "a") + bytes(malformed) + batch(2, "c")) == (["a", "c"], 3)
