"""Shares the turns of the event loop between the validation of client batches and everything else.

It has no budget of its own: a batch is walked at once while the node's turn has room
(:mod:`pykraft.runtime.turns`). The others wait in one lane there: the first is walked for one piece and moves
to the end. So no batch, however long, holds up the event loop, the batches behind it or the other lanes for
long. This module knows nothing about the contents of batches.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Protocol

from pykraft.runtime.turns import Turns

PIECE_WORK = 1024
"""How much is walked before the turn is asked again, in units of :meth:`RecordWalk.advance`: some 0.5 ms."""

MAX_UNFOLDED_BATCHES = 2
"""How many large compressed batches may be decompressed in memory at once."""

_LANE = "validation"


class Walkable(Protocol):
    """The view of a :class:`~pykraft.broker.replicas.leading.validate.ClientBatch` that is needed here."""

    @property
    def is_done(self) -> bool: ...

    @property
    def is_large(self) -> bool:
        """It must be decompressed in a thread before the walk can continue."""
        ...

    def advance(self, work: int) -> int: ...


class ValidationTurns:
    """Shared by all requests of a broker. Used on the event loop only."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.memory = asyncio.Semaphore(MAX_UNFOLDED_BATCHES)
        """Held while a large batch is decompressed, and while a batch is recompressed."""

    def walk_now(self, batch: Walkable, *, is_first: bool = False) -> bool:
        """Advance through ``batch`` while this turn has room; ``is_first``: of a request, for which it had.

        Returns whether it is done or found to be large. Raises what ``advance`` raises.
        """
        if is_first:
            batch.advance(PIECE_WORK)
        while not (batch.is_done or batch.is_large):
            if not self._turns.has_room():
                return False
            batch.advance(PIECE_WORK)
        return True

    def has_room(self) -> bool:
        return self._turns.has_room()

    async def wait(self) -> None:
        """Return when this turn, or a later one, has room: for work without a batch to walk."""
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
        """Like :meth:`walk_now`, in this and later turns until the batch is done or found to be large.

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
        """Walk one piece of the batch.

        ``done`` is deleted after an error to break a reference cycle: the error's traceback refers to this
        frame, and ``done`` to the error. The cycle would keep the batch in memory until the garbage collector
        runs.
        """
        if done.done():
            return  # the request was cancelled
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
