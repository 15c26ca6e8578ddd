"""The fuzz over all requests: a share of what ``make fuzz`` plays, and that it finds what it is made for.

Turns are in processor time, and may be five times as long as in the fuzz itself: what is not in slices takes
longer by far, and a slow machine is no finding.
"""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from time import thread_time_ns
from typing import Any

import pytest

from pykraft.broker.apis import table
from pykraft.broker.apis.cluster import describe_cluster
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.apis.table import make_apis, make_controller_apis
from pykraft.broker.serving.api import Api, HandledApi
from pykraft.jepsen_like.simulation.fuzz.chapter import (
    a_node,
    discard,
    fill,
    play_chapter,
    without_old_garbage,
)
from pykraft.jepsen_like.simulation.fuzz.drawing import SHAPES, Drawing, Drawn, array_paths
from pykraft.jepsen_like.simulation.fuzz.fuzzed_node import BROKER, CONTROLLER, FuzzedNode
from pykraft.jepsen_like.simulation.fuzz.judge import TURN_LIMIT_MS, Judge, NodeEndedError
from pykraft.jepsen_like.simulation.fuzz.tally import NodeLog, Tally
from pykraft.jepsen_like.simulation.fuzz.values import Known, Values
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.headers import encode_request
from pykraft.kafka_protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from pykraft.kafka_protocol.messages.topics import DeleteTopicsRequest
from pykraft.kafka_protocol.primitives import MAX_STRING_BYTES

GENEROUS_MS = 5 * TURN_LIMIT_MS
MANY = 50_000
"""Elements: enough for what takes two microseconds with each to be too long."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["one", "two"])
def test_drawn_requests_neither_hold_nor_fill_nor_end_a_node(seed: str) -> None:
    tally = play_chapter(seed, requests=1_000, topics=20, turn_limit_ms=GENEROUS_MS)
    assert tally.findings == []
    assert tally.requests == 1_000 and tally.answered > 500 and tally.closed > 10 and tally.measured > 3


@pytest.mark.slow
@pytest.mark.parametrize("port", [BROKER, CONTROLLER])
def test_very_long_arrays_are_handled_in_slices(port: int) -> None:
    """Each array of each API, in its newest version: :data:`MANY` elements, or as many as it may have."""
    tally = Tally()
    apis: Sequence[Api[Any, Any, Any]] = make_apis() if port == BROKER else make_controller_apis()

    async def play(node: FuzzedNode, log: NodeLog) -> None:
        await node.start()
        rng = Random("arrays")
        judge = Judge(node, port, tally, log, rng, 0.0, GENEROUS_MS)
        drawing = Drawing(rng, apis, Values(rng, await fill(node, 20)))
        with without_old_garbage():
            for drawn in long_arrays(drawing, apis):
                await judge.play(drawn)

    with a_node(1) as (node, log):
        node.run(play(node, log))
    assert tally.findings == []
    assert tally.requests > len(apis)


def long_arrays(drawing: Drawing, apis: Sequence[Api[Any, Any, Any]]) -> Iterator[Drawn]:
    for api in apis:
        for path in array_paths(api.request, api.max_version):
            size = min(MANY, api.max_items - len(path) + 1)
            yield drawing.sized(api, api.max_version, path, "sized", 1, same=False, size=size)


@pytest.mark.parametrize("port", [BROKER, CONTROLLER])
def test_large_request_of_few_items_waits_for_the_controller(port: int) -> None:
    """It is over at once but for its commit, whose wait has a limit."""
    tally = Tally()
    apis = make_apis() if port == BROKER else make_controller_apis()
    (api,) = (one for one in apis if one.key == ApiKey.DELETE_TOPICS)
    request = DeleteTopicsRequest(topic_names=["topic-0", "x" * MAX_STRING_BYTES], timeout_ms=1_000)
    drawn = Drawn(api, 2, encode_request(request, 2, 1, None), "long")

    async def play(node: FuzzedNode, log: NodeLog) -> None:
        await node.start()
        await fill(node, 1)
        await Judge(node, port, tally, log, Random(1), 0.0, GENEROUS_MS).play(drawn)

    with a_node(1) as (node, log):
        node.run(play(node, log))
    assert tally.findings == [] and tally.answered == 1


def test_requests_depend_on_the_seed_alone() -> None:
    def drawn(seed: str) -> list[bytes]:
        rng = Random(seed)
        drawing = Drawing(rng, make_apis(), Values(rng, Known(["topic-0"])))
        return [drawing.draw(number).frame for number in range(200)]

    assert drawn("a") == drawn("a") != drawn("b")


def test_every_api_and_shape_is_drawn_and_nearly_every_version() -> None:
    rng, apis = Random(3), make_apis()
    drawing = Drawing(rng, apis, Values(rng, Known(["topic-0"])))
    seen = [drawing.draw(number) for number in range(1_500)]
    assert {one.api.key for one in seen} == {api.key for api in apis}
    assert {one.what.partition(":")[0] for one in seen} == set(SHAPES)
    versions = {(api.key, v) for api in apis for v in range(api.min_version, api.max_version + 1)}
    assert len({(one.api.key, one.version) for one in seen}) > 0.9 * len(versions)


async def _hold(_: BrokerServices) -> None:
    deadline_ns = thread_time_ns() + int(2.5 * GENEROUS_MS * 1_000_000)
    while thread_time_ns() < deadline_ns:
        pass


_LATE: list[None] = []


async def _hold_once(_: BrokerServices) -> None:
    if not _LATE:
        _LATE.append(None)
        await _hold(_)


async def _take_memory(_: BrokerServices) -> None:
    bytearray(40 << 20)


async def _fail(_: BrokerServices) -> None:
    raise RuntimeError("a bug")


async def _sleep(_: BrokerServices) -> None:
    await asyncio.sleep(1_000)


async def _log(_: BrokerServices) -> None:
    logging.getLogger("pykraft.broker").error("something is wrong")


async def _end(services: BrokerServices) -> None:
    services.tasks.start(_fail(services), "background")


@pytest.mark.parametrize(
    ("bug", "finding"),
    [
        (_hold, "holds the loop for"),
        (_hold_once, "holds the loop once for"),
        (_take_memory, "the memory that is allowed"),
        (_fail, "UNKNOWN_SERVER_ERROR"),
        (_sleep, "is not answered"),
        (_log, "is logged: something is wrong"),
        (_end, "ends the node"),
    ],
)
def test_bug_in_a_handler_is_a_finding(
    bug: Callable[[BrokerServices], Awaitable[None]], finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _LATE.clear()

    async def handle_badly(services: BrokerServices, *arguments: Any) -> DescribeClusterResponse:
        await bug(services)
        return await describe_cluster.handle(services, *arguments)

    (api,) = (one for one in make_apis() if one.key == ApiKey.DESCRIBE_CLUSTER)
    assert isinstance(api, HandledApi)
    bad = replace(api, handle=handle_badly)
    monkeypatch.setattr(table, "_BROKERS", tuple(bad if one is api else one for one in make_apis()[:-1]))
    drawn = Drawn(api, 0, encode_request(DescribeClusterRequest(), 0, 1, None), "small")
    tally = Tally()

    async def play(node: FuzzedNode, log: NodeLog) -> None:
        await node.start()
        judge = Judge(node, BROKER, tally, log, Random(1), 0.0, GENEROUS_MS)
        await (judge.play_for_memory if bug is _take_memory else judge.play)(drawn)

    with a_node(1) as (node, log), contextlib.suppress(NodeEndedError):
        node.run(play(node, log))
    assert finding in " and ".join(tally.findings)


def test_full_collections_of_garbage_are_in_no_turn() -> None:
    """They are measured by themselves; collections of young objects are work like any other."""
    node = FuzzedNode(1)
    loop, process = node.loop, node.process
    kept = [[number] for number in range(200_000)]

    async def work() -> None:
        for generation in (2, 0):
            loop.longest_ns = 0
            await loop.create_task(collect(generation), context=process.context)
            times.append(loop.longest_ns)

    async def collect(generation: int) -> None:
        began_ns = thread_time_ns()
        for _ in range(3):
            gc.collect(generation)
        spent.append(thread_time_ns() - began_ns)

    times: list[int] = []
    spent: list[int] = []
    try:
        node.run(work())
    finally:
        discard(node)
    assert kept and times[0] < spent[0] / 2 and times[1] >= spent[1]
    assert 0 < loop.longest_collection_ns <= spent[0]
    assert loop._collecting not in gc.callbacks
