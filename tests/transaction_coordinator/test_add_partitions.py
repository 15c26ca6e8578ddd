"""AddPartitionsToTxn and AddOffsetsToTxn: what becomes part of a transaction."""

import pytest

from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pykraft.transaction_coordinator.requests import add_partitions
from pykraft.transaction_coordinator.requests.add_partitions import (
    Wanted,
    build_error,
    build_response,
    build_result,
    some_at_a_time,
    transactions_of,
)
from pykraft.transaction_coordinator.transaction import TransactionState, TransactionVersion
from tests.transaction_coordinator.shards import NAME, T0, T1, TIMEOUT_MS, Producer, Shard, a_transaction

S = TransactionState
TV_0, TV_1, TV_2 = TransactionVersion
NONE = ErrorCode.NONE
PREPARED = (S.PREPARE_COMMIT, S.PREPARE_ABORT)
CURRENT: Producer = (7, 5)
OFFSETS = ("__consumer_offsets", 11)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_first_partition_begins_a_transaction(state: S) -> None:
    shard = Shard(a_transaction(state))
    shard.now_ms = 100
    assert shard.add(CURRENT) == {T0: NONE}
    value = shard.value()
    assert (value.state, value.start_timestamp_ms) == (S.ONGOING, 100)
    assert value.partitions == {T0}
    assert (value.producer_epoch, value.timeout_ms) == (5, TIMEOUT_MS)


def test_further_partitions_do_not_move_the_start() -> None:
    shard = Shard(a_transaction(S.ONGOING))
    shard.now_ms = 100
    assert shard.add(CURRENT, [T0, T1]) == {T0: NONE, T1: NONE}
    value = shard.value()
    assert value.partitions == {T0, T1} and value.start_timestamp_ms == 0
    assert value.last_update_timestamp_ms == 100


def test_partition_that_is_there_already_writes_nothing() -> None:
    shard = Shard(a_transaction(S.ONGOING))
    assert shard.add(CURRENT) == {T0: NONE}
    assert len(shard.log) == 1


def test_partitions_of_the_last_transaction_are_not_there_already() -> None:
    shard = Shard(a_transaction(S.COMPLETE_COMMIT, partitions=frozenset({T0})))
    shard.add(CURRENT)
    assert shard.value().state is S.ONGOING


@pytest.mark.parametrize(("version", "rules"), [(0, TV_0), (3, TV_0), (4, TV_2), (5, TV_2)])
def test_version_of_the_request_tells_the_rules_of_the_client(
    version: int, rules: TransactionVersion
) -> None:
    shard = Shard(a_transaction(S.EMPTY))
    assert shard.add(CURRENT, version=version) == {T0: NONE}
    assert shard.value().client_version is rules


REFUSALS = [
    (S.EMPTY, (8, 5), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    (S.ONGOING, (8, 5), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    (S.ONGOING, (7, 4), ErrorCode.PRODUCER_FENCED),
    (S.ONGOING, (7, 6), ErrorCode.PRODUCER_FENCED),
    (S.PREPARE_COMMIT, (7, 4), ErrorCode.PRODUCER_FENCED),
    (S.PREPARE_COMMIT, CURRENT, ErrorCode.CONCURRENT_TRANSACTIONS),
    (S.PREPARE_ABORT, CURRENT, ErrorCode.CONCURRENT_TRANSACTIONS),
]


@pytest.mark.parametrize(("state", "producer", "code"), REFUSALS)
@pytest.mark.parametrize("verify_only", [False, True])
def test_refused_transaction_answers_each_partition_and_stays(
    state: S, producer: Producer, code: ErrorCode, verify_only: bool
) -> None:
    shard = Shard(a_transaction(state))
    answer = shard.add(producer, [T0, T1], version=4, verify_only=verify_only)
    assert answer == {T0: code, T1: code}
    assert shard.value() == a_transaction(state)


@pytest.mark.parametrize("verify_only", [False, True])
@pytest.mark.parametrize(
    ("name", "code"), [("", ErrorCode.INVALID_REQUEST), ("other", ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
)
def test_unknown_id_is_refused(name: str, code: ErrorCode, verify_only: bool) -> None:
    shard = Shard()
    assert shard.add(CURRENT, name=name, version=4, verify_only=verify_only) == {T0: code}
    assert not shard.log
    if not verify_only:
        assert shard.add_offsets(CURRENT, name=name) is code


def test_old_versions_know_only_an_invalid_epoch() -> None:
    shard = Shard(a_transaction(S.ONGOING))
    assert shard.add((7, 4), version=1) == {T0: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert shard.add((7, 4), version=2) == {T0: ErrorCode.PRODUCER_FENCED}
    assert shard.add_offsets((7, 4), version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert shard.add_offsets((7, 4), version=2) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("verify_only", [False, True])
def test_one_partition_that_does_not_exist_fails_all(verify_only: bool) -> None:
    shard = Shard(a_transaction(S.EMPTY))
    answer = shard.add(CURRENT, [T0, ("t", 2), ("nowhere", 0)], version=5, verify_only=verify_only)
    assert answer == {
        T0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert shard.value().state is S.EMPTY


def test_client_adds_no_partition_of_an_internal_topic() -> None:
    """It could write there only through coordinators, which add their partitions themselves."""
    shard = Shard(a_transaction(S.EMPTY))
    refused, other = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED
    for topic in ("__consumer_offsets", "__transaction_state"):
        assert shard.add(CURRENT, [(topic, 0), T0]) == {(topic, 0): refused, T0: other}
    unknown = ("nowhere", 0)
    assert shard.add(CURRENT, [OFFSETS, unknown]) == {
        OFFSETS: refused,
        unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert shard.value().state is S.EMPTY
    assert shard.add(CURRENT, [OFFSETS], version=5) == {OFFSETS: NONE}


@pytest.mark.parametrize("state", [S.ONGOING, S.COMPLETE_COMMIT, S.EMPTY])
def test_verification_tells_which_partitions_are_there(state: S) -> None:
    shard = Shard(a_transaction(state))
    there = NONE if state is S.ONGOING else ErrorCode.TRANSACTION_ABORTABLE
    answer = shard.add(CURRENT, [T0, T1], version=4, verify_only=True)
    assert answer == {T0: there, T1: ErrorCode.TRANSACTION_ABORTABLE}
    assert shard.value() == a_transaction(state)


def test_partitions_are_not_added_for_a_client_that_records_could_not_describe() -> None:
    shard = Shard(a_transaction(S.EMPTY), version=TV_0)
    assert shard.add(CURRENT, version=5) == {T0: ErrorCode.UNSUPPORTED_VERSION}
    assert shard.value() == a_transaction(S.EMPTY)
    assert shard.add(CURRENT, version=3) == {T0: NONE}
    assert shard.add(CURRENT, version=5, verify_only=True) == {T0: NONE}
    assert Shard(a_transaction(S.EMPTY), version=TV_1).add(CURRENT, version=5) == {T0: NONE}


def test_offsets_of_a_group_are_a_partition_like_others() -> None:
    shard = Shard(a_transaction(S.ONGOING))
    assert shard.add_offsets(CURRENT) is NONE
    assert shard.value().partitions == {T0, OFFSETS}
    assert shard.value().client_version is TV_0
    assert shard.add_offsets(CURRENT) is NONE
    assert len(shard.log) == 2, "the second request changed nothing"


@pytest.mark.parametrize(("state", "producer", "code"), REFUSALS)
def test_offsets_are_refused_as_partitions_are(state: S, producer: Producer, code: ErrorCode) -> None:
    shard = Shard(a_transaction(state))
    assert shard.add_offsets(producer) is code
    assert shard.value() == a_transaction(state)


def test_request_of_a_client_is_one_transaction() -> None:
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=NAME,
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=5,
        v3_and_below_topics=topics,
    )
    (transaction,) = transactions_of(request, 3)
    assert transaction == AddPartitionsToTxnTransaction(
        transactional_id=NAME, producer_id=7, producer_epoch=5, topics=topics
    )
    response = at_once(build_error(request, 3, KafkaError(ErrorCode.NOT_COORDINATOR)))
    (topic,) = response.results_by_topic_v3_and_below
    assert (topic.name, [one.partition_index for one in topic.results_by_partition]) == ("t", [0])
    assert topic.results_by_partition[0].partition_error_code == ErrorCode.NOT_COORDINATOR
    assert not response.results_by_transaction


def test_request_of_a_broker_is_answered_by_transactional_id() -> None:
    transactions = [AddPartitionsToTxnTransaction(transactional_id=name) for name in ("a", "b")]
    request = AddPartitionsToTxnRequest(transactions=transactions)
    assert transactions_of(request, 4) == transactions
    results = [at_once(build_result(one.transactional_id, {})) for one in transactions]
    assert build_response(results, 4).results_by_transaction == results


def test_partition_that_is_named_twice_is_answered_once() -> None:
    topics = [
        AddPartitionsToTxnTopic(name="t", partitions=[0, 1, 0]),
        AddPartitionsToTxnTopic(name="t", partitions=[1]),
    ]
    wanted = Wanted(AddPartitionsToTxnTransaction(topics=topics))
    list(wanted.look_up(Shard().call(3)))
    (topic,) = at_once(build_result("id", wanted.all_with(ErrorCode.NONE))).topic_results
    assert [one.partition_index for one in topic.results_by_partition] == [0, 1]


def test_transaction_has_many_partitions_and_not_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its records has all of them."""
    monkeypatch.setattr(add_partitions, "MAX_PARTITIONS", 2)
    shard = Shard(a_transaction(S.ONGOING))
    assert shard.add(CURRENT, [T0, T1]) == {T0: NONE, T1: NONE}
    before = shard.value()
    assert shard.add(CURRENT, [("u", 0)]) == {("u", 0): ErrorCode.INVALID_REQUEST}
    assert shard.add_offsets(CURRENT) is ErrorCode.INVALID_REQUEST
    assert shard.value() == before
    assert shard.add(CURRENT, [T1]) == {T1: NONE}, "it has this one"


def test_transactions_are_decided_as_many_at_a_time_as_a_turn_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(add_partitions, "_IDS_AT_ONCE", 3)
    monkeypatch.setattr(add_partitions, "_PARTITIONS_AT_ONCE", 10)
    sizes = [1, 1, 1, 1, 4, 5, 1, 30, 2, 10, 1]
    transactions = [
        AddPartitionsToTxnTransaction(
            topics=[AddPartitionsToTxnTopic(name="t", partitions=list(range(size)))]
        )
        for size in sizes
    ]
    parts = [[len(one.topics[0].partitions) for one in some] for some in some_at_a_time(transactions)]
    assert parts == [[1, 1, 1], [1, 4, 5], [1], [30], [2], [10], [1]]
    assert list(some_at_a_time([])) == []
