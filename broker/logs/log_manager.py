"""The logs in this broker's log directories: opened, flushed, trimmed, checkpointed, moved, deleted.

Everything that may block for long (opening, flushing, deleting, checkpoint files) runs in an executor on
values that nothing else uses meanwhile; the logs themselves are used on the event loop only. An error of a
log is final. An error that concerns only that log (``DAMAGE_ERRORS``) takes it offline; any other takes all
logs of its directory out of use until the next start, because the data of a failed flush may be lost even if
a later one succeeds (:mod:`.log_dirs`). If the broker cannot do without that directory, or the error is not
one of the disk, the node halts (``on_fatal``). Decides when and where logs are written, never what they
contain.

It is long because logs are flushed, cut, moved, deleted and set aside while others still use them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from pykraft.broker.logs import offline_logs
from pykraft.broker.logs.checkpoint_files import CheckpointFiles
from pykraft.broker.logs.deleted_files import DeletedFiles
from pykraft.broker.logs.future_log import FutureLog
from pykraft.broker.logs.log_dirs import LogDirs
from pykraft.broker.logs.log_loading import LoadedDir, OpenLog, create_log, load_dir
from pykraft.broker.logs.offline_logs import OfflineLog, TopicPartition
from pykraft.broker.logs.producer_snapshots import SnapshotWriter, rebuild_producers
from pykraft.broker.logs.producer_state import ProducerEntry
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.log_store import checkpoint
from pykraft.log_store.interface import DAMAGE_ERRORS, STORAGE_ERRORS, TimestampOffset
from pykraft.log_store.log import (
    CorruptLogError,
    FlushJob,
    Log,
    LogConfig,
    rename_directory,
    renamed_directory,
)
from pykraft.log_store.segment import BadIndexError, Segment
from pykraft.runtime.clock import Clock
from pykraft.runtime.disk import Disk, DiskUsage
from pykraft.runtime.tasks import FatalHandler, TaskSupervisor, Workers

logger = logging.getLogger(__name__)

STRAY_SUFFIX = "-stray"
DROPPED_PER_TURN = 32
"""How many logs of a failed directory are taken out of use in one turn of the event loop."""
T = TypeVar("T")


class LogManager:
    """Owns the logs of ``log_dirs``.

    ``logs`` maps (topic, partition) to the open logs, ``offline`` to the damaged ones that have not been
    replaced, ``unavailable`` to the topic id and the directory of those in failed directories. ``on_damage``
    is called for a log that has just been taken out of use, ``on_dir_failure`` when a directory has failed.
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
        self.dirs = log_dirs if isinstance(log_dirs, LogDirs) else LogDirs(log_dirs)
        self._default_config = default_config
        self._clock = clock
        self._workers = workers
        self._on_fatal = on_fatal
        self._on_damage = on_damage
        self._on_dir_failure = on_dir_failure
        self.logs: dict[TopicPartition, OpenLog] = {}
        self.offline: dict[TopicPartition, OfflineLog] = {}
        self.unavailable: dict[TopicPartition, tuple[Uuid, str]] = {}
        #: Logs that were found in several directories, until :meth:`settle_copies`.
        self._copies: dict[TopicPartition, list[OpenLog]] = {}
        #: The copies of logs that are being moved (:mod:`pykraft.broker.replicas.log_moves`), and the
        #: directories that logs are to be moved to, or created in.
        self.futures: dict[TopicPartition, FutureLog] = {}
        self.wanted_dirs: dict[TopicPartition, str] = {}
        self._checkpoints: dict[str, CheckpointFiles] = {}
        self._flushing: set[TopicPartition] = set()
        #: The logs that a round of compaction reads.
        self._cleaning: set[TopicPartition] = set()
        #: Set when a log may no longer be in use.
        self._released = asyncio.Event()
        self._setting_aside: dict[TopicPartition, asyncio.Task[None]] = {}
        #: Producer snapshots to be written: the offset and the producers of each.
        self._snapshots: dict[TopicPartition, tuple[int, dict[int, ProducerEntry]]] = {}
        self._snapshot_task: asyncio.Task[None] | None = None
        self._tasks = TaskSupervisor(on_fatal)
        self._deleted_files = DeletedFiles(disk, clock, workers, self._tasks, self._fail)
        #: The log whose snapshot is being written: its directory must not be renamed.
        self._snapshot_key: TopicPartition | None = None
        self._looking_up = asyncio.Lock()
        #: The segments whose indexes are being built again.
        self._rebuilding: set[Segment] = set()
        #: Called when reads of a partition that met a bad index can be repeated.
        self.on_index_rebuilt: Callable[[TopicPartition], None] = lambda key: None
        #: The broker epoch of the last orderly stop, None after an unclean one.
        self.previous_broker_epoch: int | None = None

    # -- start and stop --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open all logs, the directories at the same time. Damaged ones are set aside, see ``offline``.

        Directories that fail are left out.
        """
        log_dirs = self.dirs.online
        if len(log_dirs) == 1:
            found = [await self._load(log_dirs[0])]
        else:
            found = await asyncio.gather(*map(self._load, log_dirs))
        epochs: set[int | None] = set()
        for log_dir, loaded in zip(log_dirs, found, strict=True):
            if loaded is None:
                continue
            epochs.add(loaded.broker_epoch)
            logs, damaged = partial(self._logs_in, log_dir), partial(self._damaged_in, log_dir)
            self._checkpoints[log_dir] = CheckpointFiles(
                self._disk, log_dir, loaded.stored, logs, damaged, self._workers, self._fail
            )
            for opened in loaded.logs:
                other = self.logs.get(opened.topic_partition)
                if other is None:
                    self._adopt(opened)
                else:
                    self._copies.setdefault(opened.topic_partition, [other]).append(opened)
            self.offline.update(loaded.offline)
            self.wanted_dirs.update(dict.fromkeys(loaded.moves, log_dir))
        for key in self.offline.keys() & self.logs.keys():
            del self.offline[key]  # the replica has started over
        if len(epochs) == 1 and not self.dirs.offline:
            self.previous_broker_epoch = epochs.pop()

    async def _load(self, log_dir: str) -> LoadedDir | None:
        job = partial(load_dir, self._disk, log_dir, self._default_config, self._clock.wall_ms())
        loaded = await self._guarded(log_dir, job)
        if loaded is None:
            return None
        try:
            await self.run_together([opened.log.flush_recovered for opened in loaded.logs])
        except OSError as error:
            if not self._fail(log_dir, error):
                raise
            return None
        return loaded

    async def settle_copies(self, is_assigned: Callable[[OpenLog], tuple[bool, bool]]) -> None:
        """Keep one of several logs of a partition, and set the others aside; call it before logs are used.

        There are several if a directory comes back that had failed, and the replica had started over in
        another one meanwhile; or if a process died when a log had just been moved. ``is_assigned``: whether
        the controller knows this topic id, and the replica in this directory. If it knows no directory, the
        replica has not been in sync since: the latest log has most to keep.
        """
        for key, copies in sorted(self._copies.items()):
            copies = [it for it in copies if self.dirs.is_online(it.log_dir)]
            del self._copies[key]
            if not copies:
                continue
            kept = max(copies, key=lambda it: (*is_assigned(it), it.log.latest_epoch, it.log.log_end_offset))
            self._adopt(kept)
            for other in copies:
                if other is not kept:
                    if other.topic_id == kept.topic_id:
                        # a log that had just been moved: its new directory may not yet know its start
                        start = min(other.log.log_start_offset, kept.log.log_end_offset)
                        kept.log.advance_log_start(start)
                    logger.warning("%s is out of date: %s is used", other.log.directory, kept.log.directory)
                    await self._guarded(other.log.directory, partial(_set_aside, self._disk, other))

    async def run_together(self, jobs: Sequence[Callable[[], None]]) -> None:
        """Run jobs in as many threads as there are: flushes of many files share the disk's own work."""
        await asyncio.gather(*(self._workers.run(job) for job in jobs))

    async def stop(self, broker_epoch: int, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Flush and close all logs, write the checkpoints, and finally the marker of an orderly stop."""
        if self._snapshot_task is not None:
            await self._snapshot_task
        for key in sorted(self.logs):
            opened = self.logs.get(key)
            if opened is not None and self.dirs.is_online(opened.log_dir):
                await self._close(key, opened)
        for key in sorted(self.offline):
            await self.set_aside_damaged(key)  # or the next start would take it for sound
        for future in self.futures.values():
            future.log.abandon()
        await self.write_checkpoints(high_watermarks)
        for log_dir in self.dirs.online:
            marker = partial(checkpoint.write_clean_shutdown, self._disk, log_dir, broker_epoch)
            await self._guarded(log_dir, marker)
        await self._tasks.close()
        self.logs.clear()

    async def _close(self, key: TopicPartition, opened: OpenLog) -> None:
        log, producers = opened.log, opened.producers
        if log.log_end_offset > log.log_start_offset and not producers.is_behind:
            await self._write_snapshot(key, opened, log.log_end_offset, producers.capture())
        try:
            await self._workers.run(log.close)
        except DAMAGE_ERRORS as error:
            log.abandon()
            if key in self.logs:
                self._take_offline(opened, error)
            await self.set_aside_damaged(key)
        except OSError as error:
            log.abandon()
            if not self._fail(log.directory, error):
                raise

    # -- failed directories ----------------------------------------------------------------------------

    def _fail(self, what: str, error: OSError) -> bool:
        """An error at the path ``what`` that is not one log's: whether the broker goes on without the
        directory. Otherwise it halts.
        """
        log_dir = self.dirs.containing(what)
        if log_dir is not None and log_dir in self.dirs.offline:
            return True
        if log_dir is None or not self.dirs.can_go_on_without(log_dir, error):
            logger.critical("%s: %s", what, error)
            self._on_fatal(error)
            return False
        self.dirs.fail(log_dir, str(error))
        logger.error(
            "log directory %s has failed (%s at %s): its replicas are offline until this broker starts again"
            " with a directory that works",
            *(log_dir, error, what),
        )
        self._tasks.start(self._drop_logs_of(log_dir), "failed-log-directory")
        self._on_dir_failure()
        return True

    async def _drop_logs_of(self, log_dir: str) -> None:
        """Take the logs of a failed directory out of use. Until its turn has come each fails by itself."""
        here = [key for key, opened in sorted(self.logs.items()) if opened.log_dir == log_dir]
        for number, key in enumerate([*here, *self._damaged_in(log_dir)], start=1):
            opened, damaged = self.logs.get(key), self.offline.get(key)
            if opened is not None and opened.log_dir == log_dir:
                del self.logs[key]
                self._snapshots.pop(key, None)
                self.unavailable[key] = (opened.topic_id, log_dir)
                self._on_damage(key)
            elif damaged is not None and damaged.log_dir == log_dir and not damaged.is_set_aside:
                # The next start finds the damage again: the log that it is about must be there.
                del self.offline[key]
                if damaged.topic_id is not None:
                    self.unavailable[key] = (damaged.topic_id, log_dir)
            if number % DROPPED_PER_TURN == 0:
                await self.pause()

    async def _guarded(self, what: str, job: Callable[[], T]) -> T | None:
        """Run ``job`` on files at the path ``what``; None if their directory fails, or has failed."""
        if self.dirs.containing(what) in self.dirs.offline:
            return None
        try:
            return await self._workers.run(job)
        except OSError as error:
            if not self._fail(what, error):
                raise
            return None

    @contextmanager
    def _leaving_out(self, log_dir: str) -> Iterator[None]:
        """Go on after the block if the directory, whose checkpoint files it writes, fails in it."""
        try:
            yield
        except OSError:
            if self.dirs.is_online(log_dir):
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
        while True:
            log_dir = self.wanted_dirs.pop(key, "")
            if not self.dirs.is_online(log_dir):
                log_dir = self._emptiest_dir()
            with self._leaving_out(log_dir):
                await self._checkpoints[log_dir].forget([key])
                path = f"{log_dir}/{key[0]}-{key[1]}"
                now_ms = self._clock.wall_ms()
                job = partial(create_log, self._disk, log_dir, path, config, topic_id, now_ms)
                created = await self._guarded(path, job)
                if created is not None:
                    return created

    async def delete(self, keys: Iterable[TopicPartition]) -> None:
        """Delete logs. Responses that are being sent keep the files they need."""
        for key, opened in await self._take_out(keys):
            await self._until_unused(key)
            await self._guarded(opened.log.directory, opened.log.delete)

    async def _take_out(self, keys: Iterable[TopicPartition]) -> list[tuple[TopicPartition, OpenLog]]:
        """Take logs out of use before removal, and out of the checkpoints: a start would look for them."""
        taken = [(key, self.logs.pop(key)) for key in keys if key in self.logs]
        for key, _ in taken:
            self._snapshots.pop(key, None)  # a log of the same name may follow
            self.futures.pop(key, None)
            self.wanted_dirs.pop(key, None)
        for log_dir in dict.fromkeys(opened.log_dir for _, opened in taken):
            here = [key for key, opened in taken if opened.log_dir == log_dir]
            with self._leaving_out(log_dir):
                await self._checkpoints[log_dir].forget(here)
        return taken

    async def _until_unused(self, key: TopicPartition) -> None:
        """Wait until neither a flush, a snapshot nor a compaction of the log is under way."""
        while key in self._flushing or key in self._cleaning or key == self._snapshot_key:
            self._released.clear()
            await self._released.wait()

    def _take_offline(self, opened: OpenLog, error: Exception) -> None:
        """Take a damaged log out of use. :meth:`set_aside_damaged` comes next."""
        key = opened.topic_partition
        del self.logs[key]
        self._snapshots.pop(key, None)
        self.offline[key] = OfflineLog(opened.topic_id, opened.log_dir, opened.log.directory, str(error))

    def note_missing(self, key: TopicPartition, topic_id: Uuid, directory: Uuid) -> None:
        """The log of a replica is not in the directory that the controller knows it in, which works."""
        where = self.dirs.path_of(directory)
        reason = f"its log is not in the directory {where or uuid_to_str(directory)}"
        logger.error("%s-%d is damaged: %s", *key, reason)
        self.offline[key] = OfflineLog(
            topic_id, where or self.dirs.online[0], None, reason, is_set_aside=True
        )

    async def set_aside_damaged(self, key: TopicPartition) -> None:
        """Rename the directory of an offline log. Responses that are being sent keep the files they need.

        If its log directory fails, the log is unavailable instead.
        """
        offline = self.offline.get(key)
        if offline is not None and not offline.is_set_aside:
            task = self._setting_aside.get(key)
            if task is None:
                work = self._set_aside_damaged(key, offline)
                task = self._setting_aside[key] = self._tasks.start(work, "damaged-log")
            await asyncio.shield(task)  # a cancelled caller must not stop it, nor another repeat it

    async def _set_aside_damaged(self, key: TopicPartition, offline: OfflineLog) -> None:
        try:
            await self._until_unused(key)
            await self._guarded(offline.log_dir, partial(offline_logs.set_aside, self._disk, offline))
        finally:
            del self._setting_aside[key]
        if offline.is_set_aside:
            where = offline.directory
            logger.error("%s-%d is damaged (%s) and was set aside as %s", *key, offline.reason, where)

    async def offline_size_bytes(self, offline: OfflineLog) -> int:
        """The size of a set-aside directory. :class:`OSError`, which is not final, if it cannot be read."""
        if offline.directory is None:
            return 0
        return await self._workers.run(partial(offline_logs.size_bytes, self._disk, offline.directory))

    def find_file(self, path: str) -> OpenLog | None:
        """The log that this segment file belongs to; None if it belongs to none any more."""
        topic, _, index = path.split("/")[-2].rpartition("-")
        opened = self.logs.get((topic, int(index)))
        return None if opened is None or not opened.log.has_file(path) else opened

    async def set_aside(self, keys: Iterable[TopicPartition]) -> None:
        """Rename logs that the cluster does not know. They are not deleted: they may be the last copies."""
        for key, opened in await self._take_out(keys):
            await self._until_unused(key)
            logger.warning("%s belongs to no partition of this broker; renamed", opened.log.directory)
            await self._guarded(opened.log.directory, partial(_set_aside, self._disk, opened))

    async def usage(self, log_dir: str) -> DiskUsage:
        """The usage of a directory's volume. :class:`OSError`, which is not final, if it cannot be read."""
        return await self._workers.run(partial(self._disk.usage, log_dir))

    def _logs_in(self, log_dir: str) -> dict[TopicPartition, Log]:
        return {key: opened.log for key, opened in self.logs.items() if opened.log_dir == log_dir}

    def _damaged_in(self, log_dir: str) -> list[TopicPartition]:
        """The damaged logs whose directories are not yet renamed."""
        return [k for k, one in self.offline.items() if one.log_dir == log_dir and not one.is_set_aside]

    def _emptiest_dir(self) -> str:
        counts = dict.fromkeys(self.dirs.online, 0)
        used = [opened.log_dir for opened in self.logs.values()]
        for log_dir in (*used, *(future.log_dir for future in self.futures.values())):
            if log_dir in counts:
                counts[log_dir] += 1
        return min(counts, key=lambda log_dir: counts[log_dir])

    # -- moves -----------------------------------------------------------------------------------------

    async def create_future(self, key: TopicPartition, log_dir: str, unique: str) -> FutureLog | None:
        """An empty copy of a log in another directory; None if that fails, or the log is gone."""
        opened = self.logs.get(key)
        if opened is None:
            return None
        with self._leaving_out(log_dir):
            await self._checkpoints[log_dir].forget([key])  # what an earlier log has left
        now_ms = self._clock.wall_ms()
        job = partial(FutureLog.create, self._disk, log_dir, opened, unique, now_ms)
        future = await self._guarded(log_dir, job)
        if future is not None and self.logs.get(key) is opened:
            self.futures[key] = future
        return future

    def copy_failed(self, future: FutureLog, error: OSError) -> None:
        """A copy could not be written: its directory has failed."""
        self._fail(future.log_dir, error)

    async def discard_future(self, future: FutureLog) -> None:
        """Delete a copy that no longer grows."""
        key = future.source.topic_partition
        if self.futures.get(key) is future:
            del self.futures[key]
        future.log.abandon()
        await self._guarded(future.log_dir, partial(self._disk.remove_tree, future.log.directory))

    def promote(self, future: FutureLog) -> OpenLog | None:
        """Let the copy take the place of the log, in one turn of the event loop; returns what is used now.

        None if it does not hold everything, or a flush, a snapshot or the end of a round of compaction of the
        log is under way.
        """
        old = future.source
        key = old.topic_partition
        is_busy = key in self._flushing or key == self._snapshot_key or key in self._cleaning
        if is_busy or self.logs.get(key) is not old or not future.holds_everything():
            return None
        new = future.take_place(self._disk)
        del self.futures[key]
        old.log.before_truncation = old.log.on_roll = None
        self._adopt(new)
        self._rolled(new, new.log.log_end_offset)
        return new

    async def delete_moved(self, old: OpenLog, new: OpenLog) -> None:
        """The log was moved: make that durable, then delete the old one."""
        # No round has begun since the move did: the copy has what the last one left.
        cleaned, cuts = self.cleaned_offset(old), new.log.truncation_count
        done = await self._guarded(new.log_dir, partial(self._make_move_durable, new.log_dir))
        if done is None:
            return
        with self._leaving_out(new.log_dir):
            self._checkpoints[new.log_dir].write_recovery_points()
            await self._checkpoints[new.log_dir].write_log_starts()
            if cleaned is not None:
                await self.store_cleaned_offset(new, cleaned, cuts)
        with self._leaving_out(old.log_dir):
            await self._checkpoints[old.log_dir].forget([old.topic_partition])
        await self._guarded(old.log_dir, old.log.delete)

    def _make_move_durable(self, log_dir: str) -> bool:
        self._disk.flush_dir(log_dir)
        return True

    # -- durability ------------------------------------------------------------------------------------

    async def flush(self, key: TopicPartition) -> None:
        """Make the current contents of a log durable, while it keeps growing."""
        opened = self.logs.get(key)
        if opened is None or key in self._flushing:
            return
        self._flushing.add(key)
        try:
            try:
                job: FlushJob = opened.log.prepare_flush()
                await self._workers.run(job.run)
            except DAMAGE_ERRORS as error:
                self.report_damage(opened.log, error)
                return
            except OSError as error:
                if not self._fail(opened.log.directory, error):
                    raise
                return
            opened.log.complete_flush(job)
        finally:
            self._flushing.discard(key)
            self._released.set()

    def report_damage(self, log: Log, error: Exception) -> None:
        """A log's files are damaged: take it offline, unless it has been taken out of use meanwhile."""
        key = log.topic_partition
        opened = self.logs.get(key)
        if opened is None or opened.log is not log:
            return
        logger.error("%s-%d was taken offline: %s", *key, error)
        self._take_offline(opened, error)
        self._on_damage(key)

    def storage_failed(self, log: Log, error: OSError | CorruptLogError) -> None:
        """A log can no longer be used.

        Damage of its files costs only this replica; any other error of the disk costs all replicas of its
        directory, since nothing on that disk can be trusted any more.
        """
        if isinstance(error, DAMAGE_ERRORS):
            self.report_damage(log, error)
        else:
            self._fail(log.directory, error)

    def _adopt(self, opened: OpenLog) -> None:
        """Take a log into use. Before it is truncated, its entries in the checkpoints are lowered."""
        log = opened.log
        self.logs[opened.topic_partition] = opened
        opened.snapshots = SnapshotWriter(self._disk, log, opened.producers, self._workers.run)
        log.before_truncation = partial(self._before_truncation, opened)
        log.on_roll = partial(self._rolled, opened)
        log.on_bad_index = partial(self._index_is_bad, opened)
        log.on_deleted = lambda paths: self.remove_later(paths, log.config.file_delete_delay_ms)

    # -- look-ups by time ------------------------------------------------------------------------------

    async def look_up_time(self, log: Log, timestamp_ms: int | None) -> TimestampOffset | None:
        """See :meth:`Log.prepare_lookup`. One at a time: a batch may unfold to a hundred times its size.

        Errors of the disk are those of the log as it is now.
        """
        async with self._looking_up:
            while True:
                try:
                    job = log.prepare_lookup(timestamp_ms)
                except BadIndexError as error:
                    self._refuse_unused(log)  # or nobody builds it again
                    while error.segment in self._rebuilding:
                        self._released.clear()
                        await self._released.wait()
                    continue
                try:
                    found = await self._workers.run(job.run)
                    if log.rewrite_count == job.truncations:
                        return found
                except DAMAGE_ERRORS as error:
                    self._refuse_unused(log)  # its files may be deleted, and it is not the replica's any more
                    if log.is_damage(error, job.truncations):  # otherwise the log was cut meanwhile
                        raise

    def _refuse_unused(self, log: Log) -> None:
        """KAFKA_STORAGE_ERROR for a log that was deleted, moved or taken offline meanwhile."""
        opened = self.logs.get(log.topic_partition)
        if opened is None or opened.log is not log:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.directory} is no longer in use")

    # -- bad indexes -----------------------------------------------------------------------------------

    def _index_is_bad(self, opened: OpenLog, error: BadIndexError) -> None:
        """Build an index again in the executor, unless that is under way."""
        if error.segment not in self._rebuilding:
            logger.warning("%s; the indexes are built again", error)
            self._rebuilding.add(error.segment)
            self._tasks.start(self._rebuild_index(opened, error.segment), "rebuild-index")

    async def _rebuild_index(self, opened: OpenLog, segment: Segment) -> None:
        log, key = opened.log, opened.topic_partition
        try:
            is_complete = False
            while not is_complete and self.logs.get(key) is opened:
                build = log.prepare_index_build(segment)
                if build is None:
                    break
                try:
                    await self._workers.run(build.run)
                except DAMAGE_ERRORS as error:
                    if log.is_as_prepared(build):  # otherwise the file was cut or deleted meanwhile
                        self.report_damage(log, error)
                else:
                    is_complete = self.logs.get(key) is opened and log.complete_index_build(build)
        except OSError as error:
            self._fail(log.directory, error)
        finally:
            self._rebuilding.discard(segment)
            self._released.set()
        self.on_index_rebuilt(key)

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove the renamed files of a deleted segment after a delay."""
        self._deleted_files.add(paths, delay_ms)

    def _before_truncation(self, opened: OpenLog, end_offset: int) -> None:
        assert opened.snapshots is not None
        opened.snapshots.remove_above(end_offset)
        pending = self._snapshots.get(opened.topic_partition)
        if pending is not None and pending[0] > end_offset:
            del self._snapshots[opened.topic_partition]  # it would contain truncated batches
        future = self.futures.get(opened.topic_partition)
        if future is not None:
            future.note_truncation(end_offset)
        if self.logs.get(opened.topic_partition) is opened:
            self._checkpoints[opened.log_dir].lower(opened.topic_partition, end_offset)

    # -- state of producers ----------------------------------------------------------------------------

    def _rolled(self, opened: OpenLog, base_offset: int) -> None:
        """A new segment begins: capture the producers as of its base offset."""
        if not opened.producers.is_behind:
            self._snapshots[opened.topic_partition] = (base_offset, opened.producers.capture())
            self.write_snapshots_soon()

    def write_snapshots_soon(self) -> None:
        """Start writing the due snapshots, unless that is under way."""
        if self._snapshot_task is None:
            self._snapshot_task = self._tasks.start(self.write_snapshots(), "producer-snapshots")

    async def write_snapshots(self) -> None:
        """Write the due snapshots."""
        try:
            while self._snapshots:
                key, (offset, captured) = self._snapshots.popitem()
                opened = self.logs.get(key)
                if opened is not None:
                    await self._write_snapshot(key, opened, offset, captured)
        finally:
            self._snapshot_task = None

    async def pause(self) -> None:
        """Yield to other tasks of the event loop."""
        await asyncio.sleep(0)

    async def _write_snapshot(
        self, key: TopicPartition, opened: OpenLog, offset: int, captured: dict[int, ProducerEntry]
    ) -> None:
        assert opened.snapshots is not None
        self._snapshot_key = key
        try:
            await opened.snapshots.write(offset, captured, opened.producers.complete)
        except DAMAGE_ERRORS as error:
            self.report_damage(opened.log, error)
        except OSError as error:
            if self.logs.get(key) is opened:  # otherwise its directory has been renamed or removed
                self._fail(opened.log.directory, error)
        finally:
            self._snapshot_key = None
            self._released.set()

    async def rebuild_producers(self, key: TopicPartition) -> None:
        """Rebuild the state of the producers of a log that was truncated."""
        opened = self.logs.get(key)
        if opened is not None:
            try:
                run = self._workers.run
                await rebuild_producers(self._disk, opened.log, opened.producers, run, self.pause)
            except DAMAGE_ERRORS as error:
                self.report_damage(opened.log, error)

    def expire_producers(self, key: TopicPartition, now_ms: int, max_idle_ms: int) -> None:
        """Forget idle producers, and record that those of deleted segments are forgotten."""
        opened = self.logs.get(key)
        if opened is None:
            return
        was_complete = opened.producers.complete
        opened.producers.expire(now_ms, max_idle_ms)
        if opened.log.log_start_offset > 0:
            opened.producers.complete = False
        if was_complete and not opened.producers.complete:
            assert opened.snapshots is not None
            try:
                opened.snapshots.forget_some()
            except STORAGE_ERRORS as error:
                self.storage_failed(opened.log, error)

    async def write_checkpoints(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the recovery points, log starts and high watermarks of every directory."""
        await self.write_high_watermarks(high_watermarks)
        for log_dir in self.dirs.online:
            with self._leaving_out(log_dir):
                self._checkpoints[log_dir].write_recovery_points()
                await self._checkpoints[log_dir].write_log_starts()

    async def store_log_starts(self, keys: Iterable[TopicPartition]) -> None:
        """Write the starts of at least these logs; call it before :meth:`delete_retired_segments`."""
        for log_dir in {self.logs[key].log_dir: None for key in keys if key in self.logs}:
            if self.dirs.is_online(log_dir):
                with self._leaving_out(log_dir):
                    await self._checkpoints[log_dir].write_log_starts()

    def delete_retired_segments(self, key: TopicPartition) -> None:
        """Delete the segments below the stored log start."""
        opened = self.logs.get(key)
        if opened is not None:
            assert opened.snapshots is not None
            try:
                if opened.log.delete_retired_segments(opened.log.stored_log_start_offset):
                    opened.snapshots.remove_unneeded()
            except STORAGE_ERRORS as error:
                self.storage_failed(opened.log, error)

    # -- compaction ------------------------------------------------------------------------------------

    @contextmanager
    def cleaning(self, opened: OpenLog) -> Iterator[None]:
        """While a round of compaction reads a log, its directory is neither renamed nor removed."""
        key = opened.topic_partition
        self._cleaning.add(key)
        try:
            yield
        finally:
            self._cleaning.discard(key)
            self._released.set()

    def may_clean(self, opened: OpenLog) -> bool:
        """Whether a log is still in use, and is not being moved to another directory."""
        key = opened.topic_partition
        return self.logs.get(key) is opened and key not in self.futures

    def cleaned_offset(self, opened: OpenLog) -> int | None:
        """What the last round of compaction reached; None if there was none."""
        return self._checkpoints[opened.log_dir].cleaned_offset(opened.topic_partition)

    async def store_cleaned_offset(self, opened: OpenLog, offset: int, truncation_count: int) -> None:
        """Store what a round has reached that began at this ``truncation_count``. Call it when what the round
        wrote is durable.
        """
        if self.may_clean(opened):
            files = self._checkpoints[opened.log_dir]
            with self._leaving_out(opened.log_dir):
                await files.write_cleaned_offset(opened.topic_partition, offset, truncation_count)

    async def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        for log_dir, meant in [(log_dir, self._logs_in(log_dir)) for log_dir in self.dirs.online]:
            with self._leaving_out(log_dir):
                await self._checkpoints[log_dir].write_high_watermarks(high_watermarks, meant)


def _set_aside(disk: Disk, opened: OpenLog) -> None:
    opened.log.close()
    target = renamed_directory(opened.log.directory, f".{opened.topic_id.hex()}{STRAY_SUFFIX}")
    rename_directory(disk, opened.log.directory, target)
