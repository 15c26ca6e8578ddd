"""One chapter of a run: a new node with topics of its own, and some thousands of requests to it."""

import contextlib
import gc
import sys
from collections.abc import Iterator
from random import Random
from typing import Final

from pykraft.broker.apis.table import make_apis, make_controller_apis
from pykraft.jepsen_like.simulation.fuzz.connection import FuzzConnection
from pykraft.jepsen_like.simulation.fuzz.drawing import Drawing
from pykraft.jepsen_like.simulation.fuzz.fuzzed_node import BROKER, CONTROLLER, FuzzedNode
from pykraft.jepsen_like.simulation.fuzz.judge import TURN_LIMIT_MS, Judge, NodeEndedError
from pykraft.jepsen_like.simulation.fuzz.tally import NodeLog, Tally
from pykraft.jepsen_like.simulation.fuzz.values import Known, Values
from pykraft.kafka_protocol.headers import decode_response_header, encode_request
from pykraft.kafka_protocol.messages.cluster import MetadataRequest, MetadataResponse
from pykraft.kafka_protocol.messages.topics import CreatableTopic, CreateTopicsRequest

MEASURED: Final = 0.01
"""The share of requests whose memory is measured."""
_ON_CONTROLLER: Final = 0.15
_TOPICS_AT_ONCE: Final = 250
_MOST_IDS: Final = 500
_PATIENCE_S: Final = 300.0


def play_chapter(
    seed: str,
    requests: int,
    topics: int,
    measured: float = MEASURED,
    turn_limit_ms: float = TURN_LIMIT_MS,
) -> Tally:
    """Play so many requests to a node that has so many topics, each of one partition."""
    tally, rng = Tally(), Random(seed)

    async def play(node: FuzzedNode, log: NodeLog) -> None:
        await node.start()
        values = Values(rng, await fill(node, topics))
        listeners = [
            (Judge(node, port, tally, log, rng, measured, turn_limit_ms), Drawing(rng, apis, values))
            for port, apis in ((BROKER, make_apis()), (CONTROLLER, make_controller_apis()))
        ]
        with without_old_garbage():
            for number in range(requests):
                judge, drawing = listeners[rng.random() < _ON_CONTROLLER]
                await judge.play(drawing.draw(number))

    with a_node(rng.getrandbits(32)) as (node, log), contextlib.suppress(NodeEndedError):
        node.run(play(node, log))
    tally.findings = [f"{seed}: {one}" for one in tally.findings]
    return tally


@contextlib.contextmanager
def a_node(seed: int) -> Iterator[tuple[FuzzedNode, NodeLog]]:
    """A node that is not started yet, and what it logs."""
    node, log = FuzzedNode(seed), NodeLog()
    try:
        with log.listening():
            yield node, log
    finally:
        discard(node)


@contextlib.contextmanager
def without_old_garbage() -> Iterator[None]:
    """Hide existing objects from the collector: the instrument itself would hold the loop."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def fill(node: FuzzedNode, topics: int) -> Known:
    """Create topics; what is known of them."""
    connection = await node.connect(BROKER)
    names = [f"topic-{number}" for number in range(topics)]
    for start in range(0, topics, _TOPICS_AT_ONCE):
        some = names[start : start + _TOPICS_AT_ONCE]
        created = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in some]
        request = CreateTopicsRequest(topics=created, timeout_ms=30_000)
        await _ask(connection, encode_request(request, 7, 1, None))
    known = Known(names)
    if topics <= _MOST_IDS:
        answer = await _ask(connection, encode_request(MetadataRequest(topics=None), 12, 1, None))
        _, at = decode_response_header(MetadataResponse.API_KEY, 12, answer)
        known.topic_ids = [topic.topic_id for topic in MetadataResponse.decode(answer[at:], 12).topics]
    connection.close()
    return known


async def _ask(connection: FuzzConnection, frame: bytes) -> bytes:
    connection.answers.clear()
    connection.send(frame)
    assert await connection.until(1, _PATIENCE_S) and not connection.is_closed
    return connection.answers[0][0]


def discard(node: FuzzedNode) -> None:
    """Drop the tasks of a node that has been ended, without warnings."""
    node.loop.set_exception_handler(lambda _, context: None)
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        for task in node.process.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(BaseException):
                task.get_coro().close()
        node.close()
        gc.collect()
    finally:
        sys.unraisablehook = hook
