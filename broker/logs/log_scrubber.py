"""Scrubs the logs: reads all of them slowly, again and again, and checks that no batch has changed.

Consumers are sent file ranges that the broker does not look into, so a leader would not notice by itself that
its disk has rotted. The scrubber reads in the executor, at most ``bytes_per_second``, through a descriptor of
its own. Decides what is checked when; the log manager takes a damaged log offline.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.log_store.interface import DAMAGE_ERRORS, LogSlice
from pykraft.log_store.reader import read_checked
from pykraft.log_store.scrub import STEP_BYTES
from pykraft.runtime.clock import Clock
from pykraft.runtime.disk import Disk
from pykraft.runtime.network.file_slices import FileSlice
from pykraft.runtime.tasks import TaskSupervisor, Workers

PASS_INTERVAL_MS = 3_600_000
"""The least time between the starts of two passes over all logs: small logs need not be read all day."""


class LogScrubber:
    """Scrubs the logs of one broker, and checks ranges that a follower refused or that could not be sent."""

    def __init__(
        self, logs: LogManager, clock: Clock, workers: Workers, tasks: TaskSupervisor, bytes_per_second: int
    ) -> None:
        self._logs = logs
        self._workers = workers
        self._clock = clock
        self._tasks = tasks
        self._bytes_per_second = bytes_per_second
        self._being_checked: set[TopicPartition] = set()
        """One check each: readers may ask for many."""

    async def run(self) -> None:
        """Scrub forever. Needs a positive ``bytes_per_second``."""
        while True:
            began_ms = self._clock.monotonic_ms()
            await self.scrub_all()
            await self._tasks.sleep(max(1, began_ms + PASS_INTERVAL_MS - self._clock.monotonic_ms()))

    async def scrub_all(self) -> None:
        """One pass over all logs."""
        for key in sorted(self._logs.logs):
            opened = self._logs.logs.get(key)
            if opened is not None:
                await self._scrub_log(key, opened)

    async def _scrub_log(self, key: TopicPartition, opened: OpenLog) -> None:
        with self._logs.work.guarding("scrub", opened.log):
            await self._scrub_segments(key, opened)

    async def _scrub_segments(self, key: TopicPartition, opened: OpenLog) -> None:
        log, cuts = opened.log, opened.log.rewrite_count
        for base_offset in log.segment_base_offsets:
            scrub = log.scrub_segment(base_offset)
            while scrub is not None and not scrub.is_done:
                if not await self._is_sound(opened, cuts, scrub.step):
                    return
                await self._tasks.sleep(max(1, scrub.step_bytes * 1000 // self._bytes_per_second))
                if log.rewrite_count != cuts or self._logs.logs.get(key) is not opened:
                    return  # left to the next pass
            if scrub is not None and (scrub.has_bad_index or scrub.has_bad_transactions):
                log.doubt_indexes(base_offset, transactions=scrub.has_bad_transactions)

    async def check_slice(self, key: TopicPartition, piece: LogSlice) -> None:
        """Check records that a follower or a reader may have found damaged."""
        opened = self._logs.logs.get(key)
        if opened is None or key in self._being_checked:
            return
        self._being_checked.add(key)
        try:
            with self._logs.work.guarding("scrub", opened.log):
                look = partial(read_checked, piece, opened.log.epoch_cache.entries)
                await self._is_sound(opened, opened.log.rewrite_count, look)
        finally:
            self._being_checked.remove(key)

    async def check_unsent(self, piece: FileSlice) -> None:
        """Check a file range that could not be sent to a client.

        It is read through a new descriptor: the range may belong to a log that has since been replaced by
        another.
        """
        path = piece.file.path
        opened = self._logs.table.find_file(path)
        if opened is not None:
            look = partial(_read_through, opened.log.disk, path, piece.position, piece.size_bytes)
            with self._logs.work.guarding("scrub", opened.log):
                await self._is_sound(opened, opened.log.rewrite_count, look)

    async def _is_sound(self, opened: OpenLog, cuts: int, look: Callable[[], object]) -> bool:
        """Run ``look``; damage counts unless the log was truncated, compacted or put out of use meanwhile."""
        try:
            await self._workers.run(look)
        except DAMAGE_ERRORS as error:
            if opened.log.is_damage(error, cuts):
                self._logs.damaged.report(opened.log, error)
            return False
        return True


def _read_through(disk: Disk, path: str, position: int, size_bytes: int) -> None:
    """Read all of a file range; raises the error of a damaged disk. Blocks."""
    file = disk.open(path, create=False)
    try:
        for at in range(position, position + size_bytes, STEP_BYTES):
            file.pread(at, min(STEP_BYTES, position + size_bytes - at))
    finally:
        file.close()
