"""Two pieces of work in turn: the second does not wait for ever, and neither outlives a failure."""

import asyncio
import gc
import sys
import weakref
from collections.abc import Callable, Coroutine

import pytest

from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from pykraft.runtime.tasks import run_in_turn

LIMIT_MS = 500


def happens(first_ms: int, then_ms: int, failing: str = "", cancelled_ms: int | None = None) -> list[str]:
    """What begins and ends, and when; ``failing`` fails where it would end."""
    seen: list[str] = []

    async def work(name: str, duration_ms: int) -> None:
        loop = asyncio.get_running_loop()
        seen.append(f"{name} begins at {round(loop.time() * 1000)}")
        try:
            await asyncio.sleep(duration_ms / 1000)
        except asyncio.CancelledError:
            seen.append(f"{name} is cancelled")
            raise
        if name == failing:
            raise ZeroDivisionError
        seen.append(f"{name} ends at {round(loop.time() * 1000)}")

    async def main() -> None:
        turns = run_in_turn(work("first", first_ms), lambda: work("then", then_ms), LIMIT_MS)
        async with asyncio.timeout(None if cancelled_ms is None else cancelled_ms / 1000):
            await turns

    expected: list[type[Exception]] = [ZeroDivisionError] * bool(failing)
    expected += [TimeoutError] * (cancelled_ms is not None)
    _run(main, *expected)
    return seen


def _run(main: Callable[[], Coroutine[None, None, None]], *expected: type[Exception]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        if not expected:
            runner.run(main())
            return
        with pytest.raises(expected):
            runner.run(main())


def test_second_begins_when_the_first_has_ended() -> None:
    assert happens(100, 50) == [
        "first begins at 0",
        "first ends at 100",
        "then begins at 100",
        "then ends at 150",
    ]


def test_second_waits_no_longer_than_its_limit_and_the_first_is_completed() -> None:
    assert happens(700, 50) == [
        "first begins at 0",
        "then begins at 500",
        "then ends at 550",
        "first ends at 700",
    ]


def test_nothing_follows_a_first_that_fails() -> None:
    assert happens(100, 50, failing="first") == ["first begins at 0"]


def test_second_that_fails_ends_the_first() -> None:
    seen = happens(700, 50, failing="then")
    assert seen == ["first begins at 0", "then begins at 500", "first is cancelled"]


def test_cancellation_ends_what_runs() -> None:
    assert happens(700, 50, cancelled_ms=30) == ["first begins at 0", "first is cancelled"]
    seen = happens(700, 500, cancelled_ms=600)
    assert seen == ["first begins at 0", "then begins at 500", "then is cancelled", "first is cancelled"]


class FailedError(Exception):
    """Has room for a weak reference."""


def test_error_that_waits_for_the_end_of_the_first_is_nobody_elses_and_goes() -> None:
    handled: list[BaseException | None] = []

    async def ends_late() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            for _ in range(3):
                await asyncio.sleep(0.1)
            raise

    async def fails() -> None:
        raise FailedError

    async def main() -> weakref.ref[BaseException]:
        turns = asyncio.create_task(run_in_turn(ends_late(), fails, LIMIT_MS))
        while not turns.done():
            await asyncio.sleep(0.05)
            handled.append(sys.exc_info()[1])
        error = turns.exception()
        assert isinstance(error, FailedError)
        return weakref.ref(error)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        error = runner.run(main())
    gc.collect()
    assert error() is None
    assert set(handled) == {None}
