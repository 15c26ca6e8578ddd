"""Waiting inside an event loop. Processes are waited for with :mod:`pykraft.testing.processes.waits`."""

import asyncio
from collections.abc import Callable
from functools import partial


async def until(condition: Callable[[], object], timeout_s: float = 20, every_s: float = 0.002) -> None:
    """The limit only ends a hang."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(every_s)


until_now = partial(until, every_s=0)
"""Looks at the condition in each turn of the loop."""


async def settle(turns: int = 30) -> None:
    """Let the loop turn so often: whoever can go on without being told has done so."""
    for _ in range(turns):
        await asyncio.sleep(0)
