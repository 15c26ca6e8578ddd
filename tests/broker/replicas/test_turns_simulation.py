"""Waiting requests of one broker in virtual time: fetches that wait for data, long batches, groups' answers.

All of them share the budget of a turn (:mod:`pykraft.runtime.turns`). Whatever arrives together, in calm
times and while other requests fill every turn: no turn of the loop does much more than its budget, and nobody
waits for ever or much too long. A fetch is evaluated after the request that brought its data, and never
within it; it expires at its deadline, neither early nor late, unless it was answered before. A batch is
walked to its end unless its request was cancelled, and its memory is free at once. Every answer is given.
"""

import asyncio
import contextlib
import gc
import weakref
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykraft.broker.replicas.leading.validation_turns import ValidationTurns
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.partition.purgatory import BUCKET_MS
from pykraft.broker.replicas.wakeups import Wakeups
from pykraft.coordinator.answers import Answers
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.simulated.virtual_loop import VirtualClock, VirtualLoop
from pykraft.runtime.turns import TURN_STEPS, TURN_US, TurnBudget
from tests.stand_ins import stand_in

PIECE_US = 500
LONGEST_TURN_US = 3 * TURN_US
"""A turn, half of one more after a slow response, and the tasks that the turn before has started."""
LATEST_MS = 600
"""Dozens of fetches that are due at once share the turns with six lanes of other requests."""


class Loop(VirtualLoop):
    """Work takes virtual time."""

    worked_us = 0

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[object] = []
        self.set_exception_handler(self._note)

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "handle" in context:  # a callback has failed
            self.errors.append(context["exception"])

    def _run_once(self) -> None:
        self.worked_us = 0
        super()._run_once()
        assert self.worked_us <= LONGEST_TURN_US, "one turn held the loop for long"

    def work(self, duration_us: int) -> None:
        self.worked_us += duration_us
        self.now_s += duration_us / 1e6


class Fetch:
    """Answered when it is evaluated and ``needed`` appends have been made since it came, or when it
    expires.
    """

    bucket = 0

    def __init__(self, world: "World", needed: int, deadline_ms: int) -> None:
        self.world = world
        self.needed = needed
        self.deadline_ms = deadline_ms
        self.woken_ms: float | None = None
        self.outcome = ""

    def evaluate(self) -> None:
        world = self.world
        assert not world.in_request, "evaluated within the change that woke it"
        assert self.woken_ms is not None
        self.woken_ms = None
        world.loop.work(PIECE_US)
        if not self.outcome and self.needed <= 0:
            self.outcome = "answered"
            world.wakeups.deadlines.remove(self)

    def expire(self) -> None:
        assert not self.outcome, f"{self.outcome} before, and expired"
        assert self.world.now_ms >= self.deadline_ms, "expired before its deadline"
        self.outcome = "expired"
        self.world.loop.work(PIECE_US)


class Batch:
    """A batch of a client: decompressed with the first step, then walked; it may be found to be invalid."""

    is_large = False

    def __init__(self, world: "World", pieces: int, *, fails: bool) -> None:
        self.world = world
        self.left_us = pieces * PIECE_US
        self.fails = fails
        self.is_begun = self.is_cancelled = False

    @property
    def is_done(self) -> bool:
        return self.left_us <= 0

    def advance(self, work: int) -> int:
        assert not self.is_cancelled, "its request was cancelled"
        if not self.is_begun:
            self.is_begun = True
            self.world.loop.work(PIECE_US)
        done_us = min(self.left_us, work * PIECE_US // 1024)
        self.left_us -= done_us
        self.world.loop.work(done_us)
        if self.fails and self.is_done:
            raise KafkaError(ErrorCode.INVALID_RECORD, "bad")
        return work


class World:
    def __init__(self, seed: int, loop: Loop) -> None:
        self.rng = Random(seed)
        self.loop = loop
        self.budget = TurnBudget(loop.call_soon, lambda: int(loop.now_s * 1e6))
        self.told: list[int] = []
        coordinator = SimpleNamespace(on_high_watermark=lambda index, offset: self.told.append(index))
        self.wakeups = Wakeups(loop, self.budget, VirtualClock(loop), {"offsets": cast(Any, coordinator)})
        self.validation = ValidationTurns(self.budget)
        self.answers = Answers(self.budget)
        self.in_request = False
        self.fetches: list[Fetch] = []
        self.waiting: list[Fetch] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.futures: list[asyncio.Future[object]] = []
        self.given = 0
        self.moved: list[int] = []
        self.storm_until_s = 0.0

    @property
    def now_ms(self) -> int:
        return int(self.loop.now_s * 1000)

    # -- what clients do -------------------------------------------------------------------------------

    def fetch(self) -> None:
        deadline_ms = self.now_ms + self.rng.choice((0, 7, 100, 500, 1_500))
        fetch = Fetch(self, self.rng.choice((1, 1, 2, 5)), deadline_ms)
        self.fetches.append(fetch)
        self.waiting.append(fetch)
        self.wakeups.wait_until(fetch, deadline_ms)

    def append(self) -> None:
        """A request that appends; sometimes an event beside all requests."""
        is_request = self.rng.random() < 0.7
        if is_request:
            self.in_request = True
            self.wakeups.begin_request()
        self.waiting = [fetch for fetch in self.waiting if not fetch.outcome]
        for fetch in self.waiting:
            if self.rng.random() < 0.7:
                fetch.needed -= 1
                if fetch.woken_ms is None:
                    fetch.woken_ms = self.loop.now_s * 1000
                self.wakeups.wake(fetch)
        if self.rng.random() < 0.3:
            index = len(self.moved)
            self.moved.append(index)
            moved = stand_in(Partition, topic="offsets", index=index, high_watermark=0)
            self.wakeups.high_watermark_moved(moved)
        self.loop.work(50)
        if is_request:
            self.in_request = False
            self.wakeups.end_request()

    def produce(self) -> None:
        """One request with one long batch, or with many short ones."""
        lengths = self.rng.choice(([60.0], [1.0], [2.0] * 3, [0.2] * 40))
        fails = self.rng.random() < 0.2
        task = self.loop.create_task(self._produce(lengths, fails=fails))
        self.tasks.append(task)
        if self.rng.random() < 0.2:
            self.loop.call_later(self.rng.random() * 0.02, task.cancel)

    async def _produce(self, lengths: list[float], *, fails: bool) -> None:
        for number, pieces in enumerate(lengths):
            batch = Batch(self, 1, fails=fails and number == len(lengths) - 1)
            batch.left_us = int(pieces * PIECE_US)
            seen = weakref.ref(batch)
            try:
                if not self.validation.walk_now(batch):
                    await self.validation.walk(batch)
                assert batch.is_done, "walked to the end"
            except asyncio.CancelledError:
                batch.is_cancelled = True
                raise
            except KafkaError:
                assert batch.fails
            is_cleared = batch.fails
            del batch
            if is_cleared:
                self.loop.call_soon(self._check_freed, seen)

    def _check_freed(self, seen: weakref.ref[Batch]) -> None:
        assert seen() is None, "a refused batch stays in memory"

    def answer(self) -> None:
        """Requests that wait for the replicas, all of which are answered at once; some are gone by then."""
        futures: list[asyncio.Future[object]] = [
            self.loop.create_future() for _ in range(self.rng.choice((1, 3, 60)))
        ]
        self.futures += futures
        self.tasks += [self.loop.create_task(self._await(future)) for future in futures]
        if self.rng.random() < 0.1:
            futures[0].cancel()
        self.loop.call_later(0.001, self._give, futures)

    def _give(self, futures: list[asyncio.Future[object]]) -> None:
        for future in futures:
            if self.rng.random() < 0.1:
                self.answers.fail(future, ErrorCode.NOT_COORDINATOR)
            else:
                self.answers.give(future, b"")

    async def _await(self, future: asyncio.Future[object]) -> None:
        with contextlib.suppress(KafkaError, asyncio.CancelledError):
            await future
        self.loop.work(PIECE_US)

    def storm(self) -> None:
        """Other requests of six kinds fill every turn for a while."""
        self.storm_until_s = self.loop.now_s + 1.5
        for lane in range(6):
            self.budget.defer(lambda lane=lane: self._blow(lane), lane=lane)  # type: ignore[misc]

    def _blow(self, lane: int) -> None:
        self.loop.work(PIECE_US)
        if self.loop.now_s < self.storm_until_s:
            self.budget.defer(lambda: self._blow(lane), lane=lane)

    # -- the run ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        actions = (self.fetch, self.fetch, self.append, self.produce, self.answer)
        for _ in range(80):
            if self.rng.random() < 0.05:
                self.storm()
            action = self.rng.choice(actions)
            for _ in range(self.rng.choice((1, 1, 3, 20))):
                action()
                if self.loop.worked_us > TURN_US // 2:
                    await asyncio.sleep(0)  # the event loop reads the next request in a turn of its own
            await asyncio.sleep(self.rng.choice((0, 0, 0.002, 0.02, 0.3)))
            self.check()
        for _ in range(40):
            await asyncio.sleep(0.1)
            self.check()
        assert all(fetch.outcome for fetch in self.fetches), "a fetch waits for ever"
        assert len(self.wakeups.deadlines) == 0
        assert all(future.done() for future in self.futures), "a request waits for ever"
        assert sorted(self.told) == self.moved, "a coordinator was not told"
        done = await asyncio.gather(*self.tasks, return_exceptions=True)
        for outcome in done:
            assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome

    def check(self) -> None:
        assert not self.loop.errors
        now_ms = self.loop.now_s * 1000
        for fetch in self.fetches:
            if fetch.woken_ms is not None:
                assert now_ms - fetch.woken_ms <= LATEST_MS, "a fetch with new data waits"
            if not fetch.outcome:
                assert now_ms <= fetch.deadline_ms + BUCKET_MS + LATEST_MS, "a fetch expires too late"
        self.fetches = [one for one in self.fetches if not one.outcome or one.woken_ms is not None]


@pytest.mark.parametrize("seed", range(25))
def test_waiting_requests_are_answered_in_time_and_no_turn_takes_long(seed: int) -> None:
    assert TURN_STEPS * PIECE_US <= TURN_US
    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=Loop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, Loop)
            runner.run(World(seed, loop).run())
    finally:
        gc.enable()
