"""Which logs have to be looked at: those that may not be as the metadata image wants them."""

from __future__ import annotations

import asyncio
from itertools import islice

from pykraft.broker.logs.offline_logs import TopicPartition


class Worklist:
    """What there is to do for :class:`~pykraft.broker.replicas.log_reconciler.LogReconciler`.

    ``settled`` is set while nothing is to be done: every log that the image assigns to this broker is open,
    or lost to the controller's knowledge. It is not before the first look.
    """

    def __init__(self) -> None:
        self.settled = asyncio.Event()
        self._due: dict[TopicPartition, None] = {}
        self._urgent: dict[TopicPartition, None] = {}
        self._news = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._due)

    def add(self, *keys: TopicPartition) -> None:
        for key in keys:
            self._due[key] = None
        self.wake()

    def wake(self) -> None:
        """There is something to do."""
        self.settled.clear()
        self._news.set()

    def hurry(self, key: TopicPartition) -> None:
        """Somebody waits for this one."""
        if key in self._due:
            self._urgent[key] = None

    def take(self, most: int) -> list[TopicPartition]:
        """What to look at next; first what somebody waits for."""
        keys = [key for key in self._urgent if key in self._due][:most]
        for key in keys:
            del self._due[key]
        self._urgent = {key: None for key in self._urgent if key in self._due}
        keys += islice(self._due, most - len(keys))
        for key in keys:
            self._due.pop(key, None)
        return keys

    async def wait(self) -> None:
        """Until there is something to do, perhaps done since."""
        await self._news.wait()
        self._news.clear()
