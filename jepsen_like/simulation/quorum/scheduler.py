"""A seeded scheduler without an event loop: virtual milliseconds, one callback at a time.

Equal times run in the order in which they were scheduled, so a run depends on its inputs alone. Virtual time
stands still while a callback runs.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Scheduler:
    """``now_ms`` starts at 0."""

    __slots__ = ("_heap", "_sequence", "now_ms")

    def __init__(self) -> None:
        self.now_ms = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0

    def after(self, delay_ms: int, callback: Callable[..., None], *args: Any) -> None:
        self._sequence += 1
        heappush(self._heap, (self.now_ms + delay_ms, self._sequence, callback, args))

    def at(self, time_ms: int, callback: Callable[..., None], *args: Any) -> None:
        self._sequence += 1
        heappush(self._heap, (max(time_ms, self.now_ms), self._sequence, callback, args))

    def run(self, until_ms: int) -> None:
        """Run everything that is due by ``until_ms``, and advance the time to it."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            self.now_ms, _, callback, args = heappop(heap)
            callback(*args)
        self.now_ms = max(self.now_ms, until_ms)

    def run_next(self, until_ms: int) -> bool:
        """Run the next callback due by ``until_ms``; if none is, advance to that time and return False."""
        if not self._heap or self._heap[0][0] > until_ms:
            self.now_ms = max(self.now_ms, until_ms)
            return False
        self.now_ms, _, callback, args = heappop(self._heap)
        callback(*args)
        return True
