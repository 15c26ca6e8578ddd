"""From frames to answers: what is refused, how, and how that affects other connections."""

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.serving.api import ForwardedApi, HandledApi, HotApi, ReceivedRequest
from pykraft.broker.serving.request_server import MAX_DECODED_BYTES, RequestServer
from pykraft.kafka_protocol.connection import FRAMES_PER_CALLBACK, Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import encode_request
from pykraft.kafka_protocol.messages.cluster import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from pykraft.kafka_protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from pykraft.kafka_protocol.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from pykraft.runtime.turns import TURN_STEPS, TURN_US, TurnBudget, UnlimitedTurn
from tests.broker.links import ConnectedLink
from tests.unexpected import unexpected


async def _heartbeat(
    services: object, context: object, request: HeartbeatRequest, version: int
) -> HeartbeatResponse:
    if request.group_id == "refused":
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if request.group_id == "bug":
        raise ZeroDivisionError
    if request.group_id == "unencodable":
        return HeartbeatResponse(throttle_time_ms=1 << 40)
    return HeartbeatResponse(throttle_time_ms=7)


async def _versions(
    services: object, context: object, request: ApiVersionsRequest, version: int
) -> ApiVersionsResponse:
    return ApiVersionsResponse()


async def _forward(
    services: object, context: object, received: ReceivedRequest[DeleteTopicsRequest]
) -> bytes:
    """A controller that parses the requests that the broker forwards unparsed, and refuses some."""
    request, _ = DeleteTopicsRequest.decode_from(received.body, 0, received.version)
    if not request.topic_names:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
    return b"as the controller said: " + received.body


def _versions_error(request: ApiVersionsRequest, version: int, error: KafkaError) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=error.code, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
    )


APIS = (
    HandledApi(
        HeartbeatRequest, HeartbeatResponse, _heartbeat, refused_when_fenced=ErrorCode.NOT_COORDINATOR
    ),
    HandledApi(ApiVersionsRequest, ApiVersionsResponse, _versions, build_error=_versions_error),
    ForwardedApi(DeleteTopicsRequest, DeleteTopicsResponse, _forward),
)


def _server(is_fenced: bool = False) -> RequestServer[BrokerServices]:
    services = cast(BrokerServices, None)
    return RequestServer(services, APIS, UnlimitedTurn(), unexpected, is_fenced=lambda: is_fenced)


async def _send(*frames: bytes, is_fenced: bool = False) -> ConnectedLink:
    """Play frames to a server and wait until it has dealt with all of them."""
    server = _server(is_fenced)
    link = ConnectedLink(server)
    link.send(*frames)
    while link.answers < len(frames) and not link.closed:
        await asyncio.sleep(0)
    await server.close()
    return link


def _beat(group_id: str, correlation_id: int) -> bytes:
    return encode_request(HeartbeatRequest(group_id=group_id), 3, correlation_id, "client")


def test_answers_carry_the_error_of_the_handler_and_come_in_order() -> None:
    link = asyncio.run(_send(_beat("fine", 1), _beat("refused", 2)))
    bodies = [
        HeartbeatResponse(throttle_time_ms=7),
        HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    expected = b"".join(
        struct.pack(">ii", 4 + len(body.encode(3)), number) + body.encode(3)
        for number, body in enumerate(bodies, 1)
    )
    assert bytes(link.sent) == expected


def test_a_bug_in_a_handler_costs_its_own_request_only(caplog: pytest.LogCaptureFixture) -> None:
    link = asyncio.run(_send(_beat("bug", 1), _beat("fine", 2)))
    size = struct.unpack_from(">i", link.sent)[0]
    first = HeartbeatResponse.decode(bytes(link.sent[8 : 4 + size]), 3)
    assert first.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(link.sent) > 4 + size
    assert "HEARTBEAT failed" in caplog.text


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.UNKNOWN_MEMBER_ID), ErrorCode.UNKNOWN_MEMBER_ID),
        (ZeroDivisionError(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_handler_that_raises_before_there_is_anything_to_wait_for_costs_its_own_request_only(
    error: Exception, code: ErrorCode
) -> None:
    def beat(
        services: object, context: object, request: HeartbeatRequest, version: int
    ) -> Awaitable[HeartbeatResponse]:
        if request.group_id == "raises":
            raise error
        return _heartbeat(services, context, request, version)

    row = HandledApi(HeartbeatRequest, HeartbeatResponse, beat)
    server = RequestServer(cast(BrokerServices, None), (row,), UnlimitedTurn(), unexpected)
    link = ConnectedLink(server)
    link.send(_beat("fine", 1), _beat("raises", 2), _beat("fine", 3))
    assert not link.closed
    codes = [HeartbeatResponse.decode(frame[4:], 3).error_code for frame in link.frames]
    assert codes == [ErrorCode.NONE, code, ErrorCode.NONE]
    await server.close()


async def test_a_request_that_comes_after_the_close_is_not_handled() -> None:
    server = _server()
    await server.close()
    link = ConnectedLink(server)
    link.send(_beat("fine", 1))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not link.sent and not link.closed


def test_an_answer_that_cannot_be_encoded_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        link = asyncio.run(_send(_beat("unencodable", 1)))
    assert link.closed
    assert "no answer to HEARTBEAT version 3" in caplog.text


def test_a_fenced_broker_refuses_what_its_row_says() -> None:
    link = asyncio.run(_send(_beat("fine", 1), is_fenced=True))
    response = HeartbeatResponse.decode(bytes(link.sent[8:]), 3)
    assert response.error_code == ErrorCode.NOT_COORDINATOR


def _deletion(correlation_id: int, *names: str, version: int = 3) -> bytes:
    return encode_request(DeleteTopicsRequest(topic_names=list(names)), version, correlation_id, None)


def test_a_forwarded_request_and_its_answer_are_passed_on_as_bytes() -> None:
    tail = b"bytes behind the request"
    link = asyncio.run(_send(_deletion(1, "t") + tail))
    body = DeleteTopicsRequest(topic_names=["t"]).encode(3) + tail
    assert bytes(link.sent[8:]) == b"as the controller said: " + body


def test_a_failed_forwarded_request_is_answered_for_everything_it_named() -> None:
    link = asyncio.run(_send(_deletion(1), _deletion(2)))
    assert link.sent.count(DeleteTopicsResponse().encode(3)) == 2
    row = next(api for api in APIS if api.request is DeleteTopicsRequest)
    error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "why")
    request = DeleteTopicsRequest(topic_names=["t", "u"])
    assert row.error_response(request, 5, error).responses == [
        DeletableTopicResult(name=name, error_code=ErrorCode.REQUEST_TIMED_OUT, error_message="why")
        for name in ("t", "u")
    ]


async def test_a_forwarded_request_is_given_up_when_its_client_has_gone() -> None:
    began, given_up = asyncio.Event(), asyncio.Event()

    async def forward(
        services: object, context: object, received: ReceivedRequest[DeleteTopicsRequest]
    ) -> bytes:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            given_up.set()
        return b""

    apis = (ForwardedApi(DeleteTopicsRequest, DeleteTopicsResponse, forward),)
    server = RequestServer(cast(BrokerServices, None), apis, UnlimitedTurn(), unexpected)
    link = ConnectedLink(server)
    link.send(_deletion(1, "t"))
    await began.wait()
    link.connection.connection_lost()
    async with asyncio.timeout(10):
        await given_up.wait()


def test_a_malformed_forwarded_request_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """The controller finds the request malformed, and so does the broker, which should answer the error."""
    with caplog.at_level(logging.INFO):
        link = asyncio.run(_send(_deletion(1, "t")[:-5]))
    assert link.closed
    (record,) = caplog.records
    assert "malformed request" in record.getMessage()


def test_bytes_after_a_request_are_ignored() -> None:
    link = asyncio.run(_send(_beat("fine", 1) + b"\0\0\0"))
    assert link.sent
    assert not link.closed


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (struct.pack(">hhih", 999, 0, 1, -1), "unknown API 999"),
        (struct.pack(">hhihb", 12, 9, 1, -1, 0), "HEARTBEAT version 9 is not served"),
        (_beat("fine", 1)[:-8], "malformed request"),
        (b"\0", "malformed request"),
        (_beat("fine", 1) + bytes(MAX_DECODED_BYTES), "HEARTBEAT request of"),
    ],
)
def test_request_that_cannot_be_answered_closes_the_connection_with_one_line(
    frame: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        link = asyncio.run(_send(frame))
    assert link.closed
    (record,) = caplog.records
    assert reason in record.getMessage()
    assert record.exc_info is None


def test_a_newer_api_versions_is_answered_in_the_oldest_encoding() -> None:
    frame = encode_request(ApiVersionsRequest(), 4, 5, "client")
    newer = frame[:2] + struct.pack(">h", 99) + frame[4:]
    link = asyncio.run(_send(newer))
    assert struct.unpack_from(">i", link.sent, 4)[0] == 5
    response = ApiVersionsResponse.decode(bytes(link.sent[8:]), 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.max_version) for key in response.api_keys] == [(18, 4)]


class _Turns(UnlimitedTurn):
    """Counts the steps of requests."""

    steps = 0

    def spend(self, count_bytes: int = 0, steps: int = 0) -> bool:
        self.steps += steps
        return True


class _Waiting:
    """A heartbeat of the group "slow" waits until it is told to go on; others are answered at once."""

    def __init__(self, *, ends_with_client: bool = False) -> None:
        self.turns = _Turns()
        self.go_on = asyncio.get_running_loop().create_future()
        self.ended: list[str] = []
        row = HandledApi(HeartbeatRequest, HeartbeatResponse, self._beat, ends_with_client=ends_with_client)
        self.server = RequestServer(cast(BrokerServices, None), (row,), self.turns, unexpected)
        self.link = ConnectedLink(self.server)

    async def _beat(
        self, services: object, context: object, request: HeartbeatRequest, version: int
    ) -> HeartbeatResponse:
        if request.group_id == "slow":
            try:
                await self.go_on
            finally:
                self.ended.append("slow")
        if request.group_id == "closes":
            self.link.connection.close("the handler says so")
        if request.group_id in ("bug", "slow and wrong"):
            raise ZeroDivisionError
        self.ended.append(request.group_id)
        return HeartbeatResponse()

    def receive(self, *groups: str) -> None:
        self.link.send(*(_beat(group, number) for number, group in enumerate(groups, 1)))

    @property
    def answered(self) -> list[int]:
        """The correlation ids of the answers, in order."""
        return [int.from_bytes(frame[:4], "big") for frame in self.link.frames]


async def test_requests_that_need_not_wait_are_answered_before_the_loop_goes_on() -> None:
    world = _Waiting()
    world.receive("a", "b", "c")
    assert world.answered == [1, 2, 3]
    assert len(world.server._tasks) == 0
    assert world.turns.steps == 3, "a turn that handles a few ends, and others have theirs"


async def test_a_slow_request_in_a_pipeline_holds_back_the_answers_behind_it_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = _Waiting()
    world.receive("a", "slow", "b", "bug", "slow", "c")
    assert world.ended == ["a", "b", "c"], "the others need not wait for it"
    assert world.answered == [1]
    assert len(world.server._tasks) == 2, "one for each that waits"
    world.go_on.set_result(None)
    while len(world.answered) < 6:
        await asyncio.sleep(0)
    assert world.answered == [1, 2, 3, 4, 5, 6]
    await world.server.close()
    assert "HEARTBEAT failed" in caplog.text


@pytest.mark.parametrize("waits_a_turn", [False, True])
def test_a_request_of_a_client_that_has_gone_is_given_up_or_its_answer_dropped(waits_a_turn: bool) -> None:
    """Also in the turn in which it came, when its task has not begun yet."""

    async def scenario(ends_with_client: bool) -> None:
        world = _Waiting(ends_with_client=ends_with_client)
        world.receive("slow", "a")
        if waits_a_turn:
            await asyncio.sleep(0)
        world.link.connection.connection_lost()
        if not ends_with_client:
            world.go_on.set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)
        assert world.ended[:2] == ["a", "slow"]
        assert world.go_on.cancelled() is ends_with_client
        assert not world.link.sent
        await world.server.close()

    asyncio.run(scenario(True))
    asyncio.run(scenario(False))


async def test_a_handler_that_closes_its_connection_is_the_last_and_is_not_answered() -> None:
    world = _Waiting()
    world.receive("a", "closes", "b")
    assert world.ended == ["a", "closes"]
    assert world.answered == [1]
    assert world.link.closed


class _Hot:
    """An API that is answered by hand; it notes its requests where :class:`_Waiting` does."""

    def __init__(self, ended: list[str]) -> None:
        self._ended = ended

    def handle(
        self, connection: Connection, context: object, header: object, body: memoryview, slot: ResponseSlot
    ) -> None:
        self._ended.append("hot")
        slot.complete([b""])


async def test_requests_of_a_connection_take_effect_in_order_whether_or_not_their_handlers_wait() -> None:
    """A client may commit, leave its group, and commit again, without waiting for the answers between."""

    world = _Waiting()
    hot: HotApi[BrokerServices, DeleteTopicsRequest, DeleteTopicsResponse] = HotApi(
        DeleteTopicsRequest, DeleteTopicsResponse, lambda services, turns: _Hot(world.ended)
    )
    beat = HandledApi(HeartbeatRequest, HeartbeatResponse, world._beat)
    server = RequestServer(cast(BrokerServices, None), (beat, hot), world.turns, unexpected)
    topics = encode_request(DeleteTopicsRequest(), 5, 1, "client")
    ConnectedLink(server).send(topics, _beat("a", 2), topics, _beat("b", 4))
    assert world.ended == ["hot", "a", "hot", "b"]
    await server.close()


async def test_work_of_a_handler_before_its_first_wait_counts_in_the_turn_of_its_request() -> None:
    """A turn ends by its time: what begins only in the next one would not be counted in any."""

    now_us, seen = 0, []

    async def beat(*_: object) -> HeartbeatResponse:
        nonlocal now_us
        now_us += TURN_US // 2 + 1
        seen.append(now_us)
        return HeartbeatResponse()

    later: list[Callable[[], None]] = []
    turns = TurnBudget(later.append, lambda: now_us)
    row = HandledApi(HeartbeatRequest, HeartbeatResponse, beat)
    server = RequestServer(cast(BrokerServices, None), (row,), turns, unexpected)
    link = ConnectedLink(server)
    link.has_turn = turns.has_room  # type: ignore[method-assign]
    link.send(*(_beat("a", number) for number in range(TURN_STEPS)))
    assert len(seen) == 2
    await server.close()


async def test_a_client_that_sends_ten_thousand_at_once_is_answered_in_order_some_in_each_turn() -> None:
    world = _Waiting()
    frames = [_beat("a", number) for number in range(10_000)]
    data = memoryview(bytearray(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)))
    position = 0
    while position < len(data):
        before = len(world.ended)
        position += world.link.connection.receive(data[position:])
        assert 0 < len(world.ended) - before <= FRAMES_PER_CALLBACK
        assert not world.link.connection.stalled
    assert world.answered == list(range(10_000))
