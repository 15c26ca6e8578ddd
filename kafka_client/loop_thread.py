"""An event loop in a daemon thread of its own, for programs that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class LoopThread:
    """Use as a context manager, or :meth:`start` and :meth:`stop` it, each once."""

    def __init__(self, name: str = "workload") -> None:
        self.loop = asyncio.new_event_loop()
        self._runner = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)

    @property
    def is_current(self) -> bool:
        """Whether the caller is on the loop, and must not wait for it."""
        return threading.current_thread() is self._runner

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start it, and do not wait."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end, and return or raise what that brings."""
        return self.submit(work).result()

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the loop."""

        async def called() -> T:
            return function()

        return self.run(called())

    def start(self) -> None:
        self._runner.start()

    def stop(self) -> None:
        """Cancel what is still running, and end the thread."""
        self.run(_cancel_everything())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._runner.join()
        self.loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


async def _cancel_everything() -> None:
    """After an error others may still be running; after a clean end nothing is."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
