"""One exchange at a time with each broker: what becomes due meanwhile shares the next one.

What an exchange may fail with is the business of its owner. An error that nobody foresaw (an answer that
makes no sense, a bug) costs the batch that met it, which is handed back, and neither what is due after it nor
the node.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from pykraft.runtime.tasks import TaskSupervisor

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Exchanges(Generic[T]):
    """``take`` removes from what is due the next batch, at least one; ``exchange`` is given the broker and
    that; ``hand_back`` is given the batch of an exchange that raised.
    """

    def __init__(
        self,
        name: str,
        tasks: TaskSupervisor,
        take: Callable[[deque[T]], Sequence[T]],
        exchange: Callable[[int, Sequence[T]], Awaitable[None]],
        hand_back: Callable[[Sequence[T]], None],
    ) -> None:
        self._name = name
        self._tasks = tasks
        self._take = take
        self._exchange = exchange
        self._hand_back = hand_back
        self._due: dict[int, deque[T]] = {}
        """By broker; while there is an entry its task is running."""

    def add(self, node_id: int, one: T) -> None:
        """Send this to a broker soon."""
        due = self._due.get(node_id)
        if due is None:
            due = self._due[node_id] = deque()
            self._tasks.start(self._run(node_id, due), f"{self._name}-{node_id}")
        due.append(one)

    async def _run(self, node_id: int, due: deque[T]) -> None:
        try:
            while due:
                batch = self._take(due)
                try:
                    await self._exchange(node_id, batch)
                except Exception:
                    logger.exception("%s-%d: %d have failed", self._name, node_id, len(batch))
                    self._hand_back(batch)
        finally:
            del self._due[node_id]
