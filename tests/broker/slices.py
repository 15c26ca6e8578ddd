"""Requests that are handled in slices. Of each API its tests say that it is answered as at once, that no turn
does more than its share, that others are served meanwhile, and what comes of changes that happen meanwhile.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from pykraft.kafka_protocol.connection import RequestHandler
from pykraft.runtime.network.streams import Chunk
from pykraft.runtime.turns import TURN_US, TurnBudget
from tests.broker.links import ConnectedLink

T = TypeVar("T")


class Turns:
    """Counts the turns of the running loop, and what is noted in each.

    Each look at the clock of ``budget`` shows ``look_us`` more.
    """

    def __init__(self, look_us: int = TURN_US // 2) -> None:
        self._loop = asyncio.get_running_loop()
        self._look_us = look_us
        self.number = self.now_us = 0
        self.noted: Counter[int] = Counter()
        self.budget = TurnBudget(self._loop.call_soon, self._look)
        self._count()

    def _count(self) -> None:
        self.number += 1
        self._handle = self._loop.call_soon(self._count)

    def _look(self) -> int:
        self.now_us += self._look_us
        return self.now_us

    def note(self) -> None:
        self.noted[self.number] += 1

    @property
    def most(self) -> int:
        """That was noted in one turn."""
        return max(self.noted.values(), default=0)

    def stop(self) -> None:
        self._handle.cancel()


async def turns_of(
    asked: Awaitable[T], meanwhile: Callable[[int], object] = lambda turn: None
) -> tuple[T, int]:
    """The answer, and in how many turns it was given; ``meanwhile`` happens in each that did not bring it."""
    turns, waiting = 0, asyncio.ensure_future(asked)
    while not waiting.done():
        turns += 1
        await asyncio.sleep(0)
        if not waiting.done():
            meanwhile(turns)
    return waiting.result(), turns


def pauses_of(work: Iterable[object]) -> int:
    """How often it pauses until its end."""
    return sum(1 for _ in work)


class Client(ConnectedLink):
    """``answered``: the turn of each answer."""

    def __init__(self, handler: RequestHandler, turns: Turns) -> None:
        super().__init__(handler)
        self._turns = turns
        self.answered: list[int] = []

    def write(self, chunks: Sequence[Chunk]) -> None:
        super().write(chunks)
        self.answered.append(self._turns.number)

    def close(self) -> None:
        super().close()
        self.connection.connection_lost()
