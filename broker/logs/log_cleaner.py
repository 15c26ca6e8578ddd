"""Compacts the logs of one broker: the dirtiest first, beside everything else.

Looks for work every ``log.cleaner.backoff.ms``, as Kafka does. A round runs in worker threads, one short step
at a time: Python code in a thread holds up the event loop as long as it runs, so no step takes longer than a
turn of the loop may, and between two steps the loop has at least as much time. Whatever concerns files of the
log itself happens on the loop, between two steps: the round of a log that was truncated, deleted or taken
offline meanwhile ends there.

A log that cannot be compacted, for whatever reason, is left alone until the next start, and logged once. It
keeps growing and costs no other log anything; where it is damaged, it is repaired as damage is. A log for
which the disk had no room, or the process no descriptor, is tried again later. (Apache Kafka takes the whole
directory offline when the cleaner finds its disk full.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from math import inf

from pykraft.broker.config import CleanerConfig
from pykraft.broker.logs.log_dirs import is_of_the_process, is_out_of_space
from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.broker.logs.producers.rebuild import remembered_offsets
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store.compaction.candidates import Cleanable
from pykraft.log_store.compaction.cleaned_segment import SegmentTooLargeError
from pykraft.log_store.compaction.cleaning import CleaningRound, Replacement, Step
from pykraft.log_store.compaction.offset_map import OffsetMap
from pykraft.log_store.compaction.record_filter import ActiveProducers
from pykraft.log_store.interface import DAMAGE_ERRORS, CorruptLogError
from pykraft.runtime.clock import Clock
from pykraft.runtime.tasks import TaskSupervisor, Workers

logger = logging.getLogger(__name__)

STEP_RECORDS = 2000
"""In one step: some milliseconds."""
MIN_BACKOFF_MS = 100
LOGS_PER_TURN = 200
PAUSE_MS = 300_000
"""How long a log is left alone for want of room on the disk, or of a descriptor: some may be free then."""
LONGEST_BACKOFF_MS = 15_000
"""A longer one is looked at again so often."""
LONGEST_PAUSE_MS = 200
"""A round that waits for the throttle looks so often whether its log is still there."""


class LogCleaner:
    """``last_stable_offset``: of the replica that has a log, None if none has; nothing from there on is
    compacted, since it is not known yet what of it counts. ``config``: the settings as of now.
    """

    def __init__(
        self,
        logs: LogManager,
        last_stable_offset: Callable[[OpenLog], int | None],
        config: Callable[[], CleanerConfig],
        clock: Clock,
        workers: Workers,
        tasks: TaskSupervisor,
    ) -> None:
        self._logs = logs
        self._last_stable_offset = last_stable_offset
        self._config = config
        self._clock = clock
        self._workers = workers
        self._tasks = tasks
        #: The logs that are left alone, and until when.
        self._left_alone: dict[TopicPartition, tuple[OpenLog, float]] = {}
        #: What was read and written beyond what the throttle has let pass, up to a moment.
        self._throttled_bytes = 0.0
        self._throttled_at_ms = 0

    async def run(self) -> None:
        """Compact forever."""
        while True:
            if not await self.clean_dirtiest():
                await self._back_off()

    async def _back_off(self) -> None:
        """Wait as long as the settings say, which may change meanwhile."""
        began_ms = self._clock.monotonic_ms()
        passed_ms = 0
        while (left_ms := max(MIN_BACKOFF_MS, self._config().backoff_ms) - passed_ms) > 0:
            await self._tasks.sleep(min(left_ms, LONGEST_BACKOFF_MS))
            passed_ms = self._clock.monotonic_ms() - began_ms

    async def clean_dirtiest(self) -> bool:
        """One round for each of the dirtiest logs, as many as there are threads; whether there was any."""
        config = self._config()
        chosen = (await self._find_due())[: config.threads]
        rounds = [
            self._tasks.start(self._clean(opened, cleanable, config), "log-cleaner")
            for _, opened, cleanable in chosen
        ]
        return any([await one for one in rounds])

    # -- which logs ------------------------------------------------------------------------------------

    async def _find_due(self) -> list[tuple[float, OpenLog, Cleanable]]:
        """The logs that are worth a round, the dirtiest first."""
        due: list[tuple[float, OpenLog, Cleanable]] = []
        for index, opened in enumerate(list(self._logs.logs.values()), start=1):
            with self._guarding(opened):
                if opened.log.has_cleanable_segments and self._may_clean(opened):
                    cleanable = await self._find_cleanable(opened)
                    if cleanable is not None and cleanable.is_due(opened.log.config):
                        due.append((-cleanable.dirty_ratio, opened, cleanable))
            if index % LOGS_PER_TURN == 0:
                await self._tasks.sleep(0)
        due.sort(key=lambda one: (one[0], one[1].topic_partition))
        return due

    def _guarding(self, opened: OpenLog) -> AbstractContextManager[None]:
        return self._logs.work.guarding("compaction", opened.log, partial(self._leave_alone, opened))

    def _may_clean(self, opened: OpenLog) -> bool:
        left_alone, until_ms = self._left_alone.get(opened.topic_partition, (None, 0))
        is_left_alone = left_alone is opened and self._clock.monotonic_ms() < until_ms
        return self._logs.table.may_clean(opened) and not is_left_alone and not opened.producers.is_behind

    async def _find_cleanable(self, opened: OpenLog) -> Cleanable | None:
        """Find the segments to compact, once the log is flushed as far as that."""
        log, limit_offset = opened.log, self._last_stable_offset(opened)
        if limit_offset is None:
            return None
        dirty_end = min(limit_offset, log.segment_base_offsets[-1])
        if dirty_end <= (self._logs.checkpoints.cleaned_offset(opened) or 0):
            return None
        if log.recovery_point < dirty_end:
            await self._logs.flush(opened.topic_partition)
        if not self._logs.table.may_clean(opened):
            return None
        cleaned, now_ms = self._logs.checkpoints.cleaned_offset(opened), self._clock.wall_ms()
        return log.find_cleanable(cleaned, limit_offset=limit_offset, now_ms=now_ms)

    # -- one round -------------------------------------------------------------------------------------

    async def _clean(self, opened: OpenLog, cleanable: Cleanable, config: CleanerConfig) -> bool:
        """One round; whether it advanced."""
        with self._guarding(opened):
            return self._may_clean(opened) and await self._clean_once(opened, cleanable, config)
        return False

    async def _clean_once(self, opened: OpenLog, cleanable: Cleanable, config: CleanerConfig) -> bool:
        log = opened.log
        cleaning = log.begin_cleaning(
            cleanable,
            producers=ActiveProducers(rest=remembered_offsets(opened.producers.items())),
            newest=OffsetMap(config.dedupe_buffer_bytes // max(1, config.threads), config.load_factor),
            now_ms=self._clock.wall_ms(),
        )
        size_before, cuts = log.size_bytes, log.truncation_count
        is_complete = False
        uses = self._logs.uses
        with uses.using(uses.cleaning, opened.topic_partition):
            try:
                is_complete = await self._run(opened, cleaning, config)
            except DAMAGE_ERRORS as error:
                path = error.path if isinstance(error, CorruptLogError) else str(error.filename)
                if log.truncation_count == cuts and log.has_file(path):
                    self._logs.damaged.report(log, error)
            except (OSError, ProtocolError, SegmentTooLargeError) as error:
                self._refuse(opened, error)
            finally:
                await self._discard(opened, cleaning)
            if is_complete:
                await self._logs.checkpoints.store_cleaned_offset(opened, cleaning.end_offset, cuts)
        if is_complete:
            sizes = f"{size_before} bytes are {log.size_bytes}"
            logger.info("%s is compacted up to offset %d: %s", log.name, cleaning.end_offset, sizes)
        return is_complete and cleaning.end_offset > cleanable.first_dirty_offset

    async def _discard(self, opened: OpenLog, cleaning: CleaningRound) -> None:
        try:
            await self._workers.run(cleaning.discard)
        except OSError as error:
            self._logs.damaged.storage_failed(opened.log, error)

    async def _run(self, opened: OpenLog, cleaning: CleaningRound, config: CleanerConfig) -> bool:
        """All steps of a round; False if it had to end before."""
        steps, io_bytes = cleaning.steps(), max(1, config.io_buffer_bytes // max(1, config.threads))
        cuts = opened.log.truncation_count
        while True:
            began_ms = self._clock.monotonic_ms()
            done = await self._workers.run(partial(_advance, steps, io_bytes))
            took_ms = self._clock.monotonic_ms() - began_ms
            if not self._logs.table.may_clean(opened) or opened.log.truncation_count != cuts:
                return False
            if done.replacement is not None and not await self._replace(opened, done.replacement):
                return False
            if done.is_last:
                return True
            await self._pause(opened, done.io_bytes, took_ms)

    async def _replace(self, opened: OpenLog, replacement: Replacement) -> bool:
        """Put a compacted segment in place, durably; False if the log no longer has what it replaces."""
        log = opened.log
        try:
            if not log.replace_segments(replacement):
                return False
            await self._workers.run(partial(log.disk.flush_dir, log.directory))
        except OSError as error:
            self._logs.damaged.storage_failed(log, error)
            raise
        return True

    async def _pause(self, opened: OpenLog, io_bytes: int, took_ms: int) -> None:
        """Leave the event loop as much time as the step took, and more if the throttle says so."""
        until_ms = self._clock.monotonic_ms() + took_ms
        self._throttled_ms()
        self._throttled_bytes += io_bytes
        while self._logs.table.may_clean(opened):
            left_ms = max(until_ms - self._clock.monotonic_ms(), self._throttled_ms())
            if left_ms <= 0:
                return
            await self._tasks.sleep(min(left_ms, LONGEST_PAUSE_MS))

    def _throttled_ms(self) -> int:
        """For how long no thread may read or write more, if the throttle stays as it is now."""
        now_ms, rate = self._clock.monotonic_ms(), max(1.0, self._config().max_io_bytes_per_second)
        passed_ms = now_ms - self._throttled_at_ms
        self._throttled_bytes = max(0.0, self._throttled_bytes - rate * passed_ms / 1000)
        self._throttled_at_ms = now_ms
        return int(self._throttled_bytes * 1000 / rate)

    def _refuse(self, opened: OpenLog, error: Exception) -> None:
        """A log cannot be compacted as it is, or now. An error of the process is raised."""
        if is_of_the_process(error):
            raise error
        if _may_pass(error):
            logger.error("%s cannot be compacted now and is tried again later: %s", opened.log.name, error)
        else:
            logger.error("%s cannot be compacted and is left as it is: %s", opened.log.name, error)
        self._leave_alone(opened, error)

    def _leave_alone(self, opened: OpenLog, error: Exception) -> None:
        until_ms = self._clock.monotonic_ms() + PAUSE_MS if _may_pass(error) else inf
        self._left_alone = {
            key: one for key, one in self._left_alone.items() if self._logs.table.is_in_use(one[0])
        }
        self._left_alone[opened.topic_partition] = (opened, until_ms)

    def uncleanable(self, log_dir: str) -> int:
        """How many logs of a directory are left alone."""
        now_ms = self._clock.monotonic_ms()
        return sum(
            opened.log_dir == log_dir and now_ms < until_ms and self._logs.table.is_in_use(opened)
            for opened, until_ms in self._left_alone.values()
        )


@dataclass(frozen=True, slots=True)
class _Done:
    """A job's result in a worker: bytes read and written, and perhaps a finished segment."""

    io_bytes: int
    replacement: Replacement | None = None
    is_last: bool = False


def _may_pass(error: Exception) -> bool:
    return isinstance(error, OSError) and (is_out_of_space(error) or is_of_the_process(error))


def _advance(steps: Iterator[Step | Replacement], max_io_bytes: int) -> _Done:
    """Some steps of a round: until a segment is finished, or enough is done. Blocks."""
    io_bytes = records = 0
    for step in steps:
        if isinstance(step, Replacement):
            return _Done(io_bytes, step)
        io_bytes += step.io_bytes
        records += step.records
        if records >= STEP_RECORDS or io_bytes >= max_io_bytes:
            return _Done(io_bytes)
    return _Done(io_bytes, is_last=True)
