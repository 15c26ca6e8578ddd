"""Large OffsetCommit requests on the broker: over several turns, in order, beside other clients."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from pykraft.broker.apis.coordination.offset_commit import (
    LARGE_BYTES,
    MAX_COMMIT_BYTES,
    MOST_LARGE,
    OffsetCommitHandler,
)
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.replicas.replica_manager import ReplicaManager
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.headers import RequestHeader, encode_response_header
from pykraft.kafka_protocol.hot.offset_commit import parse_in_slices
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.runtime.tasks import TaskSupervisor
from tests.asynchronous import in_loop
from tests.broker import slices
from tests.group_coordinator import tools
from tests.group_coordinator.busy import BusyWorld
from tests.stand_ins import stand_in
from tests.unexpected import unexpected
from tests.waits import settle, until_now

VERSION = 9
TOPICS = 1_500
SIZES = {f"topic-{n}": 1 for n in range(TOPICS)}


def request_of(offset: int, topics: int = TOPICS, group: str = "g") -> bytes:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    named = [OffsetCommitRequestTopic(name=f"topic-{n}", partitions=[partition]) for n in range(topics)]
    return OffsetCommitRequest(group_id=group, topics=named).encode(VERSION)


class Lease:
    """Of the broker; ``is_over``: for a while, though nothing has fenced it."""

    is_over = False

    def lease_valid(self, now_ms: int) -> bool:
        return not self.is_over

    def expired_ms(self, now_ms: int) -> int | None:
        return 100 if self.is_over else 0


class Broker(BusyWorld):
    """A broker that serves commits only."""

    def __init__(self) -> None:
        self.lease = Lease()
        super().__init__(SIZES, lease=self.lease)
        services = stand_in(
            BrokerServices,
            groups=self.service,
            replicas=stand_in(ReplicaManager, lease=SimpleNamespace(is_fenced=False)),
            tasks=TaskSupervisor(unexpected),
        )
        self.handler = OffsetCommitHandler(services, self.turns.budget)

    def handle_frame(self, connection: Connection, frame: memoryview, slot: ResponseSlot) -> None:
        header = RequestHeader(int(ApiKey.OFFSET_COMMIT), VERSION, 5, "cli")
        self.handler.handle(connection, RequestContext(), header, frame, slot)

    @property
    def state(self) -> Any:
        return self.hosted.shard.state

    def committed(self, group: str = "g") -> set[int]:
        """The offsets of all topics; -1 for a topic without."""
        topics = self.state.group_offsets(group)
        return {topics[name].get(0).offset if name in topics else -1 for name in SIZES}

    def logged(self, topic: str) -> list[int]:
        """The offsets of a topic in the order of the log."""
        records = [tools.decode(key, value) for key, value in self.writer.logs[0]]
        return [r.value.offset for r in records if r.key.topic == topic]  # type: ignore[union-attr]


class Client(slices.Client):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, broker.turns)

    async def until_answered(self, count: int = 1) -> None:
        await until_now(lambda: len(self.answered) == count)

    def codes(self) -> list[list[int]]:
        """Of each answer."""
        at = len(encode_response_header(ApiKey.OFFSET_COMMIT, VERSION, 5))
        answers = [OffsetCommitResponse.decode(frame[at:], VERSION) for frame in self.frames]
        return [[p.error_code for topic in one.topics for p in topic.partitions] for one in answers]


@asynccontextmanager
async def leading() -> AsyncIterator[Broker]:
    broker = Broker()
    await broker.lead()
    yield broker
    await broker.stop()


broker = in_loop(leading)


async def test_large_commit_is_one_batch_after_several_turns(broker: Broker) -> None:
    client = Client(broker)
    began = broker.turns.number
    client.send(request_of(7))
    while not client.answered:
        assert broker.committed() in ({-1}, {7}), "half of a commit is visible"
        await asyncio.sleep(0)
    assert broker.turns.number - began > 10
    assert client.codes() == [[0] * TOPICS]
    assert [len(records) for _, _, records in broker.writer.batches] == [TOPICS]


@pytest.mark.parametrize("excess_bytes", [0, 1])
async def test_largest_commit_is_answered_and_a_larger_one_ends_its_connection(
    broker: Broker, excess_bytes: int
) -> None:
    note = "x" * 30_000

    def body_of(last: int) -> bytes:
        notes = [note] * (MAX_COMMIT_BYTES // (len(note) + 100)) + ["y" * last]
        partitions = [
            OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata=one)
            for one in notes
        ]
        topics = [
            OffsetCommitRequestTopic(name=f"topic-{n}", partitions=[one]) for n, one in enumerate(partitions)
        ]
        return OffsetCommitRequest(group_id="g", topics=topics).encode(VERSION)

    client = Client(broker)
    missing_bytes = MAX_COMMIT_BYTES - len(body_of(20_000))
    body = body_of(20_000 + missing_bytes + excess_bytes)
    assert len(body) == MAX_COMMIT_BYTES + excess_bytes
    if excess_bytes:
        with pytest.raises(ProtocolError):
            client.send(body)
    else:
        client.send(body)
        await client.until_answered()
        assert set(client.codes()[0]) == {ErrorCode.OFFSET_METADATA_TOO_LARGE}


async def test_other_clients_are_served_meanwhile(broker: Broker) -> None:
    large, other = Client(broker), Client(broker)
    large.send(request_of(7))
    for number in range(3):
        other.send(request_of(number, topics=1, group="h"))
        await other.until_answered(number + 1)
        assert not large.answered
    await large.until_answered()
    assert broker.committed() == {7}


async def test_later_commit_of_a_connection_does_not_overtake_a_large_one(broker: Broker) -> None:
    client = Client(broker)
    client.send(request_of(7), request_of(8, topics=1), request_of(9))
    await client.until_answered(3)
    assert [len(codes) for codes in client.codes()] == [TOPICS, 1, TOPICS]
    assert broker.logged("topic-0") == [7, 8, 9]
    assert broker.committed() == {9}


async def test_commit_of_another_client_to_the_same_group_is_not_lost(broker: Broker) -> None:
    large, other = Client(broker), Client(broker)
    large.send(request_of(7, topics=1_400))
    for number in range(40):
        other.send(request_of(100 + number, topics=1))
        await asyncio.sleep(0)
    await until_now(lambda: bool(large.answered) and len(other.answered) == 40)
    logged = broker.logged("topic-0")
    assert sorted(logged) == [7, *range(100, 140)]
    assert broker.state.committed("g", "topic-0", 0).offset == logged[-1]
    assert broker.state.committed("g", "topic-1", 0).offset == 7


async def test_few_large_commits_are_worked_on_at_a_time(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [Client(broker) for _ in range(3 * MOST_LARGE)]
    begun = 0

    def counted(*arguments: Any) -> Any:
        nonlocal begun
        begun += 1
        return parse_in_slices(*arguments)

    monkeypatch.setattr("pykraft.broker.apis.coordination.offset_commit.parse_in_slices", counted)
    for number, client in enumerate(clients):
        client.send(request_of(number, group=f"g{number}"))
    gone = clients[MOST_LARGE + 1]
    gone.close()
    while not all(client.answered or client is gone for client in clients):
        assert begun <= MOST_LARGE + len(broker.writer.batches)
        await asyncio.sleep(0)
    assert not gone.answered and broker.committed(f"g{MOST_LARGE + 1}") == {-1}
    assert all(client.codes() == [[0] * TOPICS] for client in clients if client is not gone)


async def test_malformed_large_commit_costs_only_its_connection(broker: Broker) -> None:
    bad, good = [Client(broker) for _ in range(MOST_LARGE)], Client(broker)
    for client in bad:
        client.send(request_of(7)[:-9])
    good.send(request_of(8))
    await good.until_answered()
    assert all(client.closed and not client.answered for client in bad)
    assert broker.committed() == {8}


def outlive_lease(broker: Broker) -> None:
    broker.lease.is_over = True


def delete_topic(broker: Broker) -> None:
    broker.set_topics({name: 1 for name in SIZES if name != "topic-3"})


def resign(broker: Broker) -> None:
    broker.service.on_resigned(0)


@pytest.mark.parametrize(
    ("turns", "change", "code"),
    [
        pytest.param(0, resign, ErrorCode.NOT_COORDINATOR, id="leadership that is lost at once"),
        pytest.param(5, resign, ErrorCode.NOT_COORDINATOR, id="leadership that is lost amid it"),
        pytest.param(12, resign, ErrorCode.NOT_COORDINATOR, id="leadership that is lost late"),
        pytest.param(1, delete_topic, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, id="topic that is deleted"),
        pytest.param(1, outlive_lease, ErrorCode.NONE, id="lease that ends, which is for its answer only"),
    ],
)
async def test_change_amid_a_large_commit_refuses_it_whole(
    broker: Broker, turns: int, change: Callable[[Broker], None], code: ErrorCode
) -> None:
    client = Client(broker)
    client.send(request_of(7))
    await settle(turns)
    change(broker)
    await client.until_answered()
    assert client.codes() == [[code] * TOPICS]
    assert broker.writer.batches == [] if code else broker.committed() == {7}


def test_requests_of_these_tests_are_large_and_small() -> None:
    assert len(request_of(1, topics=1)) < LARGE_BYTES < len(request_of(1, topics=1_400))
