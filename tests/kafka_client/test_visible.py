"""Control batches and aborted transactions are not for the application."""

from collections.abc import Iterable, Sequence

from pykraft.kafka_client.visible import visible_batches
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import iter_headers

ABORT, COMMIT = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"


def shown(batches: Iterable[bytes], aborted: Sequence[tuple[int, int]] = ()) -> list[int]:
    data = memoryview(b"".join(batches))
    return [header.base_offset for _, header in visible_batches(data, iter_headers(data), aborted)]


def data(base_offset: int, producer_id: int = -1, count: int = 2) -> bytes:
    return encode_batch(
        [RecordInput(None, b"v")] * count,
        base_offset=base_offset,
        producer_id=producer_id,
        is_transactional=producer_id >= 0,
    )


def marker(base_offset: int, producer_id: int, key: bytes) -> bytes:
    record = RecordInput(key, b"\x00\x00\x00\x00\x00\x00")
    return encode_batch(
        [record], base_offset=base_offset, producer_id=producer_id, is_control=True, is_transactional=True
    )


def test_control_batches_are_left_out() -> None:
    assert shown([data(0), marker(2, 7, COMMIT), data(3)]) == [0, 3]


def test_aborted_transaction_is_left_out_up_to_its_marker() -> None:
    batches = [data(0, 7), data(2), data(4, 7), marker(6, 7, ABORT), data(7, 7), marker(9, 7, COMMIT)]
    assert shown(batches, aborted=[(7, 0)]) == [2, 7]


def test_other_producers_transactions_stay() -> None:
    batches = [data(0, 7), data(2, 8), marker(4, 7, ABORT), marker(5, 8, COMMIT)]
    assert shown(batches, aborted=[(7, 0)]) == [2]


def test_commit_marker_of_an_earlier_transaction_does_not_end_an_abort() -> None:
    batches = [data(0, 7), marker(2, 7, COMMIT), data(3, 7), marker(5, 7, ABORT), data(6, 7)]
    assert shown(batches, aborted=[(7, 3)]) == [0, 6]


def test_read_uncommitted_shows_aborted_records() -> None:
    assert shown([data(0, 7), marker(2, 7, ABORT)]) == [0]
