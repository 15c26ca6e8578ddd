"""The list of logs to look at: those that may differ from what the metadata image assigns."""

from __future__ import annotations

import asyncio
from itertools import islice

from pykraft.broker.logs.offline_logs import TopicPartition


class Worklist:
    """The work of :class:`~pykraft.broker.replicas.log_reconciler.LogReconciler`.

    ``settled`` is set while there is nothing to do: every log that the image assigns to this broker is open,
    or reported as lost. It is not set before the first look.
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
        """Tell the reconciler that there is work."""
        self.settled.clear()
        self._news.set()

    def hurry(self, key: TopicPartition) -> None:
        """A request waits for this log: look at it first."""
        if key in self._due:
            self._urgent[key] = None

    def take(self, most: int) -> list[TopicPartition]:
        """The logs to look at next, first those that requests wait for."""
        keys = [key for key in self._urgent if key in self._due][:most]
        for key in keys:
            del self._due[key]
        self._urgent = {key: None for key in self._urgent if key in self._due}
        keys += islice(self._due, most - len(keys))
        for key in keys:
            self._due.pop(key, None)
        return keys

    async def wait(self) -> None:
        """Wait until :meth:`wake` is called; the work may have been done since."""
        await self._news.wait()
        self._news.clear()
