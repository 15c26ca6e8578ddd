"""DescribeTransactions and ListTransactions: what administrators see."""

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    DescribedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TopicData,
)
from pykraft.transaction_coordinator.requests.describe import handle_describe
from pykraft.transaction_coordinator.requests.list_transactions import (
    build_response,
    iter_listed,
    read_filter,
)
from pykraft.transaction_coordinator.transaction import TransactionState
from tests.narrowing import as_type
from tests.transaction_coordinator.shards import NAME, T0, T1, TIMEOUT_MS, Shard, a_transaction

S = TransactionState


def describe(shard: Shard, name: str = NAME) -> DescribedTransaction:
    result = handle_describe(shard.state, name, shard.call())
    assert not result.records
    return as_type(result.response, DescribedTransaction)


def test_open_transaction_is_described_with_its_partitions_in_order() -> None:
    partitions = frozenset({T1, T0, ("a", 3)})
    shard = Shard(a_transaction(S.ONGOING, 5, start_timestamp_ms=9, partitions=partitions))
    assert describe(shard) == DescribedTransaction(
        error_code=0,
        transactional_id=NAME,
        transaction_state="Ongoing",
        transaction_timeout_ms=TIMEOUT_MS,
        transaction_start_time_ms=9,
        producer_id=7,
        producer_epoch=5,
        topics=[TopicData(topic="a", partitions=[3]), TopicData(topic="t", partitions=[0, 1])],
    )


@pytest.mark.parametrize(
    ("state", "label"),
    [(S.EMPTY, "Empty"), (S.PREPARE_COMMIT, "PrepareCommit"), (S.COMPLETE_ABORT, "CompleteAbort")],
)
def test_states_have_kafkas_names(state: S, label: str) -> None:
    assert describe(Shard(a_transaction(state))).transaction_state == label


@pytest.mark.parametrize(
    ("name", "code"), [("", ErrorCode.INVALID_REQUEST), ("other", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)]
)
def test_unknown_id_is_described_as_an_error(name: str, code: ErrorCode) -> None:
    described = describe(Shard(a_transaction(S.EMPTY)), name)
    assert (described.error_code, described.transactional_id) == (code, name)


SHARD = Shard(
    a_transaction(S.EMPTY, transactional_id="app-1"),
    a_transaction(S.ONGOING, transactional_id="app-2", start_timestamp_ms=1_000, producer_id=8),
    a_transaction(S.ONGOING, transactional_id="job-1", start_timestamp_ms=4_000, producer_id=9),
    a_transaction(S.COMPLETE_ABORT, transactional_id="job-2", start_timestamp_ms=500, producer_id=10),
)
SHARD.now_ms = 5_000


def list_transactions(request: ListTransactionsRequest) -> ListTransactionsResponse:
    listed = iter_listed(SHARD.state, read_filter(request), SHARD.now_ms)
    return build_response(request, [one for one in listed if one is not None])


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ListTransactionsRequest(), "app-1 app-2 job-1 job-2"),
        (ListTransactionsRequest(state_filters=["Ongoing"]), "app-2 job-1"),
        (ListTransactionsRequest(state_filters=["Empty", "CompleteAbort"]), "app-1 job-2"),
        (ListTransactionsRequest(state_filters=["Ongoing", "Nonsense"]), "app-2 job-1"),
        (ListTransactionsRequest(state_filters=["Nonsense"]), ""),
        (ListTransactionsRequest(state_filters=["ongoing"]), ""),
        (ListTransactionsRequest(state_filters=["Dead", "PrepareEpochFence"]), ""),
        (ListTransactionsRequest(producer_id_filters=[9, 10, 11]), "job-1 job-2"),
        (ListTransactionsRequest(producer_id_filters=[9], state_filters=["Empty"]), ""),
        (ListTransactionsRequest(duration_filter=0), "app-1 app-2 job-1 job-2"),
        (ListTransactionsRequest(duration_filter=1_000), "app-1 app-2 job-2"),
        (ListTransactionsRequest(duration_filter=999), "app-1 app-2 job-1 job-2"),
        (ListTransactionsRequest(duration_filter=4_000), "app-1 job-2"),
        (ListTransactionsRequest(transactional_id_pattern=""), "app-1 app-2 job-1 job-2"),
        (ListTransactionsRequest(transactional_id_pattern="app-.*"), "app-1 app-2"),
        (ListTransactionsRequest(transactional_id_pattern="app"), ""),
        (ListTransactionsRequest(transactional_id_pattern=".*-1", state_filters=["Ongoing"]), "job-1"),
    ],
)
def test_listing_has_what_passes_all_filters(request_: ListTransactionsRequest, expected: str) -> None:
    response = list_transactions(request_)
    assert [one.transactional_id for one in response.transaction_states] == expected.split()


def test_listing_has_id_producer_and_state() -> None:
    (listed,) = list_transactions(ListTransactionsRequest(producer_id_filters=[10])).transaction_states
    assert (listed.transactional_id, listed.producer_id, listed.transaction_state) == (
        "job-2",
        10,
        "CompleteAbort",
    )


def test_names_of_states_that_do_not_exist_are_sent_back() -> None:
    request = ListTransactionsRequest(state_filters=["Nonsense", "Dead", "Ongoing", "empty", "Nonsense"])
    assert list_transactions(request).unknown_state_filters == ["Nonsense", "empty"]


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "(?=a)", "(a)\\1"])
def test_pattern_that_is_not_one_of_re2_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as error:
        list_transactions(ListTransactionsRequest(transactional_id_pattern=pattern))
    assert error.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_slow_pattern_is_paused_within_one_id() -> None:
    """The id alone takes tens of thousands of steps; the caller may pause at each None."""
    name = "".join(chr(0x100 + i) for i in range(2_000))
    shard = Shard(a_transaction(S.EMPTY, transactional_id=name))
    wanted = read_filter(ListTransactionsRequest(transactional_id_pattern="(.?){100}.*"))
    steps = list(iter_listed(shard.state, wanted, 0))
    assert len(steps) > 100
    assert [one.transactional_id for one in steps if one is not None] == [name]
