"""Supervised background tasks: a task that dies of a bug takes the node down instead of vanishing.

A broker whose fetcher or heartbeat loop silently ended would go on serving with half its parts dead, which
is worse than not serving; so every long-lived task is started here and its failure is reported once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)

FatalHandler = Callable[[BaseException], None]

FaultHandler = Callable[[str, BaseException], None]
"""(what, error): a part of the node failed for good; the node has to stop."""


class TaskSupervisor:
    """Starts tasks, reports the first failure of any to ``on_fatal``, cancels them all on close."""

    def __init__(self, on_fatal: FatalHandler) -> None:
        self._on_fatal = on_fatal
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run ``work`` in the background under ``name``."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            logger.critical("task %s failed", task.get_name(), exc_info=error)
            self._on_fatal(error)

    async def close(self) -> None:
        """Cancel every task and wait until each has ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
