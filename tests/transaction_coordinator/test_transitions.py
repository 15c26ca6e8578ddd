"""The table of states: complete, like Kafka's, and checked when decisions are replayed."""

from dataclasses import replace
from itertools import product

import pytest

from pykraft.transaction_coordinator.log.records import TransactionRecord, record_of
from pykraft.transaction_coordinator.log.replay import replay, replay_decided
from pykraft.transaction_coordinator.state import EMPTY_STATE
from pykraft.transaction_coordinator.transaction import NO_PARTITIONS, Transaction, TransactionState
from pykraft.transaction_coordinator.transitions import TRANSITIONS, check_transition
from tests.transaction_coordinator.shards import NAME, T0, a_transaction

S = TransactionState

KAFKAS_PREDECESSORS = {
    S.EMPTY: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.ONGOING: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.PREPARE_COMMIT: {S.ONGOING},
    S.PREPARE_ABORT: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
    S.COMPLETE_ABORT: {S.PREPARE_ABORT},
    None: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
}
"""``TransactionState.VALID_PREVIOUS_STATES`` of Kafka 4.3, without PrepareEpochFence; None is Dead."""


def test_states_follow_each_other_as_in_kafka() -> None:
    assert {(old, new) for new, allowed in KAFKAS_PREDECESSORS.items() for old in allowed} == {
        edge for edge in TRANSITIONS if edge[0] is not None
    }
    assert [new for old, new in TRANSITIONS if old is None] == [S.EMPTY]
    assert all(edge.reason for edge in TRANSITIONS.values())


ONGOING = a_transaction(S.ONGOING)
COMMITTING = a_transaction(S.PREPARE_COMMIT)
COMMITTED = a_transaction(S.COMPLETE_COMMIT)
ABORTING = a_transaction(S.PREPARE_ABORT)
MOVING = replace(COMMITTING, next_producer_id=8)
EMPTY = a_transaction(S.EMPTY)


@pytest.mark.parametrize(
    ("what", "old", "new"),
    [
        ("begins with a transaction", None, ONGOING),
        ("begins at another epoch", None, EMPTY),
        ("commit of an abort", ABORTING, COMMITTED),
        ("abort of a commit", COMMITTED, a_transaction(S.COMPLETE_ABORT)),
        ("deleted while open", ONGOING, None),
        ("epoch goes back", EMPTY, replace(EMPTY, producer_epoch=4)),
        ("epoch jumps", EMPTY, replace(EMPTY, producer_epoch=7)),
        ("new id not at epoch 0", EMPTY, replace(EMPTY, producer_id=8)),
        ("partition at another epoch", EMPTY, replace(ONGOING, producer_epoch=6)),
        ("partition of another producer", EMPTY, replace(ONGOING, producer_id=8, producer_epoch=0)),
        ("abort without an epoch of its own", EMPTY, replace(ABORTING, partitions=NO_PARTITIONS)),
        ("completion at another epoch", COMMITTING, replace(COMMITTED, producer_epoch=6)),
        ("completion keeps partitions", COMMITTING, replace(COMMITTED, partitions=frozenset({T0}))),
        ("another next id", MOVING, replace(COMMITTED, producer_id=9, producer_epoch=0)),
        ("next id lost", MOVING, COMMITTED),
        ("next id of a complete transaction", COMMITTING, replace(COMMITTED, next_producer_id=8)),
        ("partition lost", ONGOING, replace(ONGOING, partitions=NO_PARTITIONS)),
        ("partition lost at the end", ONGOING, replace(COMMITTING, partitions=NO_PARTITIONS)),
        ("another timeout", ONGOING, replace(COMMITTING, timeout_ms=1)),
        ("empty with partitions", EMPTY, replace(EMPTY, producer_epoch=6, partitions=frozenset({T0}))),
    ],
)  # fmt: skip
def test_impossible_decision_is_a_bug(what: str, old: Transaction | None, new: Transaction | None) -> None:
    state = EMPTY_STATE if old is None else replay(EMPTY_STATE, record_of(old))
    with pytest.raises(AssertionError):
        replay_decided(state, [TransactionRecord(NAME, new)])


def test_largest_epoch_has_no_next_one() -> None:
    old = replace(ONGOING, producer_epoch=32767)
    check_transition(old, replace(COMMITTING, producer_epoch=32767, next_producer_id=8))
    with pytest.raises(AssertionError):
        check_transition(old, replace(COMMITTING, producer_epoch=32768))


def test_compacted_log_may_have_any_state_after_any_other() -> None:
    states = [state for state in S if state <= S.COMPLETE_ABORT]
    for first, second in product(states, repeat=2):
        state = replay(EMPTY_STATE, record_of(a_transaction(first)))
        state = replay(state, record_of(a_transaction(second)))
        assert state == replay(EMPTY_STATE, record_of(a_transaction(second))), (first, second)
        assert replay(state, TransactionRecord(NAME, None)) == EMPTY_STATE
    assert replay(EMPTY_STATE, TransactionRecord(NAME, None)) == EMPTY_STATE
