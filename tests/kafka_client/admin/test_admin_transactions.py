"""Administering transactions: whom each request goes to, what is tried again, and whose errors they are."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.blocking import run
from pykraft.kafka_client.errors import ClientTimeoutError, UnsupportedByBrokerError
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import (
    AbortTransactionSpec,
    ProducerIdAndEpoch,
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages import groups, transactions
from tests.kafka_client.scripted import Answer, ScriptedCluster

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
SPEC = AbortTransactionSpec(T0, producer_id=7, producer_epoch=3, coordinator_epoch=5)


@pytest.fixture
def admin(scripted: ScriptedCluster) -> Iterator[Admin]:
    scripted.add_topic("t", {0: (1, 0), 1: (2, 0)})
    scripted.add_topic("u", {0: (1, 0)})
    admin = Admin(scripted.network, scripted.client(request_timeout_ms=20_000).config)
    yield admin
    admin.close()


@pytest.fixture
def coordinators(scripted: ScriptedCluster) -> dict[str, int]:
    """The coordinator of each transactional id, broker 1 unless a test says otherwise."""
    nodes: dict[str, int] = {}

    def answer(broker: int, request: groups.FindCoordinatorRequest, version: int) -> Answer:
        assert request.key_type == 1, "a transactional id is no group"
        return groups.FindCoordinatorResponse(
            coordinators=[
                groups.Coordinator(key=key, node_id=(node := nodes.get(key, 1)), host="broker", port=node)
                for key in request.coordinator_keys
            ]
        )

    scripted.script(ApiKey.FIND_COORDINATOR, answer)
    return nodes


def code(result: object) -> ErrorCode | None:
    return result.code if isinstance(result, KafkaError) else None


# Listing.


def script_list(scripted: ScriptedCluster, code_of: Callable[[int], int] = lambda broker: 0) -> None:
    """Broker n lists the ids ``zn`` and ``an``."""
    scripted.script(
        ApiKey.LIST_TRANSACTIONS,
        lambda broker, request, version: transactions.ListTransactionsResponse(
            error_code=code_of(broker),
            transaction_states=[
                transactions.ListedTransaction(
                    transactional_id=f"{letter}{broker}", producer_id=broker, transaction_state="Ongoing"
                )
                for letter in "za"
            ],
        ),
    )


def test_transactions_of_all_brokers_are_listed_by_id(scripted: ScriptedCluster, admin: Admin) -> None:
    script_list(scripted)
    listed = run(admin.list_transactions(["Ongoing"], [4, 5], longer_than_ms=0, pattern="a.*"))
    assert [(it.transactional_id, it.coordinator_id) for it in listed] == [
        *(("a1", 1), ("a2", 2), ("a3", 3)),
        *(("z1", 1), ("z2", 2), ("z3", 3)),
    ]
    assert listed[0] == TransactionListing("a1", 1, "Ongoing", 1)
    asked = scripted.requests(ApiKey.LIST_TRANSACTIONS)
    assert [broker for broker, _, _ in asked] == [1, 2, 3]
    for _, _, request in asked:
        assert (request.state_filters, request.producer_id_filters) == (["Ongoing"], [4, 5])
        assert (request.duration_filter, request.transactional_id_pattern) == (0, "a.*")


def test_without_filters_all_are_asked_for(scripted: ScriptedCluster, admin: Admin) -> None:
    script_list(scripted)
    assert len(run(admin.list_transactions(pattern=""))) == 6
    for _, _, request in scripted.requests(ApiKey.LIST_TRANSACTIONS):
        assert (request.state_filters, request.producer_id_filters) == ([], [])
        assert (request.duration_filter, request.transactional_id_pattern) == (-1, None)


def test_only_the_broker_that_was_loading_is_asked_again(scripted: ScriptedCluster, admin: Admin) -> None:
    codes = {2: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE]}
    script_list(scripted, lambda broker: codes[broker].pop(0) if codes.get(broker) else 0)
    assert len(run(admin.list_transactions())) == 6
    assert [broker for broker, _, _ in scripted.requests(ApiKey.LIST_TRANSACTIONS)] == [1, 2, 2, 2, 3]


def test_one_broker_that_refuses_fails_the_whole_list(scripted: ScriptedCluster, admin: Admin) -> None:
    script_list(scripted, lambda broker: ErrorCode.INVALID_REGULAR_EXPRESSION if broker == 3 else 0)
    with pytest.raises(KafkaError) as caught:
        run(admin.list_transactions(pattern="("))
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "sent to broker 3" in caught.value.message


@pytest.mark.parametrize(
    ("newest", "filters", "works"),
    [
        (0, {}, True),
        (0, {"longer_than_ms": -1}, True),
        (0, {"longer_than_ms": 0}, False),
        (1, {"longer_than_ms": 0}, True),
        (1, {"pattern": "a"}, False),
        (2, {"pattern": "a"}, True),
    ],
)
def test_broker_that_cannot_filter_lists_nothing(
    scripted: ScriptedCluster, admin: Admin, newest: int, filters: Mapping[str, object], works: bool
) -> None:
    script_list(scripted)
    scripted.brokers[2].ranges = {ApiKey.LIST_TRANSACTIONS: (0, newest)}
    listing = admin.list_transactions(**filters)  # type: ignore[arg-type]
    if works:
        assert len(run(listing)) == 6
        return
    with pytest.raises(UnsupportedByBrokerError, match="broker 2"):
        run(listing)


# Describing transactional ids.


def script_describe(scripted: ScriptedCluster, code_of: Callable[[int, str], int]) -> None:
    scripted.script(
        ApiKey.DESCRIBE_TRANSACTIONS,
        lambda broker, request, version: transactions.DescribeTransactionsResponse(
            transaction_states=[
                transactions.DescribedTransaction(
                    error_code=code_of(broker, id),
                    transactional_id=id,
                    transaction_state="Ongoing",
                    transaction_timeout_ms=60_000,
                    transaction_start_time_ms=-1 if id == "idle" else 9,
                    producer_id=7,
                    producer_epoch=3,
                    topics=[
                        transactions.TopicData(topic="u", partitions=[0]),
                        transactions.TopicData(topic="t", partitions=[1, 0]),
                    ],
                )
                for id in request.transactional_ids
            ]
        ),
    )


def test_transactions_are_described_by_their_coordinators_in_the_order_asked(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    coordinators["b"] = 2
    script_describe(scripted, lambda broker, id: 0)
    found = run(admin.describe_transactions(["b", "idle", "a", "b"]))
    assert list(found) == ["b", "idle", "a"]
    assert found["b"] == TransactionDescription("b", 2, "Ongoing", 7, 3, 60_000, 9, (T0, T1, U0))
    idle = found["idle"]
    assert isinstance(idle, TransactionDescription) and idle.start_time_ms is None
    asked = scripted.requests(ApiKey.DESCRIBE_TRANSACTIONS)
    assert [(broker, request.transactional_ids) for broker, _, request in asked] == [
        (1, ["idle", "a"]),
        (2, ["b"]),
    ]


def test_transaction_that_moves_is_described_where_it_is_and_final_errors_stay(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    codes = {
        (1, "moved"): ErrorCode.NOT_COORDINATOR,
        (1, "nobody"): ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        (1, "mine"): ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        (1, "bad"): ErrorCode.INVALID_REQUEST,
    }
    script_describe(scripted, lambda broker, id: codes.get((broker, id), 0))
    scripted.network.on_sleep = lambda: coordinators.update(moved=2)
    found = run(admin.describe_transactions(["moved", "nobody", "mine", "bad"]))
    assert isinstance(found["moved"], TransactionDescription) and found["moved"].coordinator_id == 2
    assert [code(found[id]) for id in ("nobody", "mine", "bad")] == [
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REQUEST,
    ]
    asked = [request.transactional_ids for _, _, request in scripted.requests(ApiKey.DESCRIBE_TRANSACTIONS)]
    assert asked == [["moved", "nobody", "mine", "bad"], ["moved"]]
    nobody = found["nobody"]
    assert isinstance(nobody, KafkaError)
    assert nobody.message == (
        "DescribeTransactions request for transactionalId `nobody` failed because the ID could not be found"
    )


def test_broker_that_knows_coordinators_of_groups_only_is_not_asked(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    for broker in scripted.brokers.values():
        broker.ranges = {ApiKey.FIND_COORDINATOR: (0, 0)}
    script_describe(scripted, lambda broker, id: 0)
    found = run(admin.describe_transactions(["a"]))
    assert isinstance(found["a"], UnsupportedByBrokerError)
    assert scripted.requests(ApiKey.FIND_COORDINATOR) == []


# Fencing.


def script_init(scripted: ScriptedCluster, codes_of: Mapping[str, list[int]]) -> None:
    left = {id: list(codes) for id, codes in codes_of.items()}

    def answer(broker: int, request: transactions.InitProducerIdRequest, version: int) -> Answer:
        assert request.transactional_id is not None
        codes = left.get(request.transactional_id)
        number = codes.pop(0) if codes else 0
        return transactions.InitProducerIdResponse(
            error_code=number, producer_id=-1 if number else 7, producer_epoch=-1 if number else 4
        )

    scripted.script(ApiKey.INIT_PRODUCER_ID, answer)


def test_producers_are_fenced_once_their_transactions_are_aborted(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    coordinators["b"] = 2
    busy = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS]
    script_init(scripted, {"a": [*busy], "c": [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]})
    found = run(admin.fence_producers(["c", "a", "b"]))
    assert list(found) == ["c", "a", "b"]
    assert found["a"] == found["b"] == ProducerIdAndEpoch(7, 4)
    assert code(found["c"]) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    asked = scripted.requests(ApiKey.INIT_PRODUCER_ID)
    assert [(broker, it.transactional_id) for broker, _, it in asked] == [
        *((1, "c"), (1, "a"), (1, "a"), (1, "a")),
        (2, "b"),
    ]
    for _, _, request in asked:
        assert (request.producer_id, request.producer_epoch) == (-1, -1), "of no producer"
        assert request.transaction_timeout_ms == 20_000


def test_timeout_of_the_request_is_the_transactions_too(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    script_init(scripted, {})
    run(admin.fence_producers(["a"], timeout_ms=5_000))
    ((_, _, request),) = scripted.requests(ApiKey.INIT_PRODUCER_ID)
    assert request.transaction_timeout_ms == 5_000


def test_transaction_that_does_not_end_in_time_is_not_terminated(
    scripted: ScriptedCluster, admin: Admin, coordinators: dict[str, int]
) -> None:
    script_init(scripted, {"a": [ErrorCode.CONCURRENT_TRANSACTIONS] * 1_000})
    with pytest.raises(ClientTimeoutError, match="CONCURRENT_TRANSACTIONS"):
        run(admin.force_terminate_transaction("a", timeout_ms=3_000))
    run(admin.force_terminate_transaction("b"))


# Producers of partitions.


def script_producers(scripted: ScriptedCluster, code_of: Callable[[int, TopicPartition], int]) -> None:
    """Broker n knows producer n, in a transaction, and another one that has none."""

    def answer(broker: int, request: transactions.DescribeProducersRequest, version: int) -> Answer:
        topics = []
        for topic in request.topics:
            partitions = []
            for index in topic.partition_indexes:
                number = code_of(broker, TopicPartition(topic.name, index))
                states = [
                    transactions.ProducerState(
                        producer_id=broker,
                        producer_epoch=3,
                        last_sequence=4,
                        last_timestamp=5,
                        coordinator_epoch=0,
                        current_txn_start_offset=0,
                    ),
                    transactions.ProducerState(producer_id=90, producer_epoch=0, coordinator_epoch=-1),
                ]
                partitions.append(
                    transactions.PartitionResponse(
                        partition_index=index,
                        error_code=number,
                        error_message="said so" if number else None,
                        active_producers=[] if number else states,
                    )
                )
            topics.append(transactions.TopicResponse(name=topic.name, partitions=partitions))
        return transactions.DescribeProducersResponse(topics=topics)

    scripted.script(ApiKey.DESCRIBE_PRODUCERS, answer)


def producers(broker: int) -> tuple[ProducerState, ...]:
    return (ProducerState(broker, 3, 4, 5, 0, 0), ProducerState(90, 0, -1, -1, None, None))


def test_producers_are_described_by_the_leaders_with_one_request_each(
    scripted: ScriptedCluster, admin: Admin
) -> None:
    script_producers(scripted, lambda broker, key: 0)
    found = run(admin.describe_producers([U0, T1, T0]))
    assert found == {T0: producers(1), T1: producers(2), U0: producers(1)}
    assert [broker for broker, _, _ in scripted.requests(ApiKey.DESCRIBE_PRODUCERS)] == [1, 2]


def test_producers_of_a_partition_that_moves_are_described_by_its_next_leader(
    scripted: ScriptedCluster, admin: Admin
) -> None:
    moved, refused = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    codes: dict[tuple[int, TopicPartition], int] = {(1, T0): moved, (1, U0): refused}
    script_producers(scripted, lambda broker, key: codes.get((broker, key), 0))
    scripted.network.on_sleep = lambda: scripted.leaders["t"].update({0: (3, 1)})
    found = run(admin.describe_producers([T0, T1, U0]))
    assert (found[T0], found[T1], code(found[U0])) == (producers(3), producers(2), refused)


def test_replica_on_one_broker_is_described_by_that_broker(scripted: ScriptedCluster, admin: Admin) -> None:
    codes = {T1: [ErrorCode.NOT_LEADER_OR_FOLLOWER], U0: [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]}
    script_producers(scripted, lambda broker, key: codes[key].pop(0) if codes.get(key) else 0)
    found = run(admin.describe_producers([T0, T1, U0], broker_id=3))
    assert (found[T0], found[U0]) == (producers(3), producers(3))
    assert code(found[T1]) is ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker was not asked for"
    asked = scripted.requests(ApiKey.DESCRIBE_PRODUCERS)
    assert [broker for broker, _, _ in asked] == [3, 3]
    assert [(it.name, it.partition_indexes) for it in asked[1][2].topics] == [("u", [0])]


def test_unknown_partitions_and_brokers_are_reported_each_for_itself(
    scripted: ScriptedCluster, admin: Admin
) -> None:
    script_producers(scripted, lambda broker, key: 0)
    none, t9 = TopicPartition("none", 0), TopicPartition("t", 9)
    found = run(admin.describe_producers([none, t9, T0]))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (code(found[none]), code(found[t9]), found[T0]) == (unknown, unknown, producers(1))
    absent = run(admin.describe_producers([T0], broker_id=9, timeout_ms=2_000))
    assert isinstance(absent[T0], ClientTimeoutError)
    assert "broker 9 is not in the cluster's metadata" in str(absent[T0])


def test_partition_that_moves_is_waited_for_beside_one_that_is_unknown(
    scripted: ScriptedCluster, admin: Admin
) -> None:
    """The unknown one is given up soon, the other is not."""
    later_ms = scripted.network.time_ms + 10_000

    def code_of(broker: int, key: TopicPartition) -> int:
        is_led = scripted.network.time_ms >= later_ms
        return ErrorCode.NONE if is_led else ErrorCode.NOT_LEADER_OR_FOLLOWER

    script_producers(scripted, code_of)
    none = TopicPartition("none", 0)
    found = run(admin.describe_producers([none, T0]))
    assert found[T0] == producers(1) and code(found[none]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    later_ms += 100_000
    found = run(admin.describe_producers([none, T0], timeout_ms=5_000))
    assert isinstance(found[T0], ClientTimeoutError) and "NOT_LEADER_OR_FOLLOWER" in str(found[T0])
    assert code(found[none]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Aborting in one partition.


def script_markers(
    scripted: ScriptedCluster, code_of: Callable[[int], int], partition: TopicPartition = T0
) -> None:
    def answer(broker: int, request: transactions.WriteTxnMarkersRequest, version: int) -> Answer:
        result = transactions.WritableTxnMarkerPartitionResult(
            partition_index=partition.partition, error_code=code_of(broker)
        )
        topic = transactions.WritableTxnMarkerTopicResult(name=partition.topic, partitions=[result])
        marker = transactions.WritableTxnMarkerResult(producer_id=7, topics=[topic])
        return transactions.WriteTxnMarkersResponse(markers=[marker])

    scripted.script(ApiKey.WRITE_TXN_MARKERS, answer)
    for broker in scripted.brokers.values():
        broker.ranges = {ApiKey.WRITE_TXN_MARKERS: (1, 2)}


def test_marker_of_the_abort_is_written_at_the_next_leader_if_it_moves(
    scripted: ScriptedCluster, admin: Admin
) -> None:
    script_markers(scripted, lambda broker: ErrorCode.NOT_LEADER_OR_FOLLOWER if broker == 1 else 0)
    scripted.network.on_sleep = lambda: scripted.leaders["t"].update({0: (3, 1)})
    run(admin.abort_transaction(SPEC))
    asked = scripted.requests(ApiKey.WRITE_TXN_MARKERS)
    assert [broker for broker, _, _ in asked] == [1, 3]
    (marker,) = asked[-1][2].markers
    (topic,) = marker.topics
    assert (topic.name, topic.partition_indexes) == ("t", [0])
    assert not marker.transaction_result
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 5)
    assert marker.transaction_version == 0, "the epoch is the producer's own"


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, "failed due an invalid producer epoch"),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, "coordinator epoch 5 has been fenced"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "cluster authorization"),
        (ErrorCode.INVALID_TXN_STATE, "INVALID_TXN_STATE"),
    ],
)
def test_abort_that_is_refused_is_not_tried_again(
    scripted: ScriptedCluster, admin: Admin, refused: ErrorCode, said: str
) -> None:
    script_markers(scripted, lambda broker: refused)
    with pytest.raises(KafkaError, match=said) as caught:
        run(admin.abort_transaction(SPEC))
    assert caught.value.code is refused
    spec = "AbortTransactionSpec(topicPartition=t-0, producerId=7, producerEpoch=3, coordinatorEpoch=5)"
    assert f"WriteTxnMarkers request with {spec}" in caught.value.message
    assert len(scripted.requests(ApiKey.WRITE_TXN_MARKERS)) == 1


def test_abort_in_an_unknown_partition_or_answered_for_another_one_is_an_error(
    scripted: ScriptedCluster, admin: Admin
) -> None:
    script_markers(scripted, lambda broker: 0, partition=T1)
    with pytest.raises(KafkaError, match="unexpected entries"):
        run(admin.abort_transaction(SPEC))
    with pytest.raises(KafkaError) as caught:
        run(admin.abort_transaction(AbortTransactionSpec(TopicPartition("none", 0), 7, 3, 5)))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
