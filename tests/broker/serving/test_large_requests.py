"""Large requests and long answers on the way through the server: in slices, in order, and within bounds."""

import asyncio
import struct
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, cast

import pytest

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.serving.api import LARGE_BYTES, Api, ForwardedApi, HandledApi, ReceivedRequest, SlicedApi
from pykraft.broker.serving.large_requests import MOST_LARGE
from pykraft.broker.serving.request_server import RequestServer
from pykraft.kafka_protocol.codec import pace
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.connection import Connection, Holdable
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import decode_response_header, encode_request
from pykraft.kafka_protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from pykraft.kafka_protocol.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from pykraft.kafka_protocol.messages.topics import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from pykraft.runtime.network.streams import Chunk
from pykraft.runtime.turns import TURN_US, TurnBudget
from tests.broker.links import RecordedLink
from tests.unexpected import unexpected
from tests.waits import until

VERSION = 2
GROUPS = 2_000
NAMES = [f"group-{number}" for number in range(GROUPS)]
assert sum(map(len, NAMES)) > 2 * LARGE_BYTES


_until = partial(until, every_s=0)


class Turns:
    """Counts the turns of the loop; each look at the clock of the budget shows an eighth of a turn more."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.number = 0
        self._now_us = 0
        self.budget = TurnBudget(self._loop.call_soon, self._look)
        self._count()

    def _count(self) -> None:
        self.number += 1
        self._handle = self._loop.call_soon(self._count)

    def _look(self) -> int:
        self._now_us += TURN_US // 8
        return self._now_us

    def stop(self) -> None:
        self._handle.cancel()


class Client(RecordedLink):
    """One connection; what it sends is given to the server as far as it takes it."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._unread = bytearray()
        super().__init__()
        self.answered: list[int] = []
        """The turn of each answer."""
        self.connection = Connection(
            self,
            world.server,
            connection_id=1,
            peer_address="::1",
            listener_name="PLAINTEXT",
            max_request_bytes=100 << 20,
        )

    def send(self, *requests: Message) -> None:
        for number, request in enumerate(requests):
            frame = encode_request(request, VERSION, number, "c")
            self._unread += struct.pack(">i", len(frame)) + frame
        self.receive_more()

    async def until_answered(self, count: int) -> None:
        await _until(lambda: len(self.answered) == count)

    def decoded(self, response: type[Any]) -> list[Any]:
        found, at = [], 0
        while at < len(self.sent):
            end = at + 4 + int(struct.unpack_from(">i", self.sent, at)[0])
            frame = bytes(self.sent[at + 4 : end])
            _, body_at = decode_response_header(response.API_KEY, VERSION, frame)
            found.append(response.decode(frame[body_at:], VERSION))
            at = end
        return found

    # The transport, as the connection sees it.

    def write(self, chunks: Sequence[Chunk]) -> None:
        super().write(chunks)
        self.answered.append(self._world.turns.number)

    def close(self) -> None:
        super().close()
        self.connection.connection_lost()

    def receive_more(self) -> None:
        if not self.closed:
            taken = self.connection.receive(memoryview(bytes(self._unread)))
            del self._unread[:taken]


class World:
    """A server of one API. ``looked_at``: the groups that its handler has looked at, in order; ``messages``:
    its requests and answers.
    """

    def __init__(
        self,
        *,
        sliced: bool = True,
        max_items: int = GROUPS,
        refuse: bool = False,
        hold: Callable[[Holdable], bool] | None = None,
    ) -> None:
        self.turns = Turns()
        self.looked_at: list[str] = []
        self.messages: list[DeleteGroupsRequest | DeleteGroupsResponse] = []
        self.begun = 0
        self.go_on = asyncio.Event()
        self._refuse = refuse
        partitions = None if hold is None else _partitions_of
        row: Api[Any, Any, Any]
        if sliced:
            row = SlicedApi(
                DeleteGroupsRequest,
                DeleteGroupsResponse,
                self._delete_in_slices,
                max_items=max_items,
                partitions=partitions,
            )
        else:
            row = HandledApi(
                DeleteGroupsRequest,
                DeleteGroupsResponse,
                self._delete_later,
                max_items=max_items,
                partitions=partitions,
            )
        cluster = HandledApi(DescribeClusterRequest, DescribeClusterResponse, _describe)
        elections = ForwardedApi(ElectLeadersRequest, ElectLeadersResponse, _forward, max_items=1_000)

        def hold_until_open(held: Holdable, asked: Iterable[object]) -> bool:
            assert hold is not None
            return "group-7" in [name for name, _, _ in cast(Any, asked)] and hold(held)

        self.server: RequestServer[BrokerServices] = RequestServer(
            cast(BrokerServices, None),
            (row, cluster, elections),
            self.turns.budget,
            unexpected,
            None if hold is None else hold_until_open,
        )

    def _delete_in_slices(
        self, services: object, context: object, request: DeleteGroupsRequest, version: int
    ) -> Generator[None, None, DeleteGroupsResponse]:
        self.begun += 1
        if self._refuse:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        results = []
        for name in request.groups_names:
            self.looked_at.append(name)
            results.append(DeletableGroupResult(group_id=name))
            yield
        self.messages += request, (answer := DeleteGroupsResponse(results=results))
        return answer

    async def _delete_later(
        self, services: object, context: object, request: DeleteGroupsRequest, version: int
    ) -> DeleteGroupsResponse:
        self.begun += 1
        await self.go_on.wait()
        results = [DeletableGroupResult(group_id=n) for n in request.groups_names]
        self.messages += request, (answer := DeleteGroupsResponse(results=results))
        return answer


def _partitions_of(request: DeleteGroupsRequest) -> Iterable[tuple[str, int]]:
    return ((name, 0) for name in request.groups_names)


async def _describe(
    services: object, context: object, request: DescribeClusterRequest, version: int
) -> DescribeClusterResponse:
    return DescribeClusterResponse(cluster_id="the cluster")


async def _forward(services: object, context: object, received: ReceivedRequest[Any]) -> bytes:
    assert received.request is not None
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)


def deletion(names: Sequence[str] = NAMES) -> DeleteGroupsRequest:
    return DeleteGroupsRequest(groups_names=list(names))


def expected(names: Sequence[str] = NAMES, code: ErrorCode = ErrorCode.NONE) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=n, error_code=code) for n in names])


async def test_a_large_request_takes_many_turns_and_other_clients_are_served_between_them() -> None:
    world = World()
    large, other = Client(world), Client(world)
    large.send(deletion())
    other.send(DescribeClusterRequest())
    await _until(lambda: bool(large.answered))
    assert large.decoded(DeleteGroupsResponse) == [expected()]
    assert world.looked_at == NAMES
    assert large.answered[0] > GROUPS // 10, "a tenth of a turn or more for each"
    assert other.answered[0] < 10
    await world.server.close()


@pytest.mark.parametrize("sliced", [False, True])
async def test_elements_of_a_large_request_and_its_answer_are_let_go_in_slices(
    sliced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = []
    for at_once in (GROUPS, 10):
        monkeypatch.setattr(pace, "FREED_AT_ONCE", at_once)
        world = World(sliced=sliced)
        world.go_on.set()
        client = Client(world)
        client.send(deletion(), deletion(["next"]))
        await client.until_answered(2)
        assert client.decoded(DeleteGroupsResponse) == [expected(), expected(["next"])]
        request, answer = world.messages[:2]
        assert isinstance(request, DeleteGroupsRequest) and isinstance(answer, DeleteGroupsResponse)
        assert not request.groups_names and not answer.results
        turns.append(client.answered[1])
        await world.server.close()
    assert turns[1] - turns[0] >= 2 * GROUPS // 10 // 10, "a slice takes an eighth of a turn or more"


async def test_the_next_request_of_its_connection_waits_until_a_large_one_is_answered() -> None:
    world = World(sliced=False)
    client = Client(world)
    client.send(deletion(), deletion(["next"]))
    await _until(lambda: world.begun == 1)
    await asyncio.sleep(0)
    assert not client.answered
    world.go_on.set()
    await _until(lambda: len(client.answered) == 2)
    assert client.decoded(DeleteGroupsResponse) == [expected(), expected(["next"])]
    await world.server.close()


async def test_a_small_request_with_a_long_answer_is_answered_in_slices_too() -> None:
    world = World()
    client, other = Client(world), Client(world)
    names = NAMES[:400]
    client.send(deletion(names))
    other.send(DescribeClusterRequest())
    await _until(lambda: len(client.answered) == 1)
    assert client.decoded(DeleteGroupsResponse) == [expected(names)]
    assert client.answered[0] > 40
    assert other.answered[0] < 10
    await world.server.close()


async def test_few_large_requests_are_worked_on_at_a_time() -> None:
    world = World()
    clients = [Client(world) for _ in range(3 * MOST_LARGE)]
    most = 0
    for client in clients:
        client.send(deletion())
    while not all(client.answered for client in clients):
        finished = sum(bool(client.answered) for client in clients)
        most = max(most, world.begun - finished)
        await asyncio.sleep(0)
    assert most == MOST_LARGE
    assert len(world.looked_at) == GROUPS * len(clients)
    await world.server.close()


async def test_a_large_request_whose_client_has_gone_is_not_begun() -> None:
    world = World()
    clients = [Client(world) for _ in range(MOST_LARGE + 1)]
    for client in clients:
        client.send(deletion())
    clients[-1].close()
    await _until(lambda: all(client.answered for client in clients[:-1]))
    assert world.begun == MOST_LARGE
    await world.server.close()


@pytest.mark.parametrize("sliced", [True, False])
async def test_a_request_with_too_many_items_closes_a_connection_whose_answer_has_no_place_for_an_error(
    sliced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for names in (NAMES, NAMES[:11]):
        world = World(sliced=sliced, max_items=10)
        client = Client(world)
        with caplog.at_level("INFO"):
            client.send(deletion(names))
            await _until(lambda client=client: client.closed)  # type: ignore[misc]
        assert caplog.messages[-1].endswith("DELETE_GROUPS request refused: more than 10 items")
        assert not world.begun
        await world.server.close()


@pytest.mark.parametrize("topics", [2_000, 1_001])
async def test_a_request_with_too_many_items_is_answered_where_the_answer_has_a_place_for_an_error(
    topics: int,
) -> None:
    world = World()
    client = Client(world)
    client.send(ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t")] * topics))
    await _until(lambda: bool(client.answered))
    (answer,) = client.decoded(ElectLeadersResponse)
    assert answer == ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    await world.server.close()


async def test_an_error_for_each_item_of_a_large_request_is_answered_in_slices() -> None:
    world = World(refuse=True)
    client = Client(world)
    client.send(deletion())
    await _until(lambda: bool(client.answered))
    assert client.decoded(DeleteGroupsResponse) == [expected(code=ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert client.answered[0] > GROUPS // 10
    await world.server.close()


async def test_a_malformed_large_request_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    client = Client(world)
    frame = encode_request(deletion(), VERSION, 1, "c")[:-5]
    with caplog.at_level("INFO"):
        client._unread += struct.pack(">i", len(frame)) + frame
        client.receive_more()
        await _until(lambda: client.closed)
    assert "malformed request" in caplog.messages[-1]
    await world.server.close()


@pytest.mark.parametrize("sliced", [True, False])
async def test_a_large_request_waits_for_a_log_that_is_about_to_be_led(sliced: bool) -> None:
    held: list[Holdable] = []
    now_ms = 5

    def hold(request: Holdable) -> bool:
        if len(held) == 2:
            return False
        assert request.held_since_ms == (5 if held else None)
        request.hold_frame(now_ms + len(held))
        held.append(request)
        return True

    world = World(sliced=sliced, hold=hold)
    world.go_on.set()
    client = Client(world)
    client.send(deletion())
    for number in (1, 2):
        await _until(lambda number=number: len(held) == number)  # type: ignore[misc]
        assert not world.begun
        held[-1].retry_frame()
    await _until(lambda: bool(client.answered))
    assert client.decoded(DeleteGroupsResponse) == [expected()]
    await world.server.close()
