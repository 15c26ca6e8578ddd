"""The list of logs to look at: those that may differ from what the metadata image assigns."""

from __future__ import annotations

import asyncio
from itertools import islice

from pykraft.broker.logs.offline_logs import TopicPartition


class Worklist:
    """The work of :class:`~pykraft.broker.replicas.placement.log_reconciler.LogReconciler`.

    ``idle`` is set while there is nothing to do: every log that the image assigns to this broker is open,
    or reported as lost. It is not set before the first look.
    """

    def __init__(self) -> None:
        self.idle = asyncio.Event()
        self._due: dict[TopicPartition, None] = {}
        self._urgent: dict[TopicPartition, None] = {}
        self._wakeup = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._due)

    def add(self, *keys: TopicPartition) -> None:
        for key in keys:
            self._due[key] = None
        self.wake()

    def wake(self) -> None:
        """Notify the reconciler that there is work."""
        self.idle.clear()
        self._wakeup.set()

    def prioritize(self, key: TopicPartition) -> None:
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
        await self._wakeup.wait()
        self._wakeup.clear()
