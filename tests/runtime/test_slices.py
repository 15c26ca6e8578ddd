"""Work in slices: how much of a turn it gets, what it returns, and what happens when nobody waits for it."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager

import pytest

from pykraft.runtime.slices import Slices
from pykraft.runtime.turns import SHARE_US, TURN_US, TurnBudget
from tests.asynchronous import in_loop

STEP_US = 100


class World:
    """A budget whose clock only work advances. ``done``: the name and the turn of each step."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.now_us = self.turn = 0
        self.budget = TurnBudget(self._loop.call_soon, lambda: self.now_us)
        self.slices = Slices(self.budget, "lane")
        self.done: list[tuple[str, int]] = []
        self._count()

    def _count(self) -> None:
        self.turn += 1
        self._handle = self._loop.call_soon(self._count)

    def stop(self) -> None:
        self._handle.cancel()

    def step(self, name: str) -> None:
        self.now_us += STEP_US
        self.done.append((name, self.turn))

    def work(self, name: str, steps: int) -> Generator[None, None, str]:
        for _ in range(steps):
            self.step(name)
            yield
        return f"{name} is done"


@asynccontextmanager
async def begun() -> AsyncIterator[World]:
    world = World()
    try:
        async with asyncio.timeout(30):
            yield world
    finally:
        world.stop()


world = in_loop(begun)


async def test_work_ends_in_the_turn_in_which_it_began_if_that_has_room(world: World) -> None:
    assert await world.slices.result(world.work("a", 5)) == "a is done"
    assert len({turn for _, turn in world.done}) == 1


async def test_long_work_takes_turns_and_two_of_them_share_each(world: World) -> None:
    most = TURN_US // STEP_US
    results = await asyncio.gather(*(world.slices.result(world.work(name, 5 * most)) for name in ("a", "b")))
    assert results == ["a is done", "b is done"]
    turns = [turn for _, turn in world.done]
    assert max(turns.count(turn) for turn in turns) <= most + 1
    shared = [turn for turn in set(turns) if {("a", turn), ("b", turn)} <= set(world.done)]
    assert len(shared) > 3
    order = "".join(name for name, turn in world.done if turn == shared[1])
    assert "a" * (SHARE_US // STEP_US + 2) not in order, "more than its share at once"


async def test_error_of_a_work_is_raised_and_what_it_held_is_freed(world: World) -> None:
    class Held:
        """What the work holds."""

    seen: list[weakref.ref[Held]] = []

    def failing() -> Generator[None, None, None]:
        held = Held()
        seen.append(weakref.ref(held))
        for _ in range(3 * TURN_US // STEP_US):
            world.step("a")
            yield
        raise ValueError(str(held))

    gc.disable()
    try:
        with pytest.raises(ValueError, match="Held"):
            await world.slices.finish(failing())
        await asyncio.sleep(0)
        assert seen[0]() is None, "until a garbage collection"
    finally:
        gc.enable()


async def test_work_whose_waiter_was_cancelled_stops_before_its_next_slice(world: World) -> None:
    waiting = asyncio.ensure_future(world.slices.finish(world.work("a", 100 * TURN_US // STEP_US)))
    while len(world.done) < 2 * TURN_US // STEP_US:
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    steps = len(world.done)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(world.done) == steps
    assert not world.budget.waiting


async def test_loop_that_pauses_goes_on_in_the_next_turn_when_this_one_is_used_up(world: World) -> None:
    most = TURN_US // STEP_US
    for _ in range(4 * most):
        world.step("a")
        await world.slices.pause()
    turns = [turn for _, turn in world.done]
    assert 4 <= len(set(turns)) <= 6
    assert max(turns.count(turn) for turn in turns) <= most + 1
