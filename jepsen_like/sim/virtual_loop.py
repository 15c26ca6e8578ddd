"""An asyncio event loop in virtual time: no sockets, no threads, and a run that depends on its inputs alone.

When nothing is ready, the clock jumps to the next timer. What is handed to an executor runs on the loop
after a drawn delay, and its result is reported after another: between the two it has happened and nobody
knows. A process that dies takes its executor along.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random


MOST_TURNS_AT_ONE_TIME = 100_000
"""A loop that turns more often without time going on would do so for ever."""


class SimExecutor:
    """The threads of one simulated process. ``max_delay_ms`` bounds how slow its disk is."""

    def __init__(self, rng: random.Random, max_delay_ms: int) -> None:
        self.rng = rng
        self.max_delay_ms = max_delay_ms
        self.alive = True

    def delay_s(self) -> float:
        return self.rng.random() * self.max_delay_ms / 1000


class _NoSelector:
    """Stands where the loop waits for sockets: waiting is letting virtual time pass."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._turns = 0

    def select(self, timeout: float | None) -> tuple[()]:
        assert timeout is not None, "nothing is left that could ever happen"
        self._turns = 0 if timeout else self._turns + 1
        assert self._turns < MOST_TURNS_AT_ONE_TIME, (
            "somebody wakes up again and again, and time stands still"
        )
        self._loop.now_s += timeout
        return ()


class VirtualLoop(asyncio.BaseEventLoop):
    """``now_s`` starts at 0. Its executors are :class:`SimExecutor`."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._clock_resolution = 1e-9
        self._selector = _NoSelector(self)

    def time(self) -> float:
        return self.now_s

    def _process_events(self, event_list: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector."""

    def run_in_executor(  # type: ignore[override]
        self, executor: SimExecutor, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()

        def run() -> None:
            if not executor.alive:
                return
            try:
                result = func(*args)
            except Exception as error:
                self.call_later(executor.delay_s(), report, None, error)
            else:
                self.call_later(executor.delay_s(), report, result, None)

        def report(result: object, error: Exception | None) -> None:
            if not executor.alive or future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(executor.delay_s(), run)
        return future


class VirtualClock:
    """Both clocks of :class:`pykraft.runtime.clock.Clock`, on a loop's virtual time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic_ms(self) -> int:
        return int(self._loop.now_s * 1000)

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()
