"""Walks that do not hold the event loop for long: a module of its own for its asynchronous generator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

STEPS_PER_TURN: Final = 500


async def paced(walk: Iterator[T | None]) -> AsyncIterator[T]:
    """Yield the finds of a walk without holding the event loop for long."""
    for number, found in enumerate(walk, 1):
        if found is not None:
            yield found
        if number % STEPS_PER_TURN == 0:
            await asyncio.sleep(0)
