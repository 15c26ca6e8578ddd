"""Producer ids, handed out of blocks the controller allocates; no two producers ever share one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

AllocateBlock = Callable[[], Awaitable[tuple[int, int]]]
"""Ask the controller for a block: (first id, number of ids)."""


class ProducerIdAllocator:
    """Hands out ids one by one; a new block is asked for when the last one is used up."""

    def __init__(self, allocate_block: AllocateBlock) -> None:
        self._allocate_block = allocate_block
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def next_id(self) -> int:
        """An id nobody else has. Raises what the controller's refusal raised."""
        while self._next == self._end:
            async with self._refill:
                if self._next == self._end:
                    start, length = await self._allocate_block()
                    self._next, self._end = start, start + length
        self._next += 1
        return self._next - 1
