"""Producer ids, handed out of blocks the controller allocates; no two producers ever share one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

AllocateBlock = Callable[[], Awaitable[tuple[int, int]]]
"""Ask the controller for a block: (first id, number of ids)."""


class ProducerIdAllocator:
    """Hands out ids one by one; a new block is asked for when the last one is used up.

    Callers that arrive meanwhile wait for the same block and share its failure: while there is no controller,
    they must not queue up, each with a timeout of its own.
    """

    def __init__(self, allocate_block: AllocateBlock) -> None:
        self._allocate_block = allocate_block
        self._next = 0
        self._end = 0
        self._refill: asyncio.Future[None] | None = None

    async def next_id(self) -> int:
        """An id that no other producer has. Raises the error with which the controller refused the block."""
        while self._next == self._end:
            if self._refill is None:
                await self._ask()
            else:
                await asyncio.shield(self._refill)
        self._next += 1
        return self._next - 1

    async def _ask(self) -> None:
        refill = self._refill = asyncio.get_running_loop().create_future()
        try:
            start, length = await self._allocate_block()
            self._next, self._end = start, start + length
        except Exception as error:
            refill.set_exception(error)
            refill.exception()  # there may be no other waiter to retrieve it
            raise
        finally:
            self._refill = None
            if not refill.done():
                refill.set_result(None)
