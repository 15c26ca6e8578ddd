"""Large requests and long answers on the way through the server: in slices, in order, and within bounds."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.serving.api import LARGE_BYTES, Api, ForwardedApi, HandledApi, ReceivedRequest, SlicedApi
from pykraft.broker.serving.large_requests import MOST_LARGE
from pykraft.broker.serving.request_server import RequestServer
from pykraft.kafka_protocol.codec import pace
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.connection import Holdable
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import decode_response_header, encode_request
from pykraft.kafka_protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from pykraft.kafka_protocol.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from pykraft.kafka_protocol.messages.topics import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from pykraft.runtime.turns import TURN_US
from tests.asynchronous import in_loop
from tests.broker import slices
from tests.broker.slices import Turns
from tests.unexpected import unexpected
from tests.waits import until_now

VERSION = 2
GROUPS = 2_000
NAMES = [f"group-{number}" for number in range(GROUPS)]
assert sum(map(len, NAMES)) > 2 * LARGE_BYTES


class Client(slices.Client):
    def ask(self, *requests: Message) -> None:
        self.send(*(encode_request(one, VERSION, number, "c") for number, one in enumerate(requests)))

    async def until_answered(self, count: int = 1) -> None:
        await until_now(lambda: len(self.answered) == count)

    def decoded(self, response: type[Any]) -> list[Any]:
        key, frames = response.API_KEY, self.frames
        return [
            response.decode(one[decode_response_header(key, VERSION, one)[1] :], VERSION) for one in frames
        ]


class World:
    """A server of one API. ``looked_at``: the groups that its handler has looked at, in order; ``messages``:
    its requests and answers.
    """

    def __init__(
        self,
        *,
        sliced: bool = True,
        max_items: int = GROUPS,
        hold: Callable[[Holdable], bool] | None = None,
    ) -> None:
        self.turns = Turns(TURN_US // 8)
        self.looked_at: list[str] = []
        self.messages: list[DeleteGroupsRequest | DeleteGroupsResponse] = []
        self.begun = 0
        self.go_on = asyncio.Event()
        self.code = ErrorCode.NONE
        """If it is an error, all is refused with it."""
        partitions = None if hold is None else _partitions_of
        kind: Any = SlicedApi if sliced else HandledApi
        row: Api[Any, Any, Any] = kind(
            DeleteGroupsRequest,
            DeleteGroupsResponse,
            self._delete_in_slices if sliced else self._delete_later,
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

    def client(self) -> Client:
        return Client(self.server, self.turns)

    def _delete_in_slices(
        self, services: object, context: object, request: DeleteGroupsRequest, version: int
    ) -> Generator[None, None, DeleteGroupsResponse]:
        self.begun += 1
        if self.code:
            raise KafkaError(self.code)
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


@asynccontextmanager
async def begun(*, sliced: bool = True) -> AsyncIterator[World]:
    world = World(sliced=sliced)
    yield world
    await world.server.close()


world = in_loop(begun)


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


@pytest.mark.parametrize(
    ("groups", "code", "turns"),
    [
        pytest.param(GROUPS, ErrorCode.NONE, GROUPS // 10, id="large request"),
        pytest.param(400, ErrorCode.NONE, 40, id="small request with a long answer"),
        pytest.param(GROUPS, ErrorCode.COORDINATOR_NOT_AVAILABLE, GROUPS // 10, id="error for each item"),
    ],
)
async def test_it_takes_many_turns_and_other_clients_are_served_between_them(
    world: World, groups: int, code: ErrorCode, turns: int
) -> None:
    """A tenth of a turn or more for each group."""
    world.code, names = code, NAMES[:groups]
    large, other = world.client(), world.client()
    large.ask(deletion(names))
    other.ask(DescribeClusterRequest())
    await large.until_answered()
    assert large.decoded(DeleteGroupsResponse) == [expected(names, code)]
    assert world.looked_at == ([] if code else names)
    assert large.answered[0] > turns
    assert other.answered[0] < 10


@pytest.mark.parametrize("sliced", [False, True])
async def test_elements_of_a_large_request_and_its_answer_are_let_go_in_slices(
    sliced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = []
    for at_once in (GROUPS, 10):
        monkeypatch.setattr(pace, "FREED_AT_ONCE", at_once)
        world = World(sliced=sliced)
        world.go_on.set()
        client = world.client()
        client.ask(deletion(), deletion(["next"]))
        await client.until_answered(2)
        assert client.decoded(DeleteGroupsResponse) == [expected(), expected(["next"])]
        request, answer = world.messages[:2]
        assert isinstance(request, DeleteGroupsRequest) and isinstance(answer, DeleteGroupsResponse)
        assert not request.groups_names and not answer.results
        turns.append(client.answered[1])
        await world.server.close()
    assert turns[1] - turns[0] >= 2 * GROUPS // 10 // 10, "a slice takes an eighth of a turn or more"


@pytest.mark.world(sliced=False)
async def test_the_next_request_of_its_connection_waits_until_a_large_one_is_answered(world: World) -> None:
    client = world.client()
    client.ask(deletion(), deletion(["next"]))
    await until_now(lambda: world.begun == 1)
    await asyncio.sleep(0)
    assert not client.answered
    world.go_on.set()
    await client.until_answered(2)
    assert client.decoded(DeleteGroupsResponse) == [expected(), expected(["next"])]


async def test_few_large_requests_are_worked_on_at_a_time(world: World) -> None:
    clients = [world.client() for _ in range(3 * MOST_LARGE)]
    most = 0
    for client in clients:
        client.ask(deletion())
    while not all(client.answered for client in clients):
        finished = sum(bool(client.answered) for client in clients)
        most = max(most, world.begun - finished)
        await asyncio.sleep(0)
    assert most == MOST_LARGE
    assert len(world.looked_at) == GROUPS * len(clients)


async def test_a_large_request_whose_client_has_gone_is_not_begun(world: World) -> None:
    clients = [world.client() for _ in range(MOST_LARGE + 1)]
    for client in clients:
        client.ask(deletion())
    clients[-1].close()
    await until_now(lambda: all(client.answered for client in clients[:-1]))
    assert world.begun == MOST_LARGE


@pytest.mark.parametrize("sliced", [True, False])
async def test_a_request_with_too_many_items_closes_a_connection_whose_answer_has_no_place_for_an_error(
    sliced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for names in (NAMES, NAMES[:11]):
        world = World(sliced=sliced, max_items=10)
        client = world.client()
        with caplog.at_level("INFO"):
            client.ask(deletion(names))
            await until_now(lambda client=client: client.closed)  # type: ignore[misc]
        assert caplog.messages[-1].endswith("DELETE_GROUPS request refused: more than 10 items")
        assert not world.begun
        await world.server.close()


@pytest.mark.parametrize("topics", [2_000, 1_001])
async def test_a_request_with_too_many_items_is_answered_where_the_answer_has_a_place_for_an_error(
    world: World, topics: int
) -> None:
    client = world.client()
    client.ask(ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t")] * topics))
    await client.until_answered()
    (answer,) = client.decoded(ElectLeadersResponse)
    assert answer == ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)


async def test_a_malformed_large_request_closes_the_connection(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    client = world.client()
    frame = encode_request(deletion(), VERSION, 1, "c")[:-5]
    with caplog.at_level("INFO"):
        client.send(frame)
        await until_now(lambda: client.closed)
    assert "malformed request" in caplog.messages[-1]


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
    client = world.client()
    client.ask(deletion())
    for number in (1, 2):
        await until_now(lambda number=number: len(held) == number)  # type: ignore[misc]
        assert not world.begun
        held[-1].retry_frame()
    await client.until_answered()
    assert client.decoded(DeleteGroupsResponse) == [expected()]
    await world.server.close()
