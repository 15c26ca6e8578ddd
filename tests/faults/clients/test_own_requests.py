"""What has been sent once is not sent again, and what is not known to have failed is not called a failure."""

from collections.abc import Iterator, Sequence

import pytest

from pykraft.jepsen_like.faults.clients.interface import Commit, RefusedError, UnknownOutcomeError
from pykraft.jepsen_like.faults.clients.own_requests import OwnRequests
from pykraft.kafka_client.blocking import run
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages import configs, groups, offsets, transactions
from tests.kafka_client.scripted import Answer, ScriptedCluster

PLACE = TopicPartition("t", 0)
COMMIT = Commit(7, "c#7")
GONE = ConnectionResetError("the peer is gone")


class Servers(ScriptedCluster):
    """``coordinator``: a broker's id. ``answers``: of the one request that a test makes, one after another,
    codes or errors of the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = 1
        self.answers: list[int | Exception] = []
        self.script(ApiKey.FIND_COORDINATOR, self._find)
        self.script(ApiKey.OFFSET_COMMIT, self._commit)
        self.script(ApiKey.OFFSET_FETCH, self._fetch)
        self.script(ApiKey.INCREMENTAL_ALTER_CONFIGS, self._alter)
        self.script(ApiKey.DESCRIBE_CONFIGS, self._describe)
        self.script(ApiKey.INIT_PRODUCER_ID, self._init)

    def _next(self) -> int | Exception:
        return self.answers.pop(0) if self.answers else 0

    def _find(self, broker: int, request: groups.FindCoordinatorRequest, version: int) -> Answer:
        found = groups.Coordinator(key="g", node_id=self.coordinator, host="broker", port=self.coordinator)
        return groups.FindCoordinatorResponse(coordinators=[found])

    def _commit(self, broker: int, request: offsets.OffsetCommitRequest, version: int) -> Answer:
        code = self._next()
        if isinstance(code, Exception):
            return code
        one = offsets.OffsetCommitResponsePartition(partition_index=0, error_code=code)
        return offsets.OffsetCommitResponse(
            topics=[offsets.OffsetCommitResponseTopic(name="t", partitions=[one])]
        )

    def _fetch(self, broker: int, request: offsets.OffsetFetchRequest, version: int) -> Answer:
        code = self._next()
        if isinstance(code, Exception):
            return code
        one = offsets.OffsetFetchResponsePartitions(partition_index=0, committed_offset=7, metadata="c#7")
        topic = offsets.OffsetFetchResponseTopics(name="t", partitions=[one])
        group = offsets.OffsetFetchResponseGroup(group_id="g", topics=[topic], error_code=code)
        return offsets.OffsetFetchResponse(groups=[group])

    def _alter(self, broker: int, request: configs.IncrementalAlterConfigsRequest, version: int) -> Answer:
        code = self._next()
        if isinstance(code, Exception):
            return code
        one = configs.AlterConfigsResourceResponse(error_code=code, resource_name="t")
        return configs.IncrementalAlterConfigsResponse(responses=[one])

    def _describe(self, broker: int, request: configs.DescribeConfigsRequest, version: int) -> Answer:
        config = configs.DescribeConfigsResourceResult(name="retention.ms", value=f"of-{broker}")
        one = configs.DescribeConfigsResult(resource_name="t", configs=[config])
        return configs.DescribeConfigsResponse(results=[one])

    def _init(self, broker: int, request: transactions.InitProducerIdRequest, version: int) -> Answer:
        assert request.transactional_id is None
        code = self._next()
        if isinstance(code, Exception):
            return code
        return transactions.InitProducerIdResponse(error_code=code, producer_id=1000 + broker)


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def requests(servers: Servers) -> Iterator[OwnRequests]:
    requests = OwnRequests(servers.network, servers.client(request_timeout_ms=2_000).config)
    yield requests
    run(requests.close())


def commits(servers: Servers) -> list[int]:
    return [broker for broker, _, _ in servers.requests(ApiKey.OFFSET_COMMIT)]


def test_a_commit_carries_its_tag(servers: Servers, requests: OwnRequests) -> None:
    run(requests.commit("g", PLACE, COMMIT))
    ((_, _, sent),) = servers.requests(ApiKey.OFFSET_COMMIT)
    (partition,) = sent.topics[0].partitions
    assert (partition.committed_offset, partition.committed_metadata) == (7, "c#7")
    assert run(requests.committed("g", PLACE)) == COMMIT
    assert run(requests.committed("g", TopicPartition("t", 1))) is None


@pytest.mark.parametrize(
    "answer",
    [GONE, TimeoutError(), ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE],
    ids=str,
)
def test_a_commit_that_was_sent_is_not_repeated(
    servers: Servers, requests: OwnRequests, answer: int | Exception
) -> None:
    servers.answers = [answer]
    with pytest.raises(UnknownOutcomeError):
        run(requests.commit("g", PLACE, COMMIT))
    assert commits(servers) == [1]


@pytest.mark.parametrize("answer", [GONE, ErrorCode.NOT_COORDINATOR], ids=str)
def test_the_coordinator_is_looked_for_again_after_a_failure(
    servers: Servers, requests: OwnRequests, answer: int | Exception
) -> None:
    servers.answers = [answer]
    with pytest.raises(UnknownOutcomeError):
        run(requests.commit("g", PLACE, COMMIT))
    servers.coordinator = 2
    run(requests.commit("g", PLACE, COMMIT))
    assert commits(servers) == [1, 2]


def test_a_commit_that_the_coordinator_did_not_look_at_was_refused(
    servers: Servers, requests: OwnRequests
) -> None:
    servers.answers = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    with pytest.raises(RefusedError):
        run(requests.commit("g", PLACE, COMMIT))


def test_a_commit_waits_for_a_coordinator_before_it_is_sent(servers: Servers, requests: OwnRequests) -> None:
    servers.brokers[1].up = False

    def move() -> None:
        servers.coordinator = 2

    servers.network.on_sleep = move
    run(requests.commit("g", PLACE, COMMIT))
    assert commits(servers) == [2]


def test_what_never_left_the_client_was_refused(servers: Servers, requests: OwnRequests) -> None:
    assert run(requests.brokers()) == [1, 2, 3]
    for broker in servers.brokers.values():
        broker.up = False
    with pytest.raises(RefusedError):
        run(requests.commit("g", PLACE, COMMIT))
    with pytest.raises(RefusedError):
        run(requests.set_config(2, "t", "retention.ms", "1"))


def test_a_read_is_repeated(servers: Servers, requests: OwnRequests) -> None:
    servers.answers = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, GONE]
    assert run(requests.committed("g", PLACE)) == COMMIT


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (GONE, UnknownOutcomeError),
        (ErrorCode.NOT_CONTROLLER, UnknownOutcomeError),
        (ErrorCode.REQUEST_TIMED_OUT, UnknownOutcomeError),
        (ErrorCode.INVALID_CONFIG, RefusedError),
    ],
    ids=str,
)
def test_a_change_is_sent_once_through_one_broker(
    servers: Servers, requests: OwnRequests, answer: int | Exception, expected: type[Exception]
) -> None:
    run(requests.brokers())
    servers.answers = [answer]
    with pytest.raises(expected):
        run(requests.set_config(3, "t", "retention.ms", "1"))
    sent = servers.requests(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    assert [broker for broker, _, _ in sent] == [3]


def test_the_broker_that_is_named_is_asked(servers: Servers, requests: OwnRequests) -> None:
    run(requests.brokers())
    shown: Sequence[str | None] = [run(requests.config(broker, "t", "retention.ms")) for broker in (3, 1)]
    assert shown == ["of-3", "of-1"]
    assert run(requests.config(1, "t", "other")) is None
    assert run(requests.producer_id(2)) == 1002
    servers.answers = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    with pytest.raises(UnknownOutcomeError):
        run(requests.producer_id(2))
