"""EndTxn: the tables of both transaction versions, and the producer that the answer has."""

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.transaction_coordinator.transaction import TransactionState, TransactionVersion
from tests.transaction_coordinator.shards import (
    FIRST_PRODUCER_ID,
    NO_PRODUCER,
    T0,
    Shard,
    a_transaction,
)

S = TransactionState
TV_0, TV_1, TV_2 = TransactionVersion
LAST = 32766
PF, ITS, CT, IPM = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)

# What follows: an error; END, the transaction is ended; NONE, success without a change.
TV_0_TABLE = """
                 abort  commit
Empty            ITS    ITS
Ongoing          END    END
PrepareCommit    ITS    CT
PrepareAbort     CT     ITS
CompleteCommit   ITS    NONE
CompleteAbort    NONE   ITS
"""
TV_2_TABLE = """
                 abort-retry  abort-current  commit-retry  commit-current
Empty            PF           END            PF            ITS
Ongoing          PF           END            PF            END
PrepareCommit    ITS          CT             CT            CT
PrepareAbort     CT           CT             ITS           CT
CompleteCommit   ITS          END            NONE          ITS
CompleteAbort    NONE         END            ITS           ITS
"""


def cells(table: str) -> list[tuple[S, str, str]]:
    head, *rows = table.strip().splitlines()
    states = {state.label: state for state in S}
    return [
        (states[row.split()[0]], column, cell)
        for row in rows
        for column, cell in zip(head.split(), row.split()[1:], strict=True)
    ]


def code_of(cell: str) -> ErrorCode:
    return {"PF": PF, "ITS": ITS, "CT": CT}[cell]


@pytest.mark.parametrize("version", [0, 2, 4])
@pytest.mark.parametrize(("state", "column", "cell"), cells(TV_0_TABLE))
def test_table_of_tv_0(state: S, column: str, cell: str, version: int) -> None:
    before = a_transaction(state, 5)
    shard = Shard(before)
    commit = column == "commit"
    answer = shard.end((7, 5), commit=commit, version=version)
    if cell == "END":
        value = shard.value()
        assert answer == NO_PRODUCER
        assert value.state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
        assert (value.producer_epoch, value.client_version) == (5, TV_0)
        assert value.partitions == {T0}
        assert shard.prepared == [shard.value()]
    else:
        assert answer == (NO_PRODUCER if cell == "NONE" else code_of(cell))
        assert shard.value() == before and not shard.prepared


@pytest.mark.parametrize(("state", "column", "cell"), cells(TV_2_TABLE))
def test_table_of_tv_2(state: S, column: str, cell: str) -> None:
    before = a_transaction(state, 5, client_version=TV_2)
    shard = Shard(before)
    shard.now_ms = 100
    result, which = column.split("-")
    answer = shard.end((7, 4 if which == "retry" else 5), commit=result == "commit")
    if cell == "END":
        value = shard.value()
        assert answer == (7, 6)
        assert value.state is (S.PREPARE_COMMIT if result == "commit" else S.PREPARE_ABORT)
        assert (value.producer_epoch, value.last_producer_epoch) == (6, 5)
        assert (value.client_version, value.partitions) == (TV_2, before.partitions)
        assert value.start_timestamp_ms == (0 if state is S.ONGOING else 100)
        assert shard.prepared == [shard.value()]
    else:
        assert answer == ((7, 5) if cell == "NONE" else code_of(cell))
        assert shard.value() == before and not shard.prepared


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("state", [state for state in S if state <= S.COMPLETE_ABORT])
def test_any_other_producer_is_refused_in_every_state(state: S, commit: bool, version: int) -> None:
    shard = Shard(a_transaction(state, 5))
    for epoch in (0, 3, 6, LAST):
        assert shard.end((7, epoch), commit=commit, version=version) is PF
    assert shard.end((8, 5), commit=commit, version=version) is IPM
    assert shard.value() == a_transaction(state, 5)


@pytest.mark.parametrize("version", [4, 5])
def test_unknown_id_is_refused(version: int) -> None:
    assert Shard().end((7, 5), commit=True, version=version) is IPM
    assert Shard().end((7, 5), commit=True, version=version, name="") is ErrorCode.INVALID_REQUEST


def test_retry_of_tv_0_at_an_older_epoch_is_fenced() -> None:
    shard = Shard(a_transaction(S.COMPLETE_COMMIT, 5))
    assert shard.end((7, 4), commit=True, version=2) is PF
    assert shard.end((7, 4), commit=True, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_commit_of_tv_2_and_its_retries_have_one_answer() -> None:
    shard = Shard(a_transaction(S.ONGOING, 5))
    assert shard.end((7, 5), commit=True) == (7, 6)
    assert shard.end((7, 5), commit=True) is CT
    shard.complete()
    assert shard.end((7, 5), commit=True) == (7, 6)
    assert shard.end((7, 5), commit=True) == (7, 6)
    assert len(shard.log) == 3


def test_retry_is_known_after_a_failover() -> None:
    shard = Shard(a_transaction(S.ONGOING, 5))
    shard.end((7, 5), commit=False)
    shard.fail_over()
    shard.complete()
    shard.fail_over()
    assert shard.end((7, 5), commit=False) == (7, 6)


def test_last_epoch_ends_in_a_new_producer_id() -> None:
    shard = Shard(a_transaction(S.ONGOING, LAST))
    assert shard.end((7, LAST), commit=True) == (FIRST_PRODUCER_ID, 0)
    value = shard.value()
    assert (value.producer_id, value.producer_epoch) == (7, LAST + 1), "markers go to the old id"
    assert shard.end((7, LAST), commit=True) is CT
    assert shard.end((7, LAST), commit=False) is ITS
    shard.complete()
    value = shard.value()
    assert (value.producer_id, value.producer_epoch) == (FIRST_PRODUCER_ID, 0)
    assert (value.previous_producer_id, value.next_producer_id) == (7, -1)
    assert shard.add((FIRST_PRODUCER_ID, 0)) == {T0: ErrorCode.NONE}


def test_producer_that_has_its_next_id_already_waits_for_the_completion() -> None:
    """It has the answer of EndTxn, and markers are being written: nothing of what it does is fatal to it."""
    shard = Shard(a_transaction(S.ONGOING, LAST))
    answer = shard.end((7, LAST), commit=True)
    assert answer == (FIRST_PRODUCER_ID, 0)
    new = (FIRST_PRODUCER_ID, 0)
    assert shard.add(new, version=5) == {T0: CT}
    assert shard.add_offsets(new) is CT
    assert shard.end(new, commit=False) is CT and shard.end(new, commit=True) is CT
    assert shard.init(expected=new) is CT
    for stranger in ((FIRST_PRODUCER_ID, 1), (FIRST_PRODUCER_ID + 1, 0)):
        assert shard.add(stranger, version=5) == {T0: IPM}
        assert shard.end(stranger, commit=False) is IPM
    shard.complete()
    assert shard.add(new, version=5) == {T0: ErrorCode.NONE}


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("ended_by", [True, False])
def test_next_transaction_cannot_end_before_the_last_one_is_complete(ended_by: bool, commit: bool) -> None:
    """As a producer tries that gave up what it had begun to send: not a zombie, but early."""
    shard = Shard(a_transaction(S.ONGOING, 5))
    assert shard.end((7, 5), commit=ended_by) == (7, 6)
    assert shard.end((7, 6), commit=commit) is CT
    shard.complete()
    assert shard.end((7, 6), commit=commit) == (ITS if commit else (7, 7))


def test_epoch_before_the_last_ends_in_the_last() -> None:
    shard = Shard(a_transaction(S.ONGOING, LAST - 1))
    assert shard.end((7, LAST - 1), commit=True) == (7, LAST)


@pytest.mark.parametrize("fails_over", [False, True])
def test_retry_over_the_last_epoch_gets_the_new_producer_id(fails_over: bool) -> None:
    shard = Shard(a_transaction(S.ONGOING, LAST))
    shard.end((7, LAST), commit=True)
    shard.complete()
    if fails_over:
        shard.fail_over()
    assert shard.end((7, LAST), commit=True) == (FIRST_PRODUCER_ID, 0)
    assert shard.end((7, LAST), commit=False) is ITS
    assert shard.end((7, LAST - 1), commit=True) is IPM


def test_retry_over_the_last_epoch_is_refused_once_another_producer_began() -> None:
    shard = Shard(a_transaction(S.ONGOING, LAST))
    shard.end((7, LAST), commit=True)
    shard.complete()
    assert shard.init() == (FIRST_PRODUCER_ID, 1)
    assert shard.end((7, LAST), commit=True) is IPM


def test_stranger_with_the_last_epoch_is_no_retry() -> None:
    """No client was ever given this epoch of this id."""
    shard = Shard(a_transaction(S.COMPLETE_COMMIT, 0))
    assert shard.end((7, LAST), commit=True) is PF


@pytest.mark.parametrize("commit", [False, True])
def test_zombie_is_not_taken_for_a_retry_of_what_its_successor_did(commit: bool) -> None:
    """By the rules of TV_0 the epoch does not rise, so that the one before belongs to somebody else."""
    shard = Shard(a_transaction(S.EMPTY, 5, client_version=TV_2))
    assert shard.init() == (7, 6)
    shard.add((7, 6))
    shard.end((7, 6), commit=commit, version=3)
    assert shard.end((7, 5), commit=commit, version=5) is PF
    shard.complete()
    assert shard.end((7, 5), commit=commit, version=5) is PF


def test_abort_without_partitions_uses_up_an_epoch() -> None:
    shard = Shard()
    producer = shard.init()
    assert producer == (FIRST_PRODUCER_ID, 0)
    assert shard.end((FIRST_PRODUCER_ID, 0), commit=False) == (FIRST_PRODUCER_ID, 1)
    shard.complete()
    assert shard.value().state is S.COMPLETE_ABORT
    assert shard.end((FIRST_PRODUCER_ID, 0), commit=False) == (FIRST_PRODUCER_ID, 1)


def test_transaction_that_records_could_not_describe_is_not_begun() -> None:
    shard = Shard(a_transaction(S.ONGOING, 5), version=TV_0)
    assert shard.end((7, 5), commit=True, version=5) is ErrorCode.UNSUPPORTED_VERSION
    assert shard.value() == a_transaction(S.ONGOING, 5)
    assert shard.end((7, 5), commit=True, version=4) == NO_PRODUCER


def test_request_decides_the_rules_not_the_feature() -> None:
    """A client of TV_0 in a cluster of TV_2, and the other way round, as clients may lag behind."""
    shard = Shard(a_transaction(S.ONGOING, 5), version=TV_2)
    shard.end((7, 5), commit=True, version=3)
    assert shard.value().producer_epoch == 5
    shard = Shard(a_transaction(S.ONGOING, 5), version=TV_1)
    assert shard.end((7, 5), commit=True, version=5) == (7, 6)
