"""The broker's side of OffsetCommit: from a frame to the coordinator, and from its error codes to a frame."""

import asyncio
from collections.abc import Coroutine
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from pykraft.broker.apis.coordination.offset_commit import MAX_COMMIT_BYTES, OffsetCommitHandler
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.replicas.replica_manager import ReplicaManager
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import RequestHeader, encode_response_header
from pykraft.kafka_protocol.hot.offset_commit import FIELDS, MAX_TOPICS, parse_offset_commit
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.runtime.tasks import TaskSupervisor
from pykraft.runtime.turns import UnlimitedTurn
from tests.broker.links import ConnectedLink
from tests.stand_ins import stand_in

VERSION = 9
REQUEST = OffsetCommitRequest(
    group_id="g",
    topics=[
        OffsetCommitRequestTopic(
            name="t", partitions=[OffsetCommitRequestPartition(partition_index=n) for n in (0, 1)]
        )
    ],
)


class Groups:
    """A coordinator that answers what a test says."""

    def __init__(self, later: bool = False, error: BaseException | None = None) -> None:
        self.later, self.error = later, error
        self.waiters: list[Any] = []
        self.requests: list[Any] = []

    def commit_offsets(self, context: RequestContext, request: Any, version: int, waiter: Any) -> bool:
        if self.error is not None and not self.later:
            raise self.error
        self.requests.append(request)
        if not self.later:
            self.waiters.append(waiter)
        return not self.later

    async def offset_commit(self, context: RequestContext, request: Any, version: int) -> list[Any]:
        if self.error is not None:
            raise self.error
        return [[0, 3]]


class Served(ConnectedLink):
    def __init__(self, groups: Groups, is_fenced: bool = False) -> None:
        super().__init__(self)
        self.tasks: list[Coroutine[Any, Any, None]] = []
        services = stand_in(
            BrokerServices,
            groups=stand_in(
                GroupCoordinatorService,
                commit_offsets=groups.commit_offsets,
                offset_commit=groups.offset_commit,
            ),
            replicas=stand_in(ReplicaManager, lease=SimpleNamespace(is_fenced=is_fenced)),
            tasks=stand_in(TaskSupervisor, start=lambda _, work, name: self.tasks.append(work)),
        )
        self.handler = OffsetCommitHandler(services, UnlimitedTurn())

    def handle_frame(self, connection: Connection, frame: memoryview, slot: ResponseSlot) -> None:
        header = RequestHeader(int(ApiKey.OFFSET_COMMIT), VERSION, 5, "cli")
        self.handler.handle(connection, RequestContext(), header, frame, slot)

    def receive(self, body: bytes) -> None:
        self.send(body)
        for task in self.tasks:
            asyncio.run(task)

    def codes(self) -> list[int]:
        header, (frame,) = encode_response_header(ApiKey.OFFSET_COMMIT, VERSION, 5), self.frames
        assert frame.startswith(header)
        response = OffsetCommitResponse.decode(frame[len(header) :], VERSION)
        return [p.error_code for topic in response.topics for p in topic.partitions]


def test_commit_is_answered_when_the_coordinator_says_so() -> None:
    groups = Groups()
    served = Served(groups)
    served.receive(REQUEST.encode(VERSION))
    assert not served.sent
    groups.waiters[0].set_result([0])
    assert served.codes() == [0, 0]
    assert groups.waiters[0].done()


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.NOT_COORDINATOR), ErrorCode.NOT_COORDINATOR),
        (ValueError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_error_of_the_request_is_that_of_each_partition(
    later: bool, error: BaseException, code: ErrorCode
) -> None:
    served = Served(Groups(later, error))
    served.receive(REQUEST.encode(VERSION))
    assert served.codes() == [code, code]


def test_commit_past_the_lease_is_answered_by_a_task() -> None:
    served = Served(Groups(later=True))
    served.receive(REQUEST.encode(VERSION))
    assert served.codes() == [0, 3]


def test_fenced_broker_coordinates_nothing() -> None:
    groups = Groups()
    served = Served(groups, is_fenced=True)
    served.receive(REQUEST.encode(VERSION))
    assert served.codes() == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert not groups.waiters


def test_client_that_has_gone_gets_no_answer() -> None:
    groups = Groups()
    served = Served(groups)
    served.receive(REQUEST.encode(VERSION))
    served.connection.connection_lost()
    assert groups.waiters[0].done()
    groups.waiters[0].set_result([0])
    assert not served.sent


def test_answer_that_cannot_be_built_costs_only_its_connection() -> None:
    groups = Groups()
    served = Served(groups)
    served.receive(REQUEST.encode(VERSION))
    groups.waiters[0].set_result([[0]])  # one code for two partitions
    assert served.closed and not served.sent


def _one(offset: int, topic: str = "t", metadata: str = "") -> bytes:
    partition = OffsetCommitRequestPartition(
        partition_index=3, committed_offset=offset, committed_metadata=metadata
    )
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    return OffsetCommitRequest(group_id="g", topics=topics).encode(VERSION)


def test_client_that_commits_the_same_again_and_again_may_change_its_mind() -> None:
    """Each commit is what the client sent, and each answer what the coordinator said."""
    groups = Groups()
    served = Served(groups)
    sent = [(7, "t", ""), (8, "t", ""), (9, "t", "why"), (10, "u", ""), (11, "u", ""), (12, "t", "")]
    for number, (offset, topic, metadata) in enumerate(sent):
        served.receive(_one(offset, topic, metadata))
        committed = groups.requests[-1].topics[0]
        assert (committed.name, committed.partitions) == (topic, (3,))
        assert FIELDS.unpack(committed.fields)[0] == offset
        assert committed.metadata == ([metadata] if metadata else None)
        for code in (0, 22):
            groups.waiters.pop().set_result([code if number % 2 else [code]])
            assert served.codes() == [code]
            served.sent.clear()
            if not code:
                served.receive(_one(offset, topic, metadata))


@pytest.mark.parametrize(("topics", "is_read"), [(MAX_TOPICS, True), (MAX_TOPICS + 1, False)])
@pytest.mark.parametrize("version", [2, VERSION])
def test_request_of_more_topics_than_a_batch_holds_is_refused(
    version: int, topics: int, is_read: bool
) -> None:
    """They would hold the event loop for seconds, with no partition in any of them."""
    empty = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t")] * topics)
    body = memoryview(empty.encode(version))
    assert len(body) < MAX_COMMIT_BYTES
    with nullcontext() if is_read else pytest.raises(ProtocolError):
        assert len(parse_offset_commit(body, 0, version).topics) == topics


@pytest.mark.parametrize("body", [b"\0", REQUEST.encode(VERSION)[:-3], bytes(MAX_COMMIT_BYTES + 1)])
def test_malformed_request_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        Served(Groups()).receive(body)
