"""What a broker does for its clients in one turn of the event loop, on a clock that only work advances."""

import asyncio
import struct
from collections import Counter
from collections.abc import Callable
from typing import cast

import pytest
import uvloop

from pykraft.broker.replicas.partition.purgatory import Waiting
from pykraft.broker.replicas.wakeups import Wakeups
from pykraft.broker.serving.listener import KafkaListener
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.network.tcp import StreamRuntime
from pykraft.runtime.turns import BULK, TurnBudget, UnlimitedTurn
from tests.broker.slices import Turns
from tests.clocks import ManualClock

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
WORK_US = 1_000
COMMIT, METADATA = 8, 3


class Handler:
    """Every request takes a millisecond, and is answered with its own bytes."""

    def __init__(self, turn: Turns) -> None:
        self._turn = turn
        self.handled: list[tuple[int, int]] = []

    def handle_frame(self, connection: Connection, frame: memoryview, slot: ResponseSlot) -> None:
        self._turn.now_us += WORK_US
        self.handled.append((self._turn.number, int.from_bytes(frame[:2], "big")))
        slot.complete([bytes(frame)])


def frame(api_key: int) -> bytes:
    return struct.pack(">ih", 6, api_key) + b"body"


@LOOPS
async def test_requests_of_many_connections_are_spread_over_turns_and_none_waits_for_another_kind(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    turn = Turns(0)
    runtime = StreamRuntime(asyncio.get_running_loop())
    runtime.budget = turn.budget
    handler = Handler(turn)
    listener = KafkaListener(runtime, "127.0.0.1", 0, "PLAINTEXT")
    await listener.start(handler)
    clients = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(100)]
    side = await asyncio.open_connection("127.0.0.1", listener.port)
    for _, writer in clients:
        writer.write(frame(COMMIT) * 3)
    side[1].write(frame(METADATA))
    async with asyncio.timeout(30):
        assert await side[0].readexactly(10) == frame(METADATA)
        before = [kind for _, kind in handler.handled].index(METADATA)
        for reader, _ in clients:
            assert await reader.readexactly(30) == frame(COMMIT) * 3
    per_turn = Counter(number for number, _ in handler.handled)
    assert max(per_turn.values()) <= runtime.budget.turn_us // WORK_US + 1
    assert before < 100, "not behind all commits"
    assert len(handler.handled) == 301
    turn.stop()
    for _, writer in [*clients, side]:
        writer.close()
    await listener.stop()


class ClosingHandler(Handler):
    """Answers in one chunk. ``last`` ends another connection, whose answer may wait to be sent."""

    def __init__(self, turn: Turns, last: int) -> None:
        super().__init__(turn)
        self._last = last
        self.connections: list[Connection] = []

    def handle_frame(self, connection: Connection, frame: memoryview, slot: ResponseSlot) -> None:
        self._turn.now_us += WORK_US
        self.connections.append(connection)
        if len(self.connections) == self._last:
            self.connections[-2].close("another says so")
        slot.complete_framed((struct.pack(">i", len(frame)) + bytes(frame),))


@LOOPS
async def test_answers_of_a_crowded_turn_are_all_sent_but_for_those_of_closed_connections(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    turn = Turns(0)
    runtime = StreamRuntime(asyncio.get_running_loop())
    runtime.budget = turn.budget
    count = 40
    handler = ClosingHandler(turn, count)
    listener = KafkaListener(runtime, "127.0.0.1", 0, "PLAINTEXT")
    await listener.start(handler)
    clients = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(count)]
    for _, writer in clients:
        writer.write(frame(COMMIT))
    answered = 0
    async with asyncio.timeout(30):
        for number, (reader, writer) in enumerate(clients):
            try:
                assert await reader.readexactly(10) == frame(COMMIT)
            except (asyncio.IncompleteReadError, ConnectionResetError):
                continue
            answered += 1
            writer.write(frame(METADATA + number) * 2)
            assert await reader.readexactly(20) == frame(METADATA + number) * 2
    assert answered in (count - 1, count), "the answer of the one that was closed may have been sent before"
    turn.stop()
    for _, writer in clients:
        writer.close()
    await listener.stop()


class Loop:
    """The parts of an event loop that wake-ups and a budget need."""

    def __init__(self) -> None:
        self.scheduled: list[Callable[[], None]] = []
        self.now_us = 0

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.scheduled.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> object:
        self.scheduled.append(callback)

        class Handle:
            def cancel(self) -> None: ...

        return Handle()

    def turns(self, done: list[object]) -> list[int]:
        """The work done in each turn."""
        counts = []
        while self.scheduled:
            due, self.scheduled = self.scheduled, []
            before = len(done)
            for callback in due:
                callback()
            counts.append(len(done) - before)
        return counts


class ParkedFetch:
    def __init__(self, loop: Loop, done: list[object]) -> None:
        self._loop, self._done = loop, done
        self.bucket = -1

    def evaluate(self) -> None:
        self._loop.now_us += WORK_US
        self._done.append(self)

    def expire(self) -> None:
        self.evaluate()


def make_wakeups() -> tuple[Loop, TurnBudget, Wakeups]:
    loop = Loop()
    budget = TurnBudget(loop.call_soon, lambda: loop.now_us)
    wakeups = Wakeups(cast(asyncio.AbstractEventLoop, loop), budget, ManualClock(), {})
    return loop, budget, wakeups


def test_fetches_woken_by_one_batch_are_answered_over_several_turns() -> None:
    loop, budget, wakeups = make_wakeups()
    done: list[object] = []
    fetches = [ParkedFetch(loop, done) for _ in range(1_000)]
    wakeups.begin_request()
    for fetch in fetches:
        wakeups.wake(fetch)
    wakeups.end_request()
    at_once = len(done)
    counts = loop.turns(done)
    assert done == fetches
    assert max(at_once, *counts) <= budget.turn_us // WORK_US


async def test_request_with_the_earliest_deadline_moves_the_timer() -> None:
    wakeups = Wakeups(asyncio.get_running_loop(), UnlimitedTurn(), SystemClock(), {})
    ended = asyncio.Event()

    class Patient:
        bucket = -1

        def expire(self) -> None:
            ended.set()

    now_ms = SystemClock().monotonic_ms()
    wakeups.wait_until(Patient(), now_ms + 600_000)
    wakeups.wait_until(Patient(), now_ms + 20)
    async with asyncio.timeout(10):
        await ended.wait()
    wakeups.close()


def test_requests_that_end_in_a_full_turn_queue_for_one_evaluation() -> None:
    loop, budget, wakeups = make_wakeups()
    done: list[object] = []
    fetch = ParkedFetch(loop, done)
    budget.spend(steps=budget.turn_steps)
    for _ in range(100):
        wakeups.begin_request()
        wakeups.wake(fetch)
        wakeups.end_request()
    assert budget.waiting == 1
    loop.turns(done)
    assert done == [fetch]


def test_fetches_that_expire_together_are_answered_over_several_turns() -> None:
    loop, budget, wakeups = make_wakeups()
    done: list[object] = []
    for _ in range(1_000):
        wakeups.wait_until(cast(Waiting, ParkedFetch(loop, done)), 500)
    counts = loop.turns(done)
    assert len(done) == 1_000
    assert max(counts) <= budget.turn_us // WORK_US


def test_fetches_expire_even_if_every_turn_is_full_of_requests() -> None:
    loop, budget, wakeups = make_wakeups()
    done: list[object] = []
    requests: list[object] = []

    def request() -> None:
        loop.now_us += WORK_US
        requests.append(None)
        if len(requests) < 1_000:
            budget.defer(request, lane="requests")

    for _ in range(50):
        budget.defer(request, lane="requests")
        budget.defer(lambda: None, lane=BULK)
    for _ in range(10):
        wakeups.wait_until(cast(Waiting, ParkedFetch(loop, done)), 500)
    turns = 0
    while len(done) < 10:
        turns += 1
        due, loop.scheduled = loop.scheduled, []
        for callback in due:
            callback()
    assert turns < 30
