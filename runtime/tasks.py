"""Work beside the requests: supervised background tasks, and jobs for worker threads.

A broker whose fetcher or heartbeat loop ended silently would keep serving with half of its parts dead, which
is worse than not serving. So every task of a node is started here, and its failure is reported. Parts that
stop together share a supervisor; a part that stops by itself makes its own from the node's
:data:`FatalHandler`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor

logger = logging.getLogger(__name__)

FatalHandler = Callable[[BaseException], None]
"""Called with the error when a part of the node failed for good: the node has to stop."""

T = TypeVar("T")


async def run_in_turn(
    first: Coroutine[Any, Any, None], then: Callable[[], Coroutine[Any, Any, None]], at_the_latest_ms: int
) -> None:
    """Run ``first``, then ``then``, which waits at most this long; if one fails, the other is ended."""
    running = asyncio.get_running_loop().create_task(first)
    try:
        await asyncio.wait([running], timeout=at_the_latest_ms / 1000)
        if running.done():
            running.result()
        await then()
        await running
    except BaseException:
        if not running.done():
            running.cancel()
            await asyncio.wait([running])
        raise


class TaskSupervisor:
    """Starts tasks, reports the failure of any to ``on_fatal``, cancels them all on close."""

    def __init__(self, on_fatal: FatalHandler) -> None:
        self._on_fatal = on_fatal
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in their order
        self._is_closed = False

    def __len__(self) -> int:
        """How many are running."""
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run ``work`` in the background under ``name``. Cancelled at once when this is closed."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._finished)
        if self._is_closed:
            task.cancel()
        return task

    def begin(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any] | None:
        """Run ``work`` now, up to its first wait; the rest as :meth:`start`. None if nothing is left to do.

        For work that seldom waits, which then needs neither a task nor another turn of the event loop. Before
        its first wait there is no current task, so that :func:`asyncio.timeout` is not to be used there.
        """
        if self._is_closed:
            return self.start(work, name)
        try:
            awaited = work.send(None)
        except (StopIteration, asyncio.CancelledError):
            return None
        except Exception as error:
            self._failed(name, error)
            return None
        return self.start(_Begun(work, awaited), name)

    async def sleep(self, duration_ms: int) -> None:
        """Sleep, for tasks that are started here."""
        await asyncio.sleep(duration_ms / 1000)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._failed(task.get_name(), error)

    def _failed(self, name: str, error: BaseException) -> None:
        logger.critical("task %s failed", name, exc_info=error)
        self._on_fatal(error)

    async def close(self) -> None:
        """Cancel every task and wait until each has ended."""
        self._is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)


class _Begun(Coroutine[Any, Any, Any]):
    """A coroutine that has run up to its first wait, as a task takes it: what it ``awaited`` comes first."""

    __slots__ = ("_awaited", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], awaited: asyncio.Future[Any] | None) -> None:
        """``awaited``: None for a coroutine that only lets others run."""
        self._work = work
        self._awaited = awaited
        if awaited is not None:
            # It is marked from the wait until a task has taken it. Others may wait for it meanwhile. Only a
            # task can take the mark away otherwise, and tasks begin in the next turn: requests of one
            # connection would take effect in another order, and their work would count in no turn.
            awaited._asyncio_future_blocking = False

    def send(self, value: Any, /) -> Any:
        awaited, self._awaited = self._awaited, None
        if awaited is None:
            return self._work.send(value)
        awaited._asyncio_future_blocking = True
        return awaited

    def throw(self, *error: Any) -> Any:
        """Cancelled before the task has begun, it cancels what it waits for, as a task does."""
        awaited, self._awaited = self._awaited, None
        if awaited is None or not awaited.cancel():
            return self._work.throw(*error)
        awaited._asyncio_future_blocking = True
        return awaited

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise AssertionError("a task runs it, and nothing else")


class Workers:
    """Threads for jobs that block; those of the event loop itself if there is no ``executor``."""

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor

    async def run(self, job: Callable[[], T]) -> T:
        """Run ``job``; no other code may touch its values meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, job)
