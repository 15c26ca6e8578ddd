"""How long an event loop is blocked: by the wall clock, and by the processor time of its own thread."""

import asyncio
import time

TICK_S = 0.001


class Ticker:
    """How long the loop's callbacks block everything else."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_stopped = False
        self.reset()
        self._tick()

    def stop(self) -> None:
        self._is_stopped = True

    def reset(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.thread_time()
        self.wall_ms: list[float] = []
        self.cpu_ms: list[float] = []

    def _tick(self) -> None:
        wall, cpu = time.monotonic(), time.thread_time()
        self.wall_ms.append((wall - self._wall - TICK_S) * 1000)
        self.cpu_ms.append((cpu - self._cpu) * 1000)
        self._wall, self._cpu = wall, cpu
        if not self._is_stopped:
            self._loop.call_later(TICK_S, self._tick)


def stall_figures(ticker: Ticker) -> dict[str, float]:
    wall, cpu = sorted(ticker.wall_ms), sorted(ticker.cpu_ms)
    if not wall:
        return {"p99_ms": 0.0, "max_ms": 0.0, "max_cpu_ms": 0.0}
    return {"p99_ms": wall[int(len(wall) * 0.99)], "max_ms": wall[-1], "max_cpu_ms": cpu[-1]}
