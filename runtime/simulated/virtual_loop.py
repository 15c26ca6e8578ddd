"""An asyncio event loop in virtual time: no sockets, no threads, and a run that depends on its inputs alone.

When nothing is ready, the clock jumps to the next timer; timers that are due at one moment run in the order
in which they were made. A job that is given to an executor runs on the loop after a drawn delay, and its
result is reported after another one: between the two the job is done, but its caller does not know. The
executors of a process die with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import contextvars
    import random


WALL_START_MS = 1_700_000_000_000
"""The true wall clock when a schedule begins."""

MOST_TURNS_AT_ONE_TIME = 100_000
"""A loop that turns more often while time stands still would do so forever."""


class SimExecutor:
    """Worker threads of one simulated process: as many jobs at a time as there are threads, in order.

    ``max_delay_ms`` bounds how long a job waits for its disk before and after it is done.
    """

    def __init__(self, rng: random.Random, max_delay_ms: int, threads: int = 64) -> None:
        self.rng = rng
        self.max_delay_ms = max_delay_ms
        self.alive = True
        self._free_from_s = [0.0] * threads

    def delay_s(self) -> float:
        return self.rng.random() * self.max_delay_ms / 1000

    def begin_s(self, now_s: float) -> float:
        """The time at which a job that is submitted now is done by the first free thread."""
        begin_s = max(now_s, self._free_from_s[0]) + self.delay_s()
        heapreplace(self._free_from_s, begin_s)
        return begin_s

    def shutdown(self, wait: bool = True) -> None:
        """Jobs that were submitted before are still done."""


class VirtualLoop(asyncio.BaseEventLoop):
    """``now_s`` starts at 0. Its executors are :class:`SimExecutor`."""

    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_made = 0
        self._turns = 0

    def time(self) -> float:
        return self.now_s

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._add_timer(timer, when)
        return timer

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def _add_timer(self, timer: asyncio.TimerHandle, when: float) -> None:
        self._timers_made += 1
        heappush(self._timers, (when, self._timers_made, timer))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """The timer is skipped when it is due."""

    def _run_once(self) -> None:
        """One turn: everything that is ready at its beginning."""
        ready, timers = self._ready, self._timers
        if ready or self._stopping:
            self._turns += 1
            assert self._turns < MOST_TURNS_AT_ONE_TIME, (
                "a callback schedules itself again and again while time stands still"
            )
        else:
            while timers and timers[0][2]._cancelled:
                heappop(timers)
            assert timers, "no callback is left to run"
            if timers[0][0] > self.now_s:
                self.now_s = timers[0][0]
                self._turns = 0
        now_s = self.now_s
        while timers and timers[0][0] <= now_s:
            ready.append(heappop(timers)[2])
        self._run_ready(len(ready))

    def _run_ready(self, count: int) -> None:
        """Run the callbacks of one turn."""
        for _ in range(count):
            handle = self._ready.popleft()
            if not handle._cancelled:
                handle._run()
            del handle  # the loop of the next turn would still hold the arguments of this one's last

    def close(self) -> None:
        super().close()
        self._timers.clear()

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps in a selector."""

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

        self.call_at(executor.begin_s(self.now_s), run)
        return future


class VirtualClock:
    """Both clocks of :class:`pykraft.runtime.clock.Clock`, on a loop's virtual time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic_ms(self) -> int:
        return int(self._loop.now_s * 1000)

    def wall_ms(self) -> int:
        return WALL_START_MS + self.monotonic_ms()
