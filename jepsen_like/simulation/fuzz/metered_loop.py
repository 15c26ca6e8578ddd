"""A loop in virtual time that measures how long one process holds it: processor time of a turn.

What a process gives to its worker threads is done on the loop, too, and does not count. Nor does a full
collection of garbage, which is measured by itself: when it comes, and what it visits, depends on all that was
done before. Other collections are work for what a request has made, and count.
"""

import asyncio
import gc
import random
from collections.abc import Callable, Mapping
from time import thread_time_ns
from typing import Any, Final

from pykraft.runtime.simulated.links import Links
from pykraft.runtime.simulated.processes import SimProcess
from pykraft.runtime.simulated.streams import NetworkLoop
from pykraft.runtime.simulated.virtual_loop import SimExecutor

_FULL: Final = 2
"""The oldest generation of the collector."""


class MeteredLoop(NetworkLoop):
    """``metered`` is the process whose turns are measured."""

    def __init__(self, seed: int) -> None:
        super().__init__(Links(random.Random(f"links {seed}"), max_delay_ms=1), random.Random(seed))
        self.metered: SimProcess | None = None
        self.longest_ns = 0
        """The longest turn since this was set to 0."""
        self.used_ns = 0
        self.longest_collection_ns = 0
        """The longest full collection of garbage so far."""
        self._apart_ns = 0
        """What does not count of the callback that runs."""
        self._collection_began_ns = 0
        gc.callbacks.append(self._collecting)

    def close(self) -> None:
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)
        super().close()

    def _collecting(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] < _FULL:
            return
        if phase == "start":
            self._collection_began_ns = thread_time_ns()
            return
        took_ns = thread_time_ns() - self._collection_began_ns
        self._apart_ns += took_ns
        self.longest_collection_ns = max(self.longest_collection_ns, took_ns)

    def _run_ready(self, count: int) -> None:
        metered, turn_ns = self.metered, 0
        for _ in range(count):
            handle = self._ready.popleft()
            if not handle._cancelled:
                if getattr(handle, "owner", None) is metered is not None:
                    self._apart_ns = 0
                    began_ns = thread_time_ns()
                    handle._run()
                    turn_ns += thread_time_ns() - began_ns - self._apart_ns
                else:
                    handle._run()
            del handle  # as in the loop that this one is
        self.used_ns += turn_ns
        if turn_ns > self.longest_ns:
            self.longest_ns = turn_ns

    def run_in_executor(  # type: ignore[override]
        self, executor: SimExecutor, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        def run() -> Any:
            began_ns, apart_ns = thread_time_ns(), self._apart_ns
            try:
                return func(*args)
            finally:
                self._apart_ns = apart_ns + thread_time_ns() - began_ns

        return super().run_in_executor(executor, run)
