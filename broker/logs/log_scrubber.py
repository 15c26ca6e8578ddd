"""Looks for rot: reads every log again and again, slowly, and checks that each batch is as it was written.

A consumer is sent file ranges that nobody looks into, so a leader would not find out by itself that its
disk has rotted. What is read here is read in the executor, ``bytes_per_second`` at most, through a
descriptor of its own. Decides when to look at what; a log that is found damaged is the log manager's to
report.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.log_store.interface import DAMAGE_ERRORS, CorruptLogError, LogSlice
from pykraft.log_store.log import Log
from pykraft.log_store.reader import read_checked
from pykraft.log_store.scrub import STEP_BYTES
from pykraft.runtime.clock import Clock
from pykraft.runtime.disk import Disk
from pykraft.runtime.streams import FileSlice
from pykraft.runtime.tasks import TaskSupervisor, Workers

PASS_INTERVAL_MS = 3_600_000
"""A pass over all logs does not begin sooner after the one before: what is small need not be read all day."""


class LogScrubber:
    """The scrub of one broker, and the look at what a follower could not use or nobody could be sent."""

    def __init__(
        self, logs: LogManager, clock: Clock, workers: Workers, tasks: TaskSupervisor, bytes_per_second: int
    ) -> None:
        self._logs = logs
        self._workers = workers
        self._clock = clock
        self._tasks = tasks
        self._bytes_per_second = bytes_per_second

    async def run(self) -> None:
        """For ever; only to be run with a rate."""
        while True:
            began_ms = self._clock.monotonic_ms()
            await self.scrub_all()
            await self._tasks.sleep(max(1, began_ms + PASS_INTERVAL_MS - self._clock.monotonic_ms()))

    async def scrub_all(self) -> None:
        """One pass over every log there is."""
        for key in sorted(self._logs.logs):
            opened = self._logs.logs.get(key)
            if opened is not None:
                await self._scrub_log(key, opened)

    async def _scrub_log(self, key: TopicPartition, opened: OpenLog) -> None:
        log, cuts = opened.log, opened.log.truncation_count
        for base_offset in log.segment_base_offsets:
            scrub = log.scrub_segment(base_offset)
            while scrub is not None and not scrub.is_done:
                if not await self._is_sound(opened, cuts, scrub.step):
                    return
                await self._tasks.sleep(max(1, scrub.step_bytes * 1000 // self._bytes_per_second))
                if log.truncation_count != cuts or self._logs.logs.get(key) is not opened:
                    return  # the next pass sees it as it is then

    async def check_slice(self, key: TopicPartition, piece: LogSlice) -> None:
        """Look at what a follower asks for again, as if it had not been able to use it."""
        opened = self._logs.logs.get(key)
        if opened is not None:
            await self._is_sound(opened, opened.log.truncation_count, partial(read_checked, piece))

    async def check_unsent(self, piece: FileSlice) -> None:
        """Look at what a client could not be sent.

        Through a descriptor of its own: what was promised may be of a log that another has taken the place
        of since.
        """
        path = piece.file.path
        opened = self._logs.find_file(path)
        if opened is not None:
            look = partial(_read_through, opened.log.disk, path, piece.position, piece.size_bytes)
            await self._is_sound(opened, opened.log.truncation_count, look)

    async def _is_sound(self, opened: OpenLog, cuts: int, look: Callable[[], object]) -> bool:
        """Run ``look``; what it finds counts unless the log was cut meanwhile, or is not used any more."""
        try:
            await self._workers.run(look)
        except DAMAGE_ERRORS as error:
            if _is_as_before(opened.log, cuts, error):
                self._logs.report_damage(opened.log, error)
            return False
        return True


def _read_through(disk: Disk, path: str, position: int, size_bytes: int) -> None:
    """Blocks."""
    file = disk.open(path, create=False)
    try:
        for at in range(position, position + size_bytes, STEP_BYTES):
            file.pread(at, min(STEP_BYTES, position + size_bytes - at))
    finally:
        file.close()


def _is_as_before(log: Log, cuts: int, error: CorruptLogError | OSError) -> bool:
    """Whether the file in which something was found is still a part of the log, and was all the time."""
    path = error.path if isinstance(error, CorruptLogError) else str(error.filename)
    return log.truncation_count == cuts and log.has_file(path)
