"""The logs in this broker's log directories: created, flushed, deleted, closed.

Everything that may block for long (opening, flushing, deleting, checkpoint files) runs in an executor on
values that nothing else uses meanwhile; the logs themselves are used on the event loop only. What else is
done with logs has a module of its own, and all of them share one table (:mod:`.log_table`): opening,
directories that fail, damage, moves, checkpoints, producers, bad indexes, look-ups by time. Decides when and
where logs are written, never what they contain.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from pykraft.broker.logs.damaged_logs import DamagedLogs
from pykraft.broker.logs.deleted_files import DeletedFiles
from pykraft.broker.logs.directory_failures import DirectoryFailures
from pykraft.broker.logs.index_rebuilds import IndexRebuilds
from pykraft.broker.logs.log_checkpoints import LogCheckpoints
from pykraft.broker.logs.log_copies import LogCopies
from pykraft.broker.logs.log_dirs import LogDirs, lacks_a_descriptor
from pykraft.broker.logs.log_loading import OpenLog, create_log
from pykraft.broker.logs.log_opening import LogOpening, set_aside_stray
from pykraft.broker.logs.log_table import LogTable, LogUses
from pykraft.broker.logs.log_work import LogWork
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.broker.logs.producers.jobs import ProducerJobs
from pykraft.broker.logs.time_lookups import TimeLookups
from pykraft.kafka_protocol.ids import Uuid
from pykraft.log_store import checkpoint
from pykraft.log_store.flush import FlushJob
from pykraft.log_store.interface import DAMAGE_ERRORS, LogConfig
from pykraft.runtime.clock import Clock
from pykraft.runtime.disk import Disk, DiskUsage
from pykraft.runtime.tasks import FatalHandler, TaskSupervisor, Workers

logger = logging.getLogger(__name__)

DROPPED_PER_TURN = 32
"""How many logs of a failed directory are taken out of use in one turn of the event loop."""


class LogManager:
    """Owns the logs of ``log_dirs``.

    ``logs``, ``offline``, ``unavailable``, ``futures`` and ``wanted_dirs`` are those of the table.
    ``on_damage`` is called for a log that has just been taken out of use, ``on_dir_failure`` when a directory
    has failed.
    """

    def __init__(
        self,
        disk: Disk,
        log_dirs: LogDirs | Sequence[str],
        default_config: LogConfig,
        clock: Clock,
        workers: Workers,
        on_fatal: FatalHandler,
        on_damage: Callable[[TopicPartition], None],
        on_dir_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._disk = disk
        dirs = self.dirs = log_dirs if isinstance(log_dirs, LogDirs) else LogDirs(log_dirs)
        self._clock = clock
        self._workers = workers
        self._on_damage = on_damage
        self._on_dir_failure = on_dir_failure
        table = self.table = LogTable()
        self.logs, self.offline, self.unavailable = table.logs, table.offline, table.unavailable
        self.futures, self.wanted_dirs = table.futures, table.wanted_dirs
        uses = self.uses = LogUses()
        tasks = self._tasks = TaskSupervisor(on_fatal)
        failures = self.failures = DirectoryFailures(dirs, workers, on_fatal, self._dir_failed)
        damaged = self.damaged = DamagedLogs(disk, dirs, table, uses, failures, workers, tasks, on_damage)
        checkpoints = self.checkpoints = LogCheckpoints(dirs, table, failures)
        work = self.work = LogWork(clock, damaged.storage_failed)
        self._deleted_files = DeletedFiles(disk, clock, workers, work, tasks, failures.fail)
        self.producers = ProducerJobs(disk, table, uses, work, workers, tasks)
        self.copies = LogCopies(disk, dirs, table, uses, checkpoints, failures, clock, self._adopt_moved)
        self.index_rebuilds = IndexRebuilds(table, damaged, work, clock, workers, tasks)
        self.time_lookups = TimeLookups(table, self.index_rebuilds, workers)
        self.opening = LogOpening(
            disk, dirs, table, checkpoints, failures, default_config, clock, workers, self._adopt
        )
        #: Called when a log has to be flushed at once, or within ``flush.ms``; and when one was flushed whose
        #: appends waited for that.
        self.on_unflushed: Callable[[OpenLog], None] = lambda opened: None
        self.on_flushed: Callable[[TopicPartition], None] = lambda key: None
        #: The broker epoch of the last orderly stop, None after an unclean one.
        self.previous_broker_epoch: int | None = None

    # -- start and stop --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open all logs, see :meth:`LogOpening.open_all`."""
        self.previous_broker_epoch = await self.opening.open_all()

    async def stop(self, broker_epoch: int, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Flush and close all logs, write the checkpoints, and finally the marker of an orderly stop."""
        await self.producers.stop()
        for key in sorted(self.logs):
            opened = self.logs.get(key)
            if opened is not None and self.dirs.is_online(opened.log_dir):
                await self._close(key, opened)
        for key in sorted(self.offline):
            await self.damaged.set_aside(key)  # or the next start would take it for sound
        for future in list(self.futures.values()):
            await self.copies.leave(future)
        await self.checkpoints.write(high_watermarks)
        for log_dir in self.dirs.online:
            marker = partial(checkpoint.write_clean_shutdown, self._disk, log_dir, broker_epoch)
            await self.failures.guarded(log_dir, marker)
        await self._tasks.close()
        for key in list(self.logs):
            self.table.take_out(key)

    async def _close(self, key: TopicPartition, opened: OpenLog) -> None:
        log = opened.log
        await self.producers.write_last(opened)
        try:
            await self._workers.run(log.close)
        except DAMAGE_ERRORS as error:
            log.abandon()
            if key in self.logs:
                self.damaged.take_offline(opened, error)
        except OSError as error:
            log.abandon()
            if not self.failures.fail(log.directory, error):
                raise

    # -- logs come and go ------------------------------------------------------------------------------

    async def open_or_create(self, wanted: Sequence[tuple[str, int, Uuid, LogConfig]]) -> list[OpenLog]:
        """The logs of these partitions; missing ones are created.

        The log of an earlier topic of the same name, which has another id, is deleted first.
        """
        result: list[OpenLog] = []
        for topic, index, topic_id, config in wanted:
            key = (topic, index)
            existing = self.logs.get(key)
            if existing is not None and existing.topic_id != topic_id:
                await self.delete([key])
                existing = None
            if existing is None:
                existing = await self._create(key, topic_id, config)
                self.offline.pop(key, None)
                self.unavailable.pop(key, None)
                self._adopt(existing)
            existing.log.config = config
            result.append(existing)
        return result

    async def _create(self, key: TopicPartition, topic_id: Uuid, config: LogConfig) -> OpenLog:
        """Create a log in the directory with the fewest logs; in another one if that fails."""
        await self.copies.set_aside_moved(key)
        while True:
            log_dir = self.wanted_dirs.pop(key, "")
            if not self.dirs.is_online(log_dir):
                log_dir = self._emptiest_dir()
            with self.failures.leaving_out(log_dir):
                await self.checkpoints.files[log_dir].forget([key])
                path = f"{log_dir}/{key[0]}-{key[1]}"
                now_ms = self._clock.wall_ms()
                job = partial(create_log, self._disk, log_dir, path, config, topic_id, now_ms)
                created = await self.failures.guarded(path, job)
                if created is not None:
                    return created

    async def delete(self, keys: Iterable[TopicPartition]) -> None:
        """Delete logs. Responses that are being sent keep the files they need."""
        for key, opened in await self._take_out(keys):
            await self.uses.until_unused(key)
            await self.failures.guarded(opened.log.directory, opened.log.delete)

    async def _take_out(self, keys: Iterable[TopicPartition]) -> list[tuple[TopicPartition, OpenLog]]:
        """Take logs out of use before removal, and out of the checkpoints: a start would look for them."""
        taken = [(key, self.table.take_out(key)) for key in keys if key in self.logs]
        for key, _ in taken:
            self.futures.pop(key, None)
            self.wanted_dirs.pop(key, None)
        for log_dir in dict.fromkeys(opened.log_dir for _, opened in taken):
            here = [key for key, opened in taken if opened.log_dir == log_dir]
            await self.checkpoints.forget(log_dir, here)
        return taken

    async def set_aside(self, keys: Iterable[TopicPartition]) -> None:
        """Rename logs that the cluster does not know. They are not deleted: they may be the last copies."""
        for key, opened in await self._take_out(keys):
            await self.uses.until_unused(key)
            logger.warning("%s belongs to no partition of this broker; renamed", opened.log.directory)
            await self.failures.guarded(opened.log.directory, partial(set_aside_stray, self._disk, opened))

    async def usage(self, log_dir: str) -> DiskUsage:
        """The usage of a directory's volume. :class:`OSError`, which is not final, if it cannot be read."""
        return await self._workers.run(partial(self._disk.usage, log_dir))

    def _emptiest_dir(self) -> str:
        copies = Counter(future.log_dir for future in self.futures.values())  # one a directory at a time
        return min(self.dirs.for_new_logs, key=lambda it: len(self.table.logs_in(it)) + copies[it])

    # -- failed directories ----------------------------------------------------------------------------

    def _dir_failed(self, log_dir: str) -> None:
        self._tasks.start(self._drop_logs_of(log_dir), "failed-log-directory")
        self._on_dir_failure()

    async def _drop_logs_of(self, log_dir: str) -> None:
        """Take the logs of a failed directory out of use. Until its turn has come each fails by itself."""
        here = [key for key, opened in sorted(self.logs.items()) if opened.log_dir == log_dir]
        for number, key in enumerate([*here, *self.table.damaged_in(log_dir)], start=1):
            opened, damaged = self.logs.get(key), self.offline.get(key)
            if opened is not None and opened.log_dir == log_dir:
                self.table.take_out(key)
                self.unavailable[key] = (opened.topic_id, log_dir)
                self._on_damage(key)
            elif damaged is not None and damaged.log_dir == log_dir and not damaged.is_set_aside:
                # The next start finds the damage again: the log that it is about must be there.
                del self.offline[key]
                if damaged.topic_id is not None:
                    self.unavailable[key] = (damaged.topic_id, log_dir)
            if number % DROPPED_PER_TURN == 0:
                await asyncio.sleep(0)

    # -- durability ------------------------------------------------------------------------------------

    async def flush(self, key: TopicPartition) -> None:
        """Make the current contents of a log durable, while it keeps growing."""
        opened = self.logs.get(key)
        if opened is None or key in self.uses.flushing:
            return
        with self.uses.using(self.uses.flushing, key):
            try:
                job: FlushJob = opened.log.prepare_flush()
                await self._workers.run(job.run)
            except DAMAGE_ERRORS as error:
                self.damaged.report(opened.log, error)
                return
            except OSError as error:
                if lacks_a_descriptor(error) or not self.failures.fail(opened.log.directory, error):
                    raise
                return
            was_due = opened.log.is_flush_due
            opened.log.complete_flush(job)
        if was_due and self.table.is_in_use(opened):
            self.on_flushed(key)

    def is_usable(self, opened: OpenLog) -> bool:
        """Whether a log is in use, and its directory has not failed."""
        return self.table.is_in_use(opened) and self.dirs.is_online(opened.log_dir)

    async def flush_up_to(self, opened: OpenLog, offset: int) -> None:
        """Make a log durable up to ``offset``, by a flush that begins now or later, while it is usable."""
        key, log = opened.topic_partition, opened.log
        while self.is_usable(opened) and log.recovery_point < min(offset, log.log_end_offset):
            if key in self.uses.flushing:
                await self.uses.until_not_flushed(key)
            else:
                await self.flush(key)

    def _adopt(self, opened: OpenLog) -> None:
        """Take a log into use. Before it is truncated, its entries in the checkpoints are lowered."""
        log = opened.log
        self.table.put(opened)
        stored = min(self.checkpoints.cleaned_offset(opened) or 0, log.log_end_offset)
        log.cleaned_end_offset = max(log.cleaned_end_offset, stored)
        self.producers.adopt(opened)
        log.before_truncation = partial(self._before_truncation, opened)
        log.on_bad_index = partial(self.index_rebuilds.start, opened)
        log.on_unflushed = lambda: self.on_unflushed(opened)
        log.on_deleted = lambda paths: self.remove_later(paths, log.config.file_delete_delay_ms)

    def _adopt_moved(self, opened: OpenLog) -> None:
        self._adopt(opened)
        self.producers.rolled(opened, opened.log.log_end_offset)

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove the renamed files of a deleted segment after a delay."""
        self._deleted_files.add(paths, delay_ms)

    def _before_truncation(self, opened: OpenLog, end_offset: int) -> None:
        self.producers.truncated(opened, end_offset)
        future = self.futures.get(opened.topic_partition)
        if future is not None:
            future.note_truncation(end_offset)
        if self.table.is_in_use(opened):
            self.checkpoints.files[opened.log_dir].lower(opened.topic_partition, end_offset)
