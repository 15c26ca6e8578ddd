"""How much validation of client batches one turn of the event loop does.

Batches are walked on the spot while the turn's allowance lasts. The others wait here, and each turn walks on
through the batches of those who wait, the first first, for one slice in all: so nobody's batch, be it the
longest, holds the loop or those behind it for long. Decides who is next; knows nothing of batches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

TURN_WORK = 8192
"""What a turn may walk on the spot, in the unit of :meth:`RecordWalk.advance`: some four milliseconds."""

SLICE_WORK = 4096
"""And for those who wait."""

MAX_UNFOLDED_BATCHES = 2
"""How many large compressed batches may lie in memory at once."""

PARTITION_WORK = 48
"""What it takes to append one more batch once it is validated, or to take up the next of those who wait."""


class Walkable(Protocol):
    """What :class:`~pykraft.broker.validate.ClientBatch` is here."""

    @property
    def is_done(self) -> bool: ...

    @property
    def is_large(self) -> bool:
        """It cannot go on here."""
        ...

    def advance(self, work: int) -> int: ...


class ValidationTurns:
    """Shared by all requests of a broker. Used on the event loop only."""

    def __init__(self) -> None:
        self.allowance = TURN_WORK
        """What is left of this turn; never below 0 by more than one batch."""
        self.memory = asyncio.Semaphore(MAX_UNFOLDED_BATCHES)
        """Held while a large batch is unfolded, and while a batch is compressed anew."""
        self._waiting: deque[tuple[Walkable, asyncio.Future[None]]] = deque()
        self._is_armed = False

    def spend(self, work: int) -> None:
        """So much was done on the spot."""
        self.allowance -= work
        self._arm()

    async def walk(self, batch: Walkable) -> None:
        """Advance through ``batch`` in this and later turns until it is done or found to be large.

        Raises what that raises.
        """
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((batch, done))
        self._arm()
        await done

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_armed = False
        self.allowance = TURN_WORK
        left = SLICE_WORK
        while self._waiting and left > 0:
            batch, done = self._waiting.popleft()
            if done.done():
                continue  # its request was cancelled
            try:
                left -= batch.advance(left) + PARTITION_WORK
            except Exception as error:
                done.set_exception(error)
                continue
            if batch.is_done or batch.is_large:
                done.set_result(None)
            else:
                self._waiting.append((batch, done))
        self.allowance -= SLICE_WORK - left
        if self._waiting:
            self._arm()
