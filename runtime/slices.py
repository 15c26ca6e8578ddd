"""Work for one client in slices: while the turn has room at once, and then one slice in each turn it gets.

Several such works in a lane are served in rotation, with whatever else waits for the turns of the event loop
(:mod:`.turns`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from pykraft.runtime.turns import Turns


class Slices:
    """The works of one lane. A work is an iterator that yields after each slice, some milliseconds."""

    def __init__(self, turns: Turns, lane: object) -> None:
        self._turns = turns
        self._lane = lane

    def run(self, work: Iterator[None], on_error: Callable[[Exception], None]) -> None:
        """Begin now. The end of the work is up to itself, but for an error."""
        is_going_on = True
        while is_going_on:
            if not self._turns.has_room():
                self._defer(work, on_error)
                return
            is_going_on = self._step(work, on_error)

    async def finish(self, work: Iterator[None]) -> None:
        """Begin now, and return or raise when the work has ended. Cancelled, it stops after a slice."""
        ended = asyncio.get_running_loop().create_future()

        def fail(error: Exception) -> None:
            if not ended.done():
                ended.set_exception(error)

        def work_on() -> Iterator[None]:
            for _ in work:
                if ended.done():
                    return
                yield
            if not ended.done():
                ended.set_result(None)

        self.run(work_on(), fail)
        await ended

    def _go_on(self, work: Iterator[None], on_error: Callable[[Exception], None]) -> None:
        if self._step(work, on_error):
            self._defer(work, on_error)

    def _defer(self, work: Iterator[None], on_error: Callable[[Exception], None]) -> None:
        self._turns.defer(lambda: self._go_on(work, on_error), self._lane)

    @staticmethod
    def _step(work: Iterator[None], on_error: Callable[[Exception], None]) -> bool:
        """Whether there is more to do."""
        try:
            next(work)
        except StopIteration:
            return False
        except Exception as error:
            on_error(error)
            return False
        return True
