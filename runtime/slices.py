"""Work for one client in slices: while the turn has room at once, and then a share of each turn it gets.

Several such works in a lane are served in rotation, with whatever else waits for the turns of the event loop
(:mod:`.turns`). A work is an iterator that yields wherever it may stop: after each item of a list, or after
some milliseconds at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TypeVar, cast

from pykraft.runtime.turns import Turns

T = TypeVar("T")


class Slices:
    """The works of one lane."""

    def __init__(self, turns: Turns, lane: object) -> None:
        self._turns = turns
        self._lane = lane

    def run(self, work: Iterator[None], on_error: Callable[[Exception], None]) -> None:
        """Begin now. The end of the work is up to itself, except for an error."""
        is_going_on = True
        while is_going_on:
            if not self._turns.has_room():
                self._defer(work, on_error)
                return
            is_going_on = self._step(work, on_error)

    async def pause(self) -> None:
        """Return when this turn, or a later one, has time: for loops over very many items."""
        if self._turns.has_time():
            return
        turn = asyncio.get_running_loop().create_future()
        self._turns.defer(partial(self._resume, turn), self._lane)
        await turn

    def _resume(self, turn: asyncio.Future[None]) -> None:
        if not turn.done():
            turn.set_result(None)
            self._turns.spend(steps=1)

    async def finish(self, work: Iterator[None]) -> None:
        """Begin now, and return or raise when the work has ended. Once it is cancelled no slice begins."""
        await self._finish(work)

    async def result(self, work: Generator[None, None, T]) -> T:
        """As :meth:`finish`; returns what the work returns."""
        try:
            while self._turns.has_time():
                next(work)
        except StopIteration as end:
            return cast(T, end.value)
        return cast(T, await self._finish(work))

    async def _finish(self, work: Iterator[None]) -> object:
        ended = asyncio.get_running_loop().create_future()
        finishing = _Finishing(work, ended)
        self.run(finishing.steps(), finishing.fail)
        try:
            return await ended
        finally:
            finishing.ended = None
            del ended  # an error refers to this frame, and ended to the error: what it holds is freed at once

    def _go_on(self, work: Iterator[None], on_error: Callable[[Exception], None]) -> None:
        is_going_on = self._step(work, on_error)
        while is_going_on and self._turns.has_share():
            is_going_on = self._step(work, on_error)
        if is_going_on:
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


class _Finishing:
    """A work that somebody awaits; ``ended`` is None when nobody does any more."""

    __slots__ = ("_work", "ended")

    def __init__(self, work: Iterator[None], ended: asyncio.Future[object]) -> None:
        self._work = work
        self.ended: asyncio.Future[object] | None = ended

    def steps(self) -> Generator[None, None, None]:
        # What the waiter cleans up when it is cancelled must not be made again by one more slice.
        while self._is_awaited:
            try:
                next(self._work)
            except StopIteration as end:
                if self._is_awaited:
                    assert self.ended is not None
                    self.ended.set_result(end.value)
                return
            yield

    def fail(self, error: Exception) -> None:
        if self._is_awaited:
            assert self.ended is not None
            self.ended.set_exception(error)

    @property
    def _is_awaited(self) -> bool:
        return self.ended is not None and not self.ended.done()
