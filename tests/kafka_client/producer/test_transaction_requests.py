"""What a transactional producer sends, in which versions, and what its program is told of errors."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import pytest

from pykraft.kafka_client.blocking import run
from pykraft.kafka_client.coordinator_link import CoordinatorLink
from pykraft.kafka_client.coordinators import GROUP_KEY, TRANSACTION_KEY
from pykraft.kafka_client.errors import (
    AbortableError,
    FatalTransactionError,
    FencedError,
    MalformedAnswerError,
    UnsupportedByBrokerError,
)
from pykraft.kafka_client.group.config import GroupIdentity
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.producer import transaction_requests as requests
from pykraft.kafka_client.producer.transaction import ProducerIdentity, ProducerTransaction, TransactionConfig
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.cluster import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from pykraft.kafka_protocol.messages.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykraft.kafka_protocol.messages.offsets import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pykraft.kafka_protocol.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnResponse,
    InitProducerIdResponse,
)
from tests.kafka_client.scripted import HOST, ScriptedCluster

ME = ProducerIdentity(7, 3)
OFFSETS = {
    TopicPartition("t", 1): OffsetAndMetadata(5, 4, "note"),
    TopicPartition("t", 0): OffsetAndMetadata(2),
}
FENCED = {"INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"}
FATAL = {
    *("INVALID_PRODUCER_ID_MAPPING", "INVALID_TXN_STATE", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    *("CLUSTER_AUTHORIZATION_FAILED", "UNSUPPORTED_VERSION", "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
    "INVALID_TRANSACTION_TIMEOUT",
}


@pytest.mark.parametrize("code", [code for code in ErrorCode if code])
def test_error_says_whether_to_close_or_to_abort_or_to_ask_again(code: ErrorCode) -> None:
    error = requests.classified(KafkaError(code, "why"), "EndTxn")
    given_up = requests.failure(KafkaError(code, "why"))
    assert error.code == given_up.code == code
    if code.name in FENCED:
        assert type(error) is FencedError
        assert type(given_up) is AbortableError, "a leader's word is no proof of another producer"
    elif code.name in FATAL:
        assert type(error) is type(given_up) is FatalTransactionError
    else:
        assert type(error) in (KafkaError, AbortableError) and type(given_up) is AbortableError
        assert (type(error) is KafkaError) == (code.retriable or code is ErrorCode.BROKER_NOT_AVAILABLE)
    assert type(error) is KafkaError or str(error).endswith("EndTxn: why")


def test_error_that_says_what_to_do_already_stays_as_it_is() -> None:
    for known in (
        FencedError(ErrorCode.UNKNOWN_SERVER_ERROR, "x"),
        AbortableError(ErrorCode.INVALID_TXN_STATE, "x"),
        FatalTransactionError(ErrorCode.REQUEST_TIMED_OUT, "x"),
    ):
        assert requests.classified(known, "EndTxn") is known
        assert requests.failure(known) is known


class Coordinator2:
    """Broker 2, which coordinates, and answers each request by what a test chose."""

    def __init__(self, scripted: ScriptedCluster) -> None:
        self.scripted = scripted
        self.answers: dict[int, Any] = {
            ApiKey.INIT_PRODUCER_ID: InitProducerIdResponse(producer_id=9, producer_epoch=0),
            ApiKey.ADD_PARTITIONS_TO_TXN: AddPartitionsToTxnResponse(),
            ApiKey.ADD_OFFSETS_TO_TXN: AddOffsetsToTxnResponse(),
            ApiKey.TXN_OFFSET_COMMIT: TxnOffsetCommitResponse(),
            ApiKey.END_TXN: EndTxnResponse(producer_id=7, producer_epoch=4),
        }
        self.level: int | None = None
        self.keys: list[tuple[str, int]] = []
        scripted.script(ApiKey.FIND_COORDINATOR, self._find)
        for key in self.answers:
            scripted.brokers[2].handlers[key] = partial(self._answer, key)
        scripted.brokers[2].handlers[ApiKey.API_VERSIONS] = self._api_versions

    def _answer(self, key: int, request: Any, version: int) -> Any:
        return self.answers[key]

    def serve(self, api: ApiKey, first: int, last: int) -> None:
        self.scripted.brokers[2].ranges[api] = (first, last)

    def link(self, key: str = "tx", key_type: int = TRANSACTION_KEY) -> CoordinatorLink:
        return CoordinatorLink(self.scripted.client(), key, key_type)

    def asked(self, api: ApiKey) -> tuple[int, Any]:
        """The version and the request, of which there was one."""
        ((broker, version, request),) = self.scripted.requests(api)
        assert broker == 2
        return version, request

    def _find(self, _: int, request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        (key,) = request.coordinator_keys
        self.keys.append((key, request.key_type))
        found = Coordinator(key=key, node_id=2, host=HOST, port=2)
        return FindCoordinatorResponse(coordinators=[found])

    def _api_versions(self, request: Any, version: int) -> ApiVersionsResponse:
        broker = self.scripted.brokers[2]
        newest = dict.fromkeys(broker.handlers, (0, 100)) | {18: (0, 4)} | broker.ranges
        features = (
            []
            if self.level is None
            else [
                FinalizedFeatureKey(
                    name="transaction.version", max_version_level=self.level, min_version_level=0
                )
            ]
        )
        return ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in newest.items()],
            finalized_features_epoch=1,
            finalized_features=features,
        )


@pytest.fixture
def coordinator(scripted: ScriptedCluster) -> Coordinator2:
    return Coordinator2(scripted)


def transaction(*, is_implicit: bool) -> ProducerTransaction:
    made = ProducerTransaction(TransactionConfig("tx", 1_234))
    made.identity = ME
    made.begin(is_implicit=is_implicit)
    return made


Ask = Callable[[Coordinator2], Coroutine[Any, Any, Any]]


def init(known: ProducerIdentity | None) -> Ask:
    return lambda it: requests.init_producer_id(it.link(), TransactionConfig("tx", 1_234), known, 9_000)


def add_partitions(it: Coordinator2) -> Coroutine[Any, Any, Any]:
    places = [TopicPartition("t", 1), TopicPartition("u", 0), TopicPartition("t", 0)]
    return requests.add_partitions(it.link(), transaction(is_implicit=False), places, 9_000)


def commit_offsets(is_implicit: bool, member: GroupIdentity | None = None) -> Ask:
    made = transaction(is_implicit=is_implicit)
    return lambda it: requests.commit_offsets(it.link("g", GROUP_KEY), made, OFFSETS, member, 9_000)


def end(is_implicit: bool, committed: bool = True) -> Ask:
    return lambda it: requests.end_txn(it.link(), transaction(is_implicit=is_implicit), committed, 9_000)


MEMBER = GroupIdentity("m", 6, "static")


@pytest.mark.parametrize(
    ("api", "ask", "least", "most"),
    [
        (ApiKey.INIT_PRODUCER_ID, init(None), 0, 5),
        (ApiKey.INIT_PRODUCER_ID, init(ME), 3, 5),
        (ApiKey.ADD_PARTITIONS_TO_TXN, add_partitions, 0, 3),
        (ApiKey.TXN_OFFSET_COMMIT, commit_offsets(False), 0, 4),
        (ApiKey.TXN_OFFSET_COMMIT, commit_offsets(False, MEMBER), 3, 4),
        (ApiKey.TXN_OFFSET_COMMIT, commit_offsets(True), 5, 5),
        (ApiKey.TXN_OFFSET_COMMIT, commit_offsets(True, MEMBER), 5, 5),
        (ApiKey.END_TXN, end(False), 0, 4),
        (ApiKey.END_TXN, end(True), 5, 5),
    ],
)
def test_version_of_a_request_is_one_whose_rules_hold(
    coordinator: Coordinator2, api: ApiKey, ask: Ask, least: int, most: int
) -> None:
    """A newer one would say that other rules apply, and an older one could not say what is meant."""
    for last in range(8):
        it = Coordinator2(ScriptedCluster())
        it.serve(api, 0, last)
        if last < least:
            with pytest.raises(UnsupportedByBrokerError, match=f"up to version {last}, version"):
                run(ask(it))
            assert it.scripted.requests(api) == []
        else:
            run(ask(it))
            assert it.asked(api)[0] == min(last, most)


def test_rules_are_those_of_the_finalized_level(coordinator: Coordinator2) -> None:
    for level, is_implicit in ((None, False), (0, False), (1, False), (2, True), (3, True)):
        it = Coordinator2(ScriptedCluster())
        it.level = level
        assert run(requests.implicit_rules(it.link(), 9_000)) == is_implicit, level


def test_producer_is_initialized_by_its_id_or_as_the_one_it_was(coordinator: Coordinator2) -> None:
    assert run(init(None)(coordinator)) == ProducerIdentity(9, 0)
    request = coordinator.asked(ApiKey.INIT_PRODUCER_ID)[1]
    assert (request.transactional_id, request.transaction_timeout_ms) == ("tx", 1_234)
    assert (request.producer_id, request.producer_epoch) == (-1, -1)
    again = Coordinator2(ScriptedCluster())
    run(init(ME)(again))
    request = again.asked(ApiKey.INIT_PRODUCER_ID)[1]
    assert (request.producer_id, request.producer_epoch) == ME


def test_requests_of_a_transaction_name_it_and_its_producer(coordinator: Coordinator2) -> None:
    run(add_partitions(coordinator))
    request = coordinator.asked(ApiKey.ADD_PARTITIONS_TO_TXN)[1]
    assert request.v3_and_below_transactional_id == "tx"
    assert (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch) == ME
    places = {(one.name, tuple(one.partitions)) for one in request.v3_and_below_topics}
    assert places == {("t", (1, 0)), ("u", (0,))}

    run(requests.add_offsets(coordinator.link(), transaction(is_implicit=False), "g", 9_000))
    request = coordinator.asked(ApiKey.ADD_OFFSETS_TO_TXN)[1]
    assert (request.transactional_id, request.group_id) == ("tx", "g")
    assert (request.producer_id, request.producer_epoch) == ME

    run(commit_offsets(False, MEMBER)(coordinator))
    request = coordinator.asked(ApiKey.TXN_OFFSET_COMMIT)[1]
    assert (request.transactional_id, request.group_id) == ("tx", "g")
    assert (request.producer_id, request.producer_epoch) == ME
    assert (request.member_id, request.generation_id, request.group_instance_id) == ("m", 6, "static")
    (topic,) = request.topics
    assert topic.name == "t"
    assert [
        (one.partition_index, one.committed_offset, one.committed_leader_epoch, one.committed_metadata)
        for one in topic.partitions
    ] == [(0, 2, -1, ""), (1, 5, 4, "note")]
    assert set(coordinator.keys) == {("tx", TRANSACTION_KEY), ("g", GROUP_KEY)}


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("is_implicit", [True, False])
def test_end_names_the_producer_and_says_who_goes_on(
    coordinator: Coordinator2, committed: bool, is_implicit: bool
) -> None:
    coordinator.answers[ApiKey.END_TXN] = EndTxnResponse(producer_id=0, producer_epoch=0)
    following = run(end(is_implicit, committed)(coordinator))
    assert following == (ProducerIdentity(0, 0) if is_implicit else ME)
    request = coordinator.asked(ApiKey.END_TXN)[1]
    assert (request.transactional_id, request.committed) == ("tx", committed)
    assert (request.producer_id, request.producer_epoch) == ME


@pytest.mark.parametrize("named", [(-1, 0), (0, -1)])
def test_end_without_the_next_epoch_is_malformed(coordinator: Coordinator2, named: tuple[int, int]) -> None:
    coordinator.answers[ApiKey.END_TXN] = EndTxnResponse(producer_id=named[0], producer_epoch=named[1])
    with pytest.raises(MalformedAnswerError, match="leaves out the producer's next epoch"):
        run(end(True)(coordinator))


def partition_errors(codes: Sequence[ErrorCode]) -> dict[int, Any]:
    return {
        ApiKey.ADD_PARTITIONS_TO_TXN: AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name="t",
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=n, partition_error_code=code)
                        for n, code in enumerate(codes)
                    ],
                )
            ]
        ),
        ApiKey.TXN_OFFSET_COMMIT: TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitResponsePartition(partition_index=n, error_code=code)
                        for n, code in enumerate(codes)
                    ],
                )
            ]
        ),
    }


@pytest.mark.parametrize("ask", [add_partitions, commit_offsets(False)])
@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        (["NONE", "NONE"], None),
        (["NONE", "CONCURRENT_TRANSACTIONS"], "CONCURRENT_TRANSACTIONS"),
        (["OPERATION_NOT_ATTEMPTED", "TOPIC_AUTHORIZATION_FAILED"], "TOPIC_AUTHORIZATION_FAILED"),
        (["OPERATION_NOT_ATTEMPTED", "UNKNOWN_TOPIC_OR_PARTITION"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["OPERATION_NOT_ATTEMPTED"], "OPERATION_NOT_ATTEMPTED"),
        (["UNKNOWN_TOPIC_OR_PARTITION", "TOPIC_AUTHORIZATION_FAILED"], "TOPIC_AUTHORIZATION_FAILED"),
        (["TOPIC_AUTHORIZATION_FAILED", "NOT_COORDINATOR"], "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_final_error_of_a_partition_comes_before_a_passing_one(
    coordinator: Coordinator2, ask: Ask, codes: list[str], worst: str | None
) -> None:
    coordinator.answers |= partition_errors([ErrorCode[code] for code in codes])
    if worst is None:
        run(ask(coordinator))
        return
    with pytest.raises(KafkaError) as raised:
        run(ask(coordinator))
    assert raised.value.code is ErrorCode[worst]


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_coordinator_that_has_moved_is_looked_for_again(coordinator: Coordinator2, code: ErrorCode) -> None:
    link = coordinator.link()
    for error in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, code, ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE):
        coordinator.answers[ApiKey.END_TXN] = EndTxnResponse(error_code=error)
        try:
            run(requests.end_txn(link, transaction(is_implicit=False), True, 9_000))
        except KafkaError as raised:
            assert raised.code is error
    assert len(coordinator.keys) == 2, "at first, and after it has moved"


@pytest.mark.parametrize(
    ("error", "may_take_effect"),
    [
        (MalformedAnswerError("EndTxn: the answer leaves out the producer's next epoch"), True),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT), True),
        (KafkaError(ErrorCode.NETWORK_EXCEPTION), True),
        (KafkaError(ErrorCode.NOT_COORDINATOR), True),
        (KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS), False),
        (KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), False),
        (KafkaError(ErrorCode.PRODUCER_FENCED), False),
        (KafkaError(ErrorCode.INVALID_TXN_STATE), False),
    ],
)
def test_error_tells_whether_the_request_may_take_effect(error: KafkaError, may_take_effect: bool) -> None:
    assert requests.may_take_effect(error) is may_take_effect
