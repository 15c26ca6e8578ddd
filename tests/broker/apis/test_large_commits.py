"""Large OffsetCommit requests on the broker: over several turns, in order, beside other clients."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from pykraft.broker.apis.coordination.offset_commit import (
    LARGE_BYTES,
    MAX_COMMIT_BYTES,
    MOST_LARGE,
    OffsetCommitHandler,
)
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.framing import SIZE_BYTES
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
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE
from pykraft.runtime.turns import TURN_US, TurnBudget
from tests.broker.links import RecordedLink
from tests.clocks import ManualClock
from tests.group_coordinator import tools
from tests.unexpected import unexpected

VERSION = 9
TOPICS = 1_500
SIZES = {f"topic-{n}": 1 for n in range(TOPICS)}
CONFIG = GroupConfig(offsets_topic_num_partitions=1)


def request_of(offset: int, topics: int = TOPICS, group: str = "g") -> bytes:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    named = [OffsetCommitRequestTopic(name=f"topic-{n}", partitions=[partition]) for n in range(topics)]
    return OffsetCommitRequest(group_id=group, topics=named).encode(VERSION)


class Client(RecordedLink):
    """One connection; what it sends is given to the broker as far as it takes it."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._received = bytearray()
        super().__init__()
        self.answered: list[int] = []
        """The turn of each answer."""
        handler: Any = self
        link: Any = self
        self.connection = Connection(
            link,
            handler,
            connection_id=1,
            peer_address="127.0.0.1",
            listener_name="PLAINTEXT",
            max_request_bytes=100 << 20,
        )

    def send(self, *bodies: bytes) -> None:
        for body in bodies:
            self._received += len(body).to_bytes(SIZE_BYTES, "big") + body
        self.receive_more()

    def handle_frame(self, connection: Connection, frame: memoryview, slot: ResponseSlot) -> None:
        header = RequestHeader(int(ApiKey.OFFSET_COMMIT), VERSION, 5, "cli")
        self._broker.handler.handle(connection, RequestContext(), header, frame, slot)

    def codes(self) -> list[list[int]]:
        """Of each answer."""
        found, at = [], 0
        header = encode_response_header(ApiKey.OFFSET_COMMIT, VERSION, 5)
        while at < len(self.sent):
            end = at + SIZE_BYTES + int.from_bytes(self.sent[at : at + SIZE_BYTES], "big")
            body = self.sent[at + SIZE_BYTES + len(header) : end]
            response = OffsetCommitResponse.decode(bytes(body), VERSION)
            found.append([p.error_code for topic in response.topics for p in topic.partitions])
            at = end
        return found

    # The transport, as the connection sees it.

    def write(self, chunks: Any) -> None:
        super().write(chunks)
        self.answered.append(self._broker.turn)

    def close(self) -> None:
        super().close()
        self.connection.connection_lost()

    def receive_more(self) -> None:
        frame = memoryview(bytes(self._received))
        del self._received[: self.connection.receive(frame)]


class Lease:
    """Of the broker; ``is_over``: for a while, though nothing has fenced it."""

    is_over = False

    def lease_valid(self, now_ms: int) -> bool:
        return not self.is_over

    def expired_ms(self, now_ms: int) -> int | None:
        return 100 if self.is_over else 0


class Broker:
    """A coordinator of one partition. Each look at the clock shows half of a turn more."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.turn = 0
        self._now_us = 0
        self.budget = TurnBudget(loop.call_soon, self._look)
        self.writer = tools.MemoryWriter()
        self.lease = Lease()
        self.groups = GroupCoordinatorService(
            CONFIG, self.writer, ManualClock(), Random(1), unexpected, self.lease, turns=self.budget
        )
        self.set_topics(SIZES)
        self.groups.on_elected(0, 1)
        services: Any = SimpleNamespace(
            groups=self.groups,
            replicas=SimpleNamespace(lease=SimpleNamespace(is_fenced=False)),
            tasks=SimpleNamespace(start=lambda work, name: loop.create_task(work)),
        )
        self.handler = OffsetCommitHandler(services, self.budget)
        self._count()

    def _look(self) -> int:
        self._now_us += TURN_US // 2
        return self._now_us

    def _count(self) -> None:
        self.turn += 1
        self._handle = asyncio.get_running_loop().call_soon(self._count)

    def set_topics(self, sizes: dict[str, int]) -> None:
        image = tools.make_image(sizes)
        delta = MetadataDelta(EMPTY_IMAGE, image)
        self.groups.on_metadata(delta, image)

    @property
    def state(self) -> Any:
        return self.groups._runtime.state_of(0)

    def committed(self, group: str = "g") -> set[int]:
        """The offsets of all topics; -1 for a topic without."""
        topics = self.state.group_offsets(group)
        found = {name: topics[name].get(0).offset if name in topics else -1 for name in SIZES}
        return set(found.values())

    def logged(self, topic: str) -> list[int]:
        """The offsets of a topic in the order of the log."""
        records = [tools.decode(key, value) for key, value in self.writer.logs[0]]
        return [r.value.offset for r in records if r.key.topic == topic]  # type: ignore[union-attr]

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(5_000):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError("it never happened")

    async def stop(self) -> None:
        await self.groups.stop()
        self._handle.cancel()


@asynccontextmanager
async def running() -> AsyncIterator[Broker]:
    broker = Broker()
    for _ in range(20):
        await asyncio.sleep(0)
    yield broker
    await broker.stop()


async def test_large_commit_is_one_batch_after_several_turns() -> None:
    async with running() as broker:
        client = Client(broker)
        began = broker.turn
        client.send(request_of(7))
        while not client.answered:
            assert broker.committed() in ({-1}, {7}), "half of a commit is visible"
            await asyncio.sleep(0)
        assert broker.turn - began > 10
        assert client.codes() == [[0] * TOPICS]
        assert [len(records) for _, _, records in broker.writer.batches] == [TOPICS]


@pytest.mark.parametrize("excess_bytes", [0, 1])
async def test_largest_commit_is_answered_and_a_larger_one_ends_its_connection(excess_bytes: int) -> None:
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

    async with running() as broker:
        client = Client(broker)
        missing_bytes = MAX_COMMIT_BYTES - len(body_of(20_000))
        body = body_of(20_000 + missing_bytes + excess_bytes)
        assert len(body) == MAX_COMMIT_BYTES + excess_bytes
        if excess_bytes:
            with pytest.raises(ProtocolError):
                client.send(body)
        else:
            client.send(body)
            await broker.until(lambda: bool(client.answered))
            assert set(client.codes()[0]) == {ErrorCode.OFFSET_METADATA_TOO_LARGE}


async def test_other_clients_are_served_meanwhile() -> None:
    async with running() as broker:
        large, other = Client(broker), Client(broker)
        large.send(request_of(7))
        for number in range(3):
            other.send(request_of(number, topics=1, group="h"))
            await broker.until(lambda number=number: len(other.answered) == number + 1)  # type: ignore[misc]
            assert not large.answered
        await broker.until(lambda: bool(large.answered))
        assert broker.committed() == {7}


async def test_later_commit_of_a_connection_does_not_overtake_a_large_one() -> None:
    async with running() as broker:
        client = Client(broker)
        client.send(request_of(7), request_of(8, topics=1), request_of(9))
        await broker.until(lambda: len(client.answered) >= 3)
        assert [len(codes) for codes in client.codes()] == [TOPICS, 1, TOPICS]
        assert broker.logged("topic-0") == [7, 8, 9]
        assert broker.committed() == {9}


async def test_commit_of_another_client_to_the_same_group_is_not_lost() -> None:
    async with running() as broker:
        large, other = Client(broker), Client(broker)
        large.send(request_of(7, topics=1_400))
        for number in range(40):
            other.send(request_of(100 + number, topics=1))
            await asyncio.sleep(0)
        await broker.until(lambda: bool(large.answered) and len(other.answered) == 40)
        logged = broker.logged("topic-0")
        assert sorted(logged) == [7, *range(100, 140)]
        assert broker.state.committed("g", "topic-0", 0).offset == logged[-1]
        assert broker.state.committed("g", "topic-1", 0).offset == 7


async def test_few_large_commits_are_worked_on_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as broker:
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


async def test_malformed_large_commit_costs_only_its_connection() -> None:
    async with running() as broker:
        bad, good = [Client(broker) for _ in range(MOST_LARGE)], Client(broker)
        for client in bad:
            client.send(request_of(7)[:-9])
        good.send(request_of(8))
        await broker.until(lambda: bool(good.answered))
        assert all(client.closed and not client.answered for client in bad)
        assert broker.committed() == {8}


@pytest.mark.parametrize("when", [0, 5, 12])
async def test_leadership_that_is_lost_meanwhile_refuses_the_whole_commit(when: int) -> None:
    async with running() as broker:
        client = Client(broker)
        client.send(request_of(7))
        for _ in range(when):
            await asyncio.sleep(0)
        broker.groups.on_resigned(0)
        await broker.until(lambda: bool(client.answered))
        assert client.codes() == [[ErrorCode.NOT_COORDINATOR] * TOPICS]
        assert not broker.writer.batches


async def test_large_commit_past_the_lease_is_answered() -> None:
    async with running() as broker:
        client = Client(broker)
        client.send(request_of(7))
        await asyncio.sleep(0)
        broker.lease.is_over = True
        await broker.until(lambda: bool(client.answered))
        assert client.codes() == [[0] * TOPICS]
        assert broker.committed() == {7}


async def test_topic_that_is_deleted_meanwhile_is_not_committed_to() -> None:
    async with running() as broker:
        client = Client(broker)
        client.send(request_of(7))
        await asyncio.sleep(0)
        broker.set_topics({name: 1 for name in SIZES if name != "topic-3"})
        await broker.until(lambda: bool(client.answered))
        assert client.codes() == [[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * TOPICS]
        assert not broker.writer.batches


def test_requests_of_these_tests_are_large_and_small() -> None:
    assert len(request_of(1, topics=1)) < LARGE_BYTES < len(request_of(1, topics=1_400))
