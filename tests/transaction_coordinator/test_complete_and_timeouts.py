"""What happens without a request: markers are written, transactions time out, ids expire."""

from dataclasses import replace

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.transaction_coordinator.call import NeedsProducerIdError
from pykraft.transaction_coordinator.requests.endings import find_expired, find_timed_out, handle_timeout
from pykraft.transaction_coordinator.result import NOTHING
from pykraft.transaction_coordinator.state import EMPTY_STATE
from pykraft.transaction_coordinator.transaction import TransactionState, TransactionVersion
from tests.transaction_coordinator.shards import (
    FIRST_PRODUCER_ID,
    NAME,
    NO_PRODUCER,
    T0,
    TIMEOUT_MS,
    Shard,
    a_transaction,
)

S = TransactionState
TV_0, TV_1, TV_2 = TransactionVersion
LAST = 32766
WEEK_MS = 604_800_000
OTHERS = [S.EMPTY, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]

# --- all markers are written ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prepared", "complete"),
    [(S.PREPARE_COMMIT, S.COMPLETE_COMMIT), (S.PREPARE_ABORT, S.COMPLETE_ABORT)],
)
def test_transaction_is_complete_as_it_was_decided(prepared: S, complete: S) -> None:
    shard = Shard(a_transaction(prepared, 5, start_timestamp_ms=3))
    shard.now_ms = 100
    assert shard.complete().response is None
    value = shard.value()
    assert (value.state, value.partitions, value.producer_epoch) == (complete, frozenset(), 5)
    assert (value.start_timestamp_ms, value.last_update_timestamp_ms) == (3, 100)
    assert not shard.state.prepared


def test_late_report_of_an_earlier_transaction_changes_nothing() -> None:
    """By the rules of TV_0 both have the same producer and epoch."""
    shard = Shard(a_transaction(S.ONGOING, 5))
    shard.end((7, 5), commit=True, version=3)
    first = shard.value()
    shard.complete()
    assert shard.complete(prepared=first) == NOTHING
    shard.now_ms = 10
    shard.add((7, 5))
    assert shard.complete(prepared=first) == NOTHING
    shard.end((7, 5), commit=True, version=3)
    assert shard.complete(prepared=first) == NOTHING
    assert shard.value().state is S.PREPARE_COMMIT


def test_report_counts_at_the_next_coordinator() -> None:
    """It reads the same transaction, but not which epoch was the one before."""
    shard = Shard(a_transaction(S.ONGOING, 5))
    shard.end((7, 5), commit=True)
    prepared = shard.value()
    shard.fail_over()
    shard.complete(prepared=prepared)
    assert shard.value().state is S.COMPLETE_COMMIT


def test_report_about_an_id_that_is_gone_changes_nothing() -> None:
    assert Shard().complete(prepared=a_transaction(S.PREPARE_COMMIT)) == NOTHING


def test_new_coordinator_knows_whose_markers_are_due() -> None:
    shard = Shard(
        *(a_transaction(state, transactional_id=state.label) for state in S if state <= S.COMPLETE_ABORT)
    )
    assert set(shard.rebuilt().prepared) == {"PrepareCommit", "PrepareAbort"}


# --- timeouts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "last_epoch"), [(TV_0, -1), (TV_1, -1), (TV_2, 5)])
def test_transaction_is_aborted_when_its_timeout_is_over(
    version: TransactionVersion, last_epoch: int
) -> None:
    shard = Shard(a_transaction(S.ONGOING, 5, start_timestamp_ms=10), version=version)
    shard.now_ms = 10 + TIMEOUT_MS
    assert shard.abort_timed_out() == []
    shard.now_ms += 1
    assert shard.abort_timed_out() == [NAME]
    value = shard.value()
    assert (value.state, value.producer_epoch, value.last_producer_epoch) == (S.PREPARE_ABORT, 6, last_epoch)
    assert value.partitions == {T0} and shard.prepared == [shard.value()]
    assert shard.abort_timed_out() == []


@pytest.mark.parametrize("version", [3, 5])
def test_producer_of_a_transaction_that_timed_out_cannot_commit_it(version: int) -> None:
    shard = Shard(a_transaction(S.ONGOING, 5))
    shard.now_ms = TIMEOUT_MS + 1
    shard.abort_timed_out()
    for _ in range(2):
        answer = shard.end((7, 5), commit=True, version=version)
        assert answer is (ErrorCode.INVALID_TXN_STATE if version == 5 else ErrorCode.PRODUCER_FENCED)
        if shard.value().state is S.PREPARE_ABORT:
            shard.complete()
    assert shard.add((7, 5)) == {T0: ErrorCode.PRODUCER_FENCED}


@pytest.mark.parametrize("state", OTHERS)
def test_nothing_but_an_open_transaction_times_out(state: S) -> None:
    shard = Shard(a_transaction(state))
    shard.now_ms = 2 * WEEK_MS
    assert list(find_timed_out(shard.state, shard.now_ms)) == []
    assert not shard.time_out()
    assert shard.value() == a_transaction(state)


def test_timeout_of_an_external_coordinator_is_never_over() -> None:
    shard = Shard(a_transaction(S.ONGOING, timeout_ms=2**31 - 1))
    shard.now_ms = 2**50
    assert shard.abort_timed_out() == [] and not shard.time_out()


def test_transactions_that_timed_out_are_found_in_the_order_of_their_deadlines() -> None:
    state, names = EMPTY_STATE, [f"id-{number}" for number in range(50)]
    for age, name in enumerate(names):
        late = replace(a_transaction(S.ONGOING), transactional_id=name, start_timestamp_ms=(50 - age) // 2)
        state = state.with_transaction(late)
    found = list(filter(None, find_timed_out(state, 2 * WEEK_MS)))
    assert found == sorted(names, key=lambda name: (state.deadlines_ms[name], name))


def test_transaction_that_ended_meanwhile_is_not_aborted() -> None:
    shard = Shard(a_transaction(S.ONGOING, 5))
    shard.now_ms = TIMEOUT_MS + 1
    (found,) = filter(None, find_timed_out(shard.state, shard.now_ms))
    shard.end((7, 5), commit=True)
    assert found == NAME and not shard.time_out()
    assert shard.value().state is S.PREPARE_COMMIT


def test_next_transaction_of_an_id_has_a_timeout_of_its_own() -> None:
    shard = Shard(a_transaction(S.ONGOING, 5))
    shard.end((7, 5), commit=True)
    shard.complete()
    shard.now_ms = TIMEOUT_MS
    shard.add((7, 6))
    shard.now_ms = TIMEOUT_MS + 1
    assert shard.abort_timed_out() == []


@pytest.mark.parametrize("epoch", [LAST, LAST + 1])
def test_timeout_at_the_last_epoch_moves_on_to_a_new_producer_id(epoch: int) -> None:
    shard = Shard(a_transaction(S.ONGOING, epoch))
    shard.now_ms = TIMEOUT_MS + 1
    with pytest.raises(NeedsProducerIdError):
        handle_timeout(shard.state, NAME, shard.call())
    assert shard.time_out()
    shard.complete()
    assert (shard.value().producer_id, shard.value().producer_epoch) == (FIRST_PRODUCER_ID, 0)


def test_walk_looks_at_open_transactions_only() -> None:
    idle = [a_transaction(S.EMPTY, transactional_id=f"idle-{i}") for i in range(100)]
    shard = Shard(*idle, a_transaction(S.ONGOING))
    assert list(find_timed_out(shard.state, 0)) == [None]


# --- expiry --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_id_that_was_not_used_for_a_week_is_deleted(state: S) -> None:
    shard = Shard(a_transaction(state, last_update_timestamp_ms=10))
    shard.now_ms = WEEK_MS + 9
    assert shard.expire() == []
    shard.now_ms += 1
    assert shard.expire() == [NAME]
    assert not shard.state.transactions and shard.log[-1][1] is None
    assert shard.end((7, 5), commit=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert shard.init() == (FIRST_PRODUCER_ID, 0), "never an epoch of the producer id that was forgotten"


@pytest.mark.parametrize("state", [S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_id_with_a_transaction_never_expires(state: S) -> None:
    shard = Shard(a_transaction(state))
    shard.now_ms = 2 * WEEK_MS
    assert list(find_expired(shard.state, shard.call())) == [None]
    assert shard.expire() == [] and shard.value() == a_transaction(state)


def test_id_that_is_used_again_meanwhile_stays() -> None:
    names = ["a", "b", "c"]
    shard = Shard(*(a_transaction(S.EMPTY, transactional_id=name) for name in names))
    shard.now_ms = WEEK_MS
    found = [name for name in find_expired(shard.state, shard.call()) if name]
    assert sorted(found) == names
    shard.init("b")
    assert shard.expire() == ["a", "c"]


def test_configured_times_are_kafkas() -> None:
    config = Shard().config
    assert (config.max_timeout_ms, config.id_expiration_ms) == (900_000, WEEK_MS)
    shorter = Shard(a_transaction(S.EMPTY), config=replace(config, max_timeout_ms=5, id_expiration_ms=5))
    assert shorter.init(timeout_ms=6) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    shorter.now_ms = 5
    assert shorter.expire() == [NAME]
    assert shorter.end(NO_PRODUCER, commit=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
