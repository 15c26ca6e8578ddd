"""Two pieces of work in turn: the second does not wait for ever, and neither outlives a failure."""

import asyncio
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
