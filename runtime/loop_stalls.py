"""How late the event loop is: a timer that looks how much later than asked it was called.

A loop that is held for 200 ms cannot answer a heartbeat meanwhile. The timer costs four calls a second, so it
runs only where somebody looks at its figures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from pykraft.runtime.durations import Durations

PERIOD_S: Final = 0.25


class Timer(Protocol):
    def cancel(self) -> None: ...


class LoopStalls:
    """``late``: the delays since :meth:`start`; ``longest_us``: the longest of them."""

    def __init__(
        self, call_later: Callable[[float, Callable[[], None]], Timer], now_us: Callable[[], int]
    ) -> None:
        self._call_later = call_later
        self._now_us = now_us
        self._timer: Timer | None = None
        self._due_us = 0
        self.late = Durations()
        self.longest_us = 0

    def start(self) -> None:
        self._due_us = self._now_us() + int(PERIOD_S * 1_000_000)
        self._timer = self._call_later(PERIOD_S, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        late_us = max(0, self._now_us() - self._due_us)
        self.late.add(late_us)
        self.longest_us = max(self.longest_us, late_us)
        self.start()
