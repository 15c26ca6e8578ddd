"""Simulated operating-system processes on one virtual loop: they can be killed and paused, and have clocks.

Every callback belongs to the process in whose context it was scheduled; asyncio carries the context from
callback to timer to task by itself, so the product's code needs no hook. Callbacks of a dead process never
run again, and its tasks are kept until the end of the run so that none of their ``finally`` blocks runs
either. Callbacks of a paused process wait, in order, until it is resumed. Timers run at the rate of their
process's clock.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

from pykraft.runtime.simulated.virtual_loop import WALL_START_MS, VirtualLoop


class ProcessKilledError(BaseException):
    """The process dies here. Not an Exception, because the product must not catch it."""


class SimProcess:
    """One incarnation of one process. ``rate`` is how fast its timers run, 1.0 being right; ``host`` is the
    number of the machine that it runs on (see :mod:`.streams`)."""

    __slots__ = ("alive", "context", "held", "host", "machine", "name", "paused", "rate", "running", "tasks")

    def __init__(self, name: str, rate: float = 1.0, host: int = 0) -> None:
        self.name = name
        self.host = host
        self.machine: Any = None
        """The simulated machine, if the process has one."""
        self.alive = True
        self.paused = False
        self.running = True
        """Alive and not paused."""
        self.rate = rate
        self.held: list[asyncio.Handle] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        self.context = contextvars.copy_context()
        self.context.run(_PROCESS.set, self)

    def kill(self) -> None:
        self.alive = self.running = False

    def pause(self) -> None:
        self.paused, self.running = True, False

    def resume(self, loop: ProcessLoop) -> None:
        self.paused, self.running = False, self.alive
        if self.alive:
            held, self.held = self.held, []
            loop.run_held(held)


_PROCESS: contextvars.ContextVar[SimProcess | None] = contextvars.ContextVar("process", default=None)


def current_process() -> SimProcess | None:
    """The process whose callback runs; None outside any process."""
    return _PROCESS.get()


class _OwnedHandle(asyncio.Handle):
    __slots__ = ("owner",)

    owner: SimProcess | None

    def _run(self) -> None:
        if self.owner is None or self.owner.running:
            super()._run()
        else:
            self.owner.held.append(self)


class _OwnedTimer(asyncio.TimerHandle):
    __slots__ = ("owner",)

    owner: SimProcess | None

    def _run(self) -> None:
        if self.owner is None or self.owner.running:
            super()._run()
        else:
            self.owner.held.append(self)


class ProcessLoop(VirtualLoop):
    """A virtual loop that knows which process each callback belongs to."""

    def _call_soon(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context | None
    ) -> asyncio.Handle:
        handle = _OwnedHandle(callback, args, self, context)
        handle.owner = _PROCESS.get() if context is None else context.get(_PROCESS)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        owner = _PROCESS.get() if context is None else context.get(_PROCESS)
        if owner is not None and owner.rate != 1.0:
            when = self.now_s + (when - self.now_s) / owner.rate
        timer = _OwnedTimer(when, callback, args, self, context)
        timer.owner = owner
        self._add_timer(timer, when)
        return timer

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        context = options.get("context")
        task = super().create_task(coro, **options)
        owner = _PROCESS.get() if context is None else context.get(_PROCESS)
        if owner is not None:
            owner.tasks.add(task)
            task.add_done_callback(owner.tasks.discard)
        return task

    def run_held(self, handles: list[asyncio.Handle]) -> None:
        self._ready.extend(handles)


class ProcessClock:
    """Both clocks of one machine: they survive its processes, may run fast or slow, and the wall may jump."""

    def __init__(self, loop: VirtualLoop, start_ms: int) -> None:
        self._loop = loop
        self._since_s = loop.now_s
        self._reached_ms = float(start_ms)
        self._wall_offset_ms = WALL_START_MS - start_ms
        self.rate = 1.0

    def set_rate(self, rate: float) -> None:
        self._reached_ms, self._since_s = self._now_ms(), self._loop.now_s
        self.rate = rate

    def jump_wall(self, by_ms: int) -> None:
        self._wall_offset_ms += by_ms

    def set_wall(self, to_ms: int) -> None:
        """As when an operator, or NTP, sets the clock right."""
        self._wall_offset_ms += to_ms - self.wall_ms()

    def _now_ms(self) -> float:
        return self._reached_ms + (self._loop.now_s - self._since_s) * 1000 * self.rate

    def monotonic_ms(self) -> int:
        return int(self._now_ms())

    def wall_ms(self) -> int:
        return self._wall_offset_ms + int(self._now_ms())
