"""The check of a replica's derived state finds each kind of difference."""

from collections.abc import Callable
from functools import partial

import pytest

from pykraft.broker.logs.producers.rebuild import rebuild
from pykraft.broker.logs.producers.state import ProducerState
from pykraft.jepsen_like.simulation.cluster.checks.derived_checks import find_difference
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import BatchHeader, read_header
from pykraft.log_store.epoch_cache import EpochEntry
from pykraft.log_store.indexes.transaction_index import AbortedTransaction
from pykraft.log_store.interface import LogConfig, TimestampOffset
from pykraft.log_store.log.log import Log
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.stand_ins import interpreted_only

PRODUCER = 7
COUNT = 8


def header(log: Log, sequence: int, epoch: int) -> tuple[bytes, BatchHeader]:
    data = encode_batch(
        [RecordInput(None, b"v", (), 1000 + sequence)],
        base_offset=log.log_end_offset,
        leader_epoch=epoch,
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
    )
    return data, read_header(data)


def written() -> tuple[Log, ProducerState]:
    """A log of batches of one producer, the last half in leader epoch 1."""
    log = Log.open(MemoryDisk(), "/t-0", LogConfig(), now_ms=0)
    for sequence in range(COUNT):
        data, one = header(log, sequence, int(sequence >= COUNT // 2))
        log.append(data, [one], now_ms=0)
    return log, rebuild(log.iter_produced(0), log_start_offset=0)


def test_state_of_the_log_is_no_difference() -> None:
    log, producers = written()
    for is_loaded in (False, True):
        assert find_difference(log, producers, is_loaded=is_loaded) is None
    log.truncate_to(COUNT - 1)
    assert producers.truncate_to(COUNT - 1)
    assert find_difference(log, producers, is_loaded=False) is None
    assert "is known by epoch 0" in str(find_difference(log, producers, is_loaded=True)), (
        "one is not remembered"
    )


def producer_of_a_truncated_batch(log: Log, producers: ProducerState) -> None:
    log.truncate_to(0)


def one_batch_missed(log: Log, producers: ProducerState) -> None:
    data, one = header(log, COUNT, 1)
    log.append(data, [one], now_ms=0)


def one_batch_too_many(log: Log, producers: ProducerState) -> None:
    producers.replay(header(log, COUNT, 1)[1])


def producer_forgotten(log: Log, producers: ProducerState) -> None:
    producers.adopt(ProducerState())


def producer_of_deleted_batches_forgotten(log: Log, producers: ProducerState) -> None:
    log.advance_log_start(COUNT)
    producers.adopt(ProducerState())


def aborted_transaction_made_up(log: Log, producers: ProducerState) -> None:
    log.note_aborted(AbortedTransaction(PRODUCER, 1, 3, 4))


def aborted_transaction_beyond_the_end(log: Log, producers: ProducerState) -> None:
    log.note_aborted(AbortedTransaction(PRODUCER, 1, COUNT, COUNT + 1))


def aborted_transaction_not_indexed(log: Log, producers: ProducerState) -> None:
    encode = partial(
        encode_batch, leader_epoch=1, producer_id=PRODUCER + 1, producer_epoch=0, is_transactional=True
    )
    data = encode([RecordInput(None, b"v")], base_offset=COUNT, base_sequence=0)
    abort = RecordInput(b"\0\0\0\0", b"\0\0\0\0\0\0")
    marker = encode([abort], base_offset=COUNT + 1, is_control=True)
    log.append(data + marker, [read_header(data), read_header(marker)], now_ms=0)
    producers.adopt(rebuild(log.iter_produced(0), log_start_offset=0))


def epoch_forgotten(log: Log, producers: ProducerState) -> None:
    log.epoch_cache.entries = log.epoch_cache.entries[:1]


def epoch_made_up(log: Log, producers: ProducerState) -> None:
    log.epoch_cache.entries = (*log.epoch_cache.entries[:1], EpochEntry(1, COUNT // 2 - 1))


def time_not_found(log: Log, producers: ProducerState) -> None:
    log.lookup_timestamp = lambda timestamp_ms, **_: None  # type: ignore[method-assign]


def time_found_too_late(log: Log, producers: ProducerState) -> None:
    log.lookup_timestamp = lambda timestamp_ms, **_: TimestampOffset(timestamp_ms, COUNT, 1)  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("corrupt", "difference"),
    [
        (producer_of_a_truncated_batch, "which the log does not hold"),
        (one_batch_missed, "is known by epoch 0"),
        (one_batch_too_many, "is known by epoch 0"),
        (producer_forgotten, "producer 7 is unknown"),
        (producer_of_deleted_batches_forgotten, "producer 7 is unknown"),
        (aborted_transaction_made_up, "which the log does not abort"),
        (aborted_transaction_beyond_the_end, "the log ends at 8"),
        (aborted_transaction_not_indexed, "the transaction indexes lack"),
        (epoch_forgotten, "is of leader epoch 1, and known as of 0"),
        (epoch_made_up, "is of leader epoch 0, and known as of 1"),
        pytest.param(time_not_found, "is found as None", marks=interpreted_only),
        pytest.param(time_found_too_late, "is found as", marks=interpreted_only),
    ],
)
def test_difference_is_noticed(corrupt: Callable[[Log, ProducerState], None], difference: str) -> None:
    log, producers = written()
    corrupt(log, producers)
    assert difference in str(find_difference(log, producers, is_loaded=False))
