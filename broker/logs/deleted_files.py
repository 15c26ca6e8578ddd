"""Removes the files of deleted segments when ``file.delete.delay.ms`` has passed, as Kafka does.

They have another name since they were deleted, and no reader needs the name: the delay lets an operator save
what was deleted by mistake. Removing a large file blocks, so it is done in the executor. Files that are still
there when the broker stops are removed by the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush

from pykraft.broker.logs.log_dirs import is_of_the_process
from pykraft.broker.logs.log_work import LogWork
from pykraft.runtime.clock import Clock
from pykraft.runtime.disk import Disk
from pykraft.runtime.tasks import TaskSupervisor, Workers

LONGEST_SLEEP_MS = 1000
"""A file that is due sooner may be added at any time."""

FILES_PER_JOB = 30

RETRY_MS = 60_000
"""After an error that is none of the disk."""


class DeletedFiles:
    """The deleted files of one broker. Costs nothing while there are none.

    ``fail`` is called with a path and the error of its removal; whether the broker goes on.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        workers: Workers,
        work: LogWork,
        tasks: TaskSupervisor,
        fail: Callable[[str, OSError], bool],
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._workers = workers
        self._work = work
        self._tasks = tasks
        self._fail = fail
        self._due: list[tuple[int, str]] = []  # a heap
        self._is_running = False

    def add(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove these files after a delay."""
        due_ms = self._clock.monotonic_ms() + delay_ms
        for path in paths:
            heappush(self._due, (due_ms, path))
        if not self._is_running:
            self._is_running = True
            self._tasks.start(self._remove_due(), "deleted-files")

    async def _remove_due(self) -> None:
        while self._due:
            now_ms = self._clock.monotonic_ms()
            if self._due[0][0] > now_ms:
                await self._tasks.sleep(min(self._due[0][0] - now_ms, LONGEST_SLEEP_MS))
                continue
            paths: list[str] = []
            while self._due and self._due[0][0] <= now_ms and len(paths) < FILES_PER_JOB:
                paths.append(heappop(self._due)[1])
            with self._work.guarding_all("removal", paths[0]):
                for path, error in await self._workers.run(partial(_remove, self._disk, paths)):
                    if is_of_the_process(error):
                        self._work.failed("removal", path, error)
                        heappush(self._due, (now_ms + RETRY_MS, path))
                    elif not self._fail(path, error):
                        raise error
        self._is_running = False


def _remove(disk: Disk, paths: Sequence[str]) -> list[tuple[str, OSError]]:
    """The paths that could not be removed."""
    failed = []
    for path in paths:
        try:
            disk.remove(path)
        except OSError as error:
            failed.append((path, error))
    return failed
