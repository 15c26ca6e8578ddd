"""The first batches of a transaction that are verified at the same time: none overtakes an earlier one."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pykraft.broker.logs.producers.verification import Verifications
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.records import BatchHeader, read_header
from pykraft.log_store.compaction.gaps import spanning_batch

_HEADER = read_header(spanning_batch(0, 1, 0))


def batch(sequence: int, epoch: int = 0) -> BatchHeader:
    return replace(_HEADER, producer_id=7, producer_epoch=epoch, base_sequence=sequence)


def begin(known: Verifications, header: BatchHeader) -> Callable[[], None]:
    guard = known.begin(header, 0, supports_epoch_bump=False)
    return lambda: known.check(header, guard, is_known=True)


def test_a_batch_does_not_overtake_one_of_its_epoch_in_whatever_order_they_came() -> None:
    for sequences in ((3, 5), (5, 3)):
        known = Verifications()
        checks = {sequence: begin(known, batch(sequence)) for sequence in sequences}
        with pytest.raises(KafkaError) as refused:
            checks[5]()
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        checks[3]()
        known.appended(batch(3))
        with pytest.raises(KafkaError) as refused:
            checks[5]()
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE, "it is verified anew"


def test_a_newer_epoch_begins_with_its_own_sequence_and_an_older_one_changes_nothing() -> None:
    known = Verifications()
    begin(known, batch(0, epoch=1))
    begin(known, batch(4, epoch=2))()
    begin(known, batch(1, epoch=1))
    with pytest.raises(KafkaError):
        begin(known, batch(5, epoch=2))()
