"""InitProducerId: who may go on under a transactional id, and at which epoch."""

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.transactions import InitProducerIdRequest
from pykraft.transaction_coordinator.call import NeedsProducerIdError
from pykraft.transaction_coordinator.requests.init_producer_id import handle_init_producer_id
from pykraft.transaction_coordinator.transaction import TransactionState, TransactionVersion
from tests.transaction_coordinator.shards import (
    FIRST_PRODUCER_ID,
    NAME,
    NO_PRODUCER,
    T0,
    TIMEOUT_MS,
    Producer,
    Shard,
    a_transaction,
)

S = TransactionState
TV_0, TV_1, TV_2 = TransactionVersion
IDLE = (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
LAST = 32766
"""The last epoch that a client gets."""


def test_new_id_gets_a_new_producer_id_at_epoch_0() -> None:
    shard = Shard()
    shard.now_ms = 5
    assert shard.init(timeout_ms=7) == (FIRST_PRODUCER_ID, 0)
    value = shard.value()
    assert (value.state, value.timeout_ms, value.last_update_timestamp_ms) == (S.EMPTY, 7, 5)
    assert (value.previous_producer_id, value.start_timestamp_ms) == (FIRST_PRODUCER_ID, -1)


def test_new_id_takes_no_notice_of_what_the_client_believes() -> None:
    """It recovers after its id has expired."""
    assert Shard().init(expected=(7, 5)) == (FIRST_PRODUCER_ID, 0)


def test_without_a_transactional_id_every_request_gets_a_new_producer_id() -> None:
    shard = Shard()
    assert [shard.init(None), shard.init(None)] == [(FIRST_PRODUCER_ID, 0), (FIRST_PRODUCER_ID + 1, 0)]
    assert not shard.log


def test_decision_that_needs_a_producer_id_says_so_and_changes_nothing() -> None:
    shard = Shard()
    request = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=1)
    with pytest.raises(NeedsProducerIdError):
        handle_init_producer_id(shard.state, request, shard.call())


@pytest.mark.parametrize("expected", [(-1, 0), (7, -1)])
def test_producer_id_and_epoch_come_together(expected: Producer) -> None:
    assert Shard(a_transaction(S.EMPTY)).init(expected=expected) is ErrorCode.INVALID_REQUEST
    assert Shard().init(None, expected=expected) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["", "x" * 32_768, "ü" * 16_384])
def test_id_that_no_record_could_hold_is_refused(name: str) -> None:
    shard = Shard()
    assert shard.init(name) is ErrorCode.INVALID_REQUEST
    assert shard.init("x" * 32_767) == (FIRST_PRODUCER_ID, 0)


@pytest.mark.parametrize(("timeout_ms", "is_valid"), [(-1, 0), (0, 0), (1, 1), (900_000, 1), (900_001, 0)])
def test_timeout_is_positive_and_at_most_what_is_configured(timeout_ms: int, is_valid: int) -> None:
    answer = Shard().init(timeout_ms=timeout_ms)
    assert answer == ((FIRST_PRODUCER_ID, 0) if is_valid else ErrorCode.INVALID_TRANSACTION_TIMEOUT)


@pytest.mark.parametrize("state", IDLE)
def test_next_producer_gets_the_next_epoch_and_an_empty_session(state: S) -> None:
    shard = Shard(a_transaction(state, 5, last_producer_epoch=4))
    assert shard.init(timeout_ms=9) == (7, 6)
    value = shard.value()
    assert (value.state, value.timeout_ms, value.last_producer_epoch) == (S.EMPTY, 9, -1)
    assert (value.start_timestamp_ms, value.partitions) == (-1, frozenset())


@pytest.mark.parametrize("state", IDLE)
def test_producer_that_is_current_goes_on_at_the_next_epoch(state: S) -> None:
    shard = Shard(a_transaction(state, 5))
    assert shard.init(expected=(7, 5)) == (7, 6)
    assert shard.value().last_producer_epoch == 5


def test_retry_gets_the_same_answer_again() -> None:
    shard = Shard(a_transaction(S.EMPTY, 5))
    assert [shard.init(expected=(7, 5)) for _ in range(3)] == [(7, 6)] * 3


def test_retry_after_a_failover_is_fenced() -> None:
    """The epoch before is in no record, as in Kafka."""
    shard = Shard(a_transaction(S.EMPTY, 5))
    shard.init(expected=(7, 5))
    shard.fail_over()
    assert shard.init(expected=(7, 5)) is ErrorCode.PRODUCER_FENCED


def test_retry_after_another_producer_began_is_fenced() -> None:
    shard = Shard(a_transaction(S.EMPTY, 5))
    shard.init(expected=(7, 5))
    assert shard.init() == (7, 7)
    assert shard.init(expected=(7, 5)) is ErrorCode.PRODUCER_FENCED
    assert shard.init(expected=(7, 6)) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("expected", [(7, 4), (7, 6), (8, 5), (8, LAST)])
@pytest.mark.parametrize("state", IDLE)
def test_producer_that_is_not_current_is_fenced(state: S, expected: Producer) -> None:
    shard = Shard(a_transaction(state, 5))
    assert shard.init(expected=expected, version=4) is ErrorCode.PRODUCER_FENCED
    assert shard.init(expected=expected, version=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert shard.value() == a_transaction(state, 5)


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_transaction_that_is_being_completed_must_be_awaited(state: S) -> None:
    shard = Shard(a_transaction(state))
    assert shard.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert shard.init(expected=(7, 5)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert shard.init(expected=(8, 5)) is ErrorCode.PRODUCER_FENCED
    assert len(shard.log) == 1 and not shard.prepared


# --- the epochs of a producer id are used up -----------------------------------------------------------


@pytest.mark.parametrize("epoch", [LAST, LAST + 1])
@pytest.mark.parametrize("state", IDLE)
def test_new_producer_id_follows_the_last_epoch(state: S, epoch: int) -> None:
    shard = Shard(a_transaction(state, epoch))
    assert shard.init() == (FIRST_PRODUCER_ID, 0)
    value = shard.value()
    assert (value.previous_producer_id, value.last_producer_epoch) == (7, -1)


def test_epoch_before_the_last_is_followed_by_the_last() -> None:
    assert Shard(a_transaction(S.EMPTY, LAST - 1)).init() == (7, LAST)


def test_current_producer_at_the_last_epoch_goes_on_with_a_new_id_and_may_retry() -> None:
    shard = Shard(a_transaction(S.COMPLETE_COMMIT, LAST))
    assert shard.init(expected=(7, LAST)) == (FIRST_PRODUCER_ID, 0)
    assert shard.init(expected=(7, LAST)) == (FIRST_PRODUCER_ID, 0), "the answer was lost"
    assert shard.next_producer_id == FIRST_PRODUCER_ID + 1


def test_last_epoch_of_the_old_id_is_none_of_the_new_one() -> None:
    shard = Shard(a_transaction(S.COMPLETE_COMMIT, LAST))
    shard.init(expected=(7, LAST))
    assert shard.init(expected=(FIRST_PRODUCER_ID, LAST)) is ErrorCode.PRODUCER_FENCED


def test_retry_that_reached_the_last_epoch_gets_the_same_answer() -> None:
    shard = Shard(a_transaction(S.EMPTY, LAST - 1))
    assert shard.init(expected=(7, LAST - 1)) == (7, LAST)
    assert shard.init(expected=(7, LAST - 1)) == (7, LAST)
    assert shard.init(expected=(7, LAST - 2)) is ErrorCode.PRODUCER_FENCED


def test_id_before_counts_only_if_its_epochs_were_used_up() -> None:
    """Epoch 0 of the old id is that of a zombie, although the new id is at epoch 0."""
    shard = Shard(a_transaction(S.EMPTY, 0, producer_id=8, previous_producer_id=7, last_producer_epoch=0))
    assert shard.init(expected=(7, 0)) is ErrorCode.PRODUCER_FENCED
    assert shard.init(expected=(7, LAST - 1)) is ErrorCode.PRODUCER_FENCED
    assert shard.init(expected=(8, 0)) == (8, 1)


def test_id_before_is_forgotten_with_the_next_change() -> None:
    shard = Shard(a_transaction(S.COMPLETE_COMMIT, LAST))
    shard.init(expected=(7, LAST))
    shard.init(expected=(FIRST_PRODUCER_ID, 0))
    assert shard.init(expected=(7, LAST)) is ErrorCode.PRODUCER_FENCED


# --- a transaction is open -----------------------------------------------------------------------------


@pytest.mark.parametrize("expected", [NO_PRODUCER, (7, 5)])
@pytest.mark.parametrize(("version", "last_epoch"), [(TV_0, -1), (TV_1, -1), (TV_2, 5)])
def test_open_transaction_is_aborted_at_an_epoch_that_nobody_gets(
    version: TransactionVersion, last_epoch: int, expected: Producer
) -> None:
    shard = Shard(a_transaction(S.ONGOING, 5), version=version)
    assert shard.init(expected=expected) is ErrorCode.CONCURRENT_TRANSACTIONS
    value = shard.value()
    assert (value.state, value.producer_epoch, value.last_producer_epoch) == (S.PREPARE_ABORT, 6, last_epoch)
    assert (value.partitions, value.timeout_ms) == (frozenset({T0}), TIMEOUT_MS)
    assert shard.prepared == [shard.value()] and len(shard.log) == 2
    assert shard.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    shard.complete()
    assert shard.init() == (7, 7)


def test_fence_is_by_the_rules_of_the_cluster_not_of_the_client() -> None:
    shard = Shard(a_transaction(S.ONGOING, client_version=TV_2), version=TV_0)
    shard.init()
    assert shard.value().client_version is TV_0
    shard = Shard(a_transaction(S.ONGOING, client_version=TV_0), version=TV_2)
    shard.init()
    assert shard.value().client_version is TV_2


def test_fence_at_the_last_epoch_of_tv_0_is_followed_by_a_new_id() -> None:
    shard = Shard(a_transaction(S.ONGOING, LAST), version=TV_0)
    assert shard.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert shard.value().producer_epoch == LAST + 1
    shard.complete()
    assert (shard.value().producer_id, shard.value().producer_epoch) == (7, LAST + 1)
    assert shard.init() == (FIRST_PRODUCER_ID, 0)


@pytest.mark.parametrize("epoch", [LAST, LAST + 1])
def test_fence_at_the_last_epoch_of_tv_2_moves_on_to_a_new_id(epoch: int) -> None:
    shard = Shard(a_transaction(S.ONGOING, epoch))
    assert shard.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    value = shard.value()
    assert (value.producer_id, value.producer_epoch, value.next_producer_id) == (
        7,
        LAST + 1,
        FIRST_PRODUCER_ID,
    )
    shard.complete()
    assert shard.init() == (FIRST_PRODUCER_ID, 1)


def test_fence_never_exceeds_the_largest_epoch() -> None:
    shard = Shard(a_transaction(S.ONGOING, LAST + 1), version=TV_0)
    shard.init()
    assert shard.value().producer_epoch == LAST + 1
