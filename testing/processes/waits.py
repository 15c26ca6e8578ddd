"""Waiting for a condition, never for a guess: every wait has a bound and says what it waited for."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

POLL_INTERVAL_S = 0.05
PATIENCE_S = 120.0
"""Bound of a wait that decides nothing but that something hangs: a loaded machine may need most of it."""


class WaitError(TimeoutError):
    """The awaited condition did not come true in time; the message names it."""


class Deadline:
    """A point on the monotonic clock that several waits share."""

    def __init__(self, timeout_s: float) -> None:
        self._end = time.monotonic() + timeout_s

    def left_s(self, at_most_s: float = float("inf")) -> float:
        """Seconds left, at most ``at_most_s``, never negative."""
        return max(0.0, min(at_most_s, self._end - time.monotonic()))

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self._end


def wait_until(
    what: str,
    condition: Callable[[], bool],
    timeout_s: float = PATIENCE_S,
    *,
    interval_s: float = POLL_INTERVAL_S,
) -> float:
    """Poll ``condition`` until it holds; the seconds that took. :class:`WaitError` if it did not in time."""
    start = time.monotonic()
    deadline = Deadline(timeout_s)
    while not condition():
        if deadline.passed:
            raise WaitError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(interval_s)
    return time.monotonic() - start


async def until(
    condition: Callable[[], bool | Awaitable[bool]],
    what: str = "what is awaited",
    timeout_s: float = PATIENCE_S,
    interval_s: float = 0.02,
) -> None:
    """The same on an event loop, by its time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    while True:
        holds = condition()
        if await holds if inspect.isawaitable(holds) else holds:
            return
        if loop.time() > end:
            raise WaitError(f"{what}: not within {timeout_s:.0f} s")
        await asyncio.sleep(interval_s)
