"""How the validation of client batches shares the turns of the event loop with everything else.

It has no budget of its own: a batch is walked on the spot while the node's turn has room
(:mod:`pykraft.runtime.turns`). The others wait in one lane there, and who comes first is walked one piece and
goes to the end: so nobody's batch, be it the longest, holds the loop, those behind it or the other lanes for
long. Knows nothing of batches.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Protocol

from pykraft.runtime.turns import Turns

PIECE_WORK = 1024
"""What is walked before the turn is asked again, in the unit of :meth:`RecordWalk.advance`: some half a
millisecond."""

MAX_UNFOLDED_BATCHES = 2
"""How many large compressed batches may lie in memory at once."""

_LANE = "validation"


class Walkable(Protocol):
    """What :class:`~pykraft.broker.replicas.validate.ClientBatch` is here."""

    @property
    def is_done(self) -> bool: ...

    @property
    def is_large(self) -> bool:
        """It cannot go on here."""
        ...

    def advance(self, work: int) -> int: ...


class ValidationTurns:
    """Shared by all requests of a broker. Used on the event loop only."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.memory = asyncio.Semaphore(MAX_UNFOLDED_BATCHES)
        """Held while a large batch is unfolded, and while a batch is compressed anew."""

    def walk_now(self, batch: Walkable) -> bool:
        """Advance through ``batch`` while this turn has room.

        Returns whether it is done or found to be large. Raises what ``advance`` raises.
        """
        while not (batch.is_done or batch.is_large):
            if not self._turns.has_room():
                return False
            batch.advance(PIECE_WORK)
        return True

    def has_room(self) -> bool:
        return self._turns.has_room()

    async def wait(self) -> None:
        """At once where this turn has room, or in a later one: for work without a batch to walk."""
        if self.has_room():
            return
        turn = asyncio.get_running_loop().create_future()
        self._turns.defer(partial(self._resume, turn), _LANE)
        await turn

    def _resume(self, turn: asyncio.Future[None]) -> None:
        if not turn.done():
            turn.set_result(None)
            self._turns.spend(steps=1)

    async def walk(self, batch: Walkable) -> None:
        """As :meth:`walk_now`, in this and later turns until it is true.

        A batch whose request is cancelled is walked no further.
        """
        if self.walk_now(batch):
            return
        done = asyncio.get_running_loop().create_future()
        self._turns.defer(partial(self._walk_on, batch, done), _LANE)
        try:
            await done
        finally:
            del done  # see _walk_on

    def _walk_on(self, batch: Walkable, done: asyncio.Future[None]) -> None:
        """One piece.

        An error has a traceback, which has this call: with ``done``, which has the error, it would keep the
        batch in memory until the garbage collector comes by.
        """
        if done.done():
            return  # its request was cancelled
        try:
            batch.advance(PIECE_WORK)
        except Exception as error:
            done.set_exception(error)
            del done
        else:
            if not (batch.is_done or batch.is_large):
                self._turns.defer(partial(self._walk_on, batch, done), _LANE)
                return
            done.set_result(None)
        self._turns.spend(steps=1)
