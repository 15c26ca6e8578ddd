"""Moves logs between the log directories of this broker (AlterReplicaLogDirs, KIP-113).

A copy grows beside the log that is in use, in worker threads and as fast as
``replica.alter.log.dirs.io.max.bytes.per.second`` allows. When it has caught up, the controller is told that
the replica is in the new directory, and only when it has recorded that does the copy take the place of the
log, which is marked first, in one turn of the event loop: if the process dies in between, or just afterwards,
the next start finds a log that holds everything in one of the two directories, or knows that it is in the one
that has just failed (:mod:`pykraft.broker.logs.move_marks`). A move that is cancelled, or fails, has no
effect: the controller is told of the old directory again. A restart begins a move again. Decides when a piece
is copied; :mod:`pykraft.broker.logs.future_log` decides what.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from pykraft.broker.config import BrokerConfig
from pykraft.broker.logs.future_log import FutureLog
from pykraft.broker.logs.log_dirs import is_of_the_process
from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.broker.replicas.placement.directory_assignments import DirectoryAssignments
from pykraft.broker.replicas.ports import ImageSource
from pykraft.broker.replicas.replica_table import ReplicaTable
from pykraft.log_store.interface import DAMAGE_ERRORS, STORAGE_ERRORS, CorruptLogError
from pykraft.log_store.segment.reading import BadIndexError
from pykraft.metadata_log.broker_configs import effective_dynamic_values
from pykraft.runtime.backoff import RandomSource
from pykraft.runtime.clock import Clock
from pykraft.runtime.tasks import TaskSupervisor, Workers

logger = logging.getLogger(__name__)

RATE_CONFIG: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
PIECE_BYTES: Final = 1 << 20
TAIL_BYTES: Final = 256 << 10
"""So much is copied in the turn of the event loop in which the copy takes the log's place."""
WAIT_MS: Final = 50
"""Between two looks at whether the controller has recorded the new directory."""
LONGEST_PAUSE_MS: Final = 1000
UNLIMITED: Final = (1 << 63) - 1


class LogMoves:
    """The moves of one broker; one at a time for each directory."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        table: ReplicaTable,
        metadata: ImageSource,
        assignments: DirectoryAssignments,
        workers: Workers,
        clock: Clock,
        rng: RandomSource,
        tasks: TaskSupervisor,
    ) -> None:
        self._config = config
        self._logs = logs
        self._table = table
        self._metadata = metadata
        self._assignments = assignments
        self._workers = workers
        self._clock = clock
        self._rng = rng
        self._tasks = tasks
        self._slots = {path: asyncio.Semaphore() for path in logs.dirs.paths}
        #: The moves whose turn has not come.
        self._waiting: Counter[tuple[TopicPartition, str]] = Counter()

    def move(self, key: TopicPartition, log_dir: str) -> None:
        """Move a log to this directory, which works; a move of it to another one is cancelled."""
        opened, logs = self._logs.logs[key], self._logs
        future = logs.futures.get(key)
        if opened.log_dir == log_dir:
            logs.wanted_dirs.pop(key, None)
            self._cancel(key)
        elif logs.wanted_dirs.get(key) != log_dir or future is None:
            self._cancel(key)
            is_waiting = logs.wanted_dirs.get(key) == log_dir
            logs.wanted_dirs[key] = log_dir
            if not is_waiting:
                self._waiting[key, log_dir] += 1
                self._tasks.start(self._move(key, opened, log_dir), "log-move")

    def resume(self, opened: OpenLog) -> None:
        """A log has been opened: its move may have been interrupted by the last stop."""
        key = opened.topic_partition
        log_dir = self._logs.wanted_dirs.pop(key, None)
        if log_dir is not None and self._logs.dirs.is_online(log_dir):
            self.move(key, log_dir)

    def _cancel(self, key: TopicPartition) -> None:
        """The task of the move notices it, deletes the copy and tells the controller."""
        self._logs.futures.pop(key, None)

    def _is_wanted(self, key: TopicPartition, opened: OpenLog, log_dir: str) -> bool:
        logs = self._logs
        return (
            logs.wanted_dirs.get(key) == log_dir
            and logs.logs.get(key) is opened
            and logs.dirs.is_online(log_dir)
            and logs.dirs.is_online(opened.log_dir)
        )

    async def _move(self, key: TopicPartition, opened: OpenLog, log_dir: str) -> None:
        async with self._slots[log_dir]:
            self._waiting -= Counter([(key, log_dir)])
            if key in self._logs.futures or not self._is_wanted(key, opened, log_dir):
                return  # asked for twice, or not any more
            unique = f"{int(self._rng.random() * 2**53):032x}"
            future = None
            with self._logs.work.guarding("move", opened.log):
                future = await self._logs.copies.create(key, log_dir, unique)
            if future is None:
                self._forget(key, log_dir)
                return
            logger.info("%s-%d is being moved from %s to %s", *key, opened.log_dir, log_dir)
            while self._is_going_on(key, future):
                is_ready = False
                with self._logs.work.guarding("move", opened.log, lambda _: self._cancel(key)):
                    is_ready = await self._copy_some(future) and await self._finish(key, future)
                # Not guarded: while two logs claim to be the replica's, only a start can decide.
                new = self._swap(key, future) if is_ready else None
                if new is not None:
                    with self._logs.work.guarding("move", new.log):
                        await self._settle(key, future, new)
                    return
                await self._tasks.sleep(0)
            self._forget(key, log_dir)
            await self._logs.copies.discard(future)
            self._assignments.check(key)
            logger.warning("the move of %s-%d to %s has ended without effect", *key, log_dir)

    def _forget(self, key: TopicPartition, log_dir: str) -> None:
        if self._logs.wanted_dirs.get(key) == log_dir and not self._waiting[key, log_dir]:
            del self._logs.wanted_dirs[key]

    def _is_going_on(self, key: TopicPartition, future: FutureLog) -> bool:
        is_current = self._logs.futures.get(key) is future
        return is_current and self._is_wanted(key, future.source, future.log_dir)

    async def _copy_some(self, future: FutureLog) -> bool:
        """Copy the next piece, and pause as the limit requires; whether only a tail is left."""
        rate = self._rate()
        try:
            if future.must_follow:
                await self._run(future, partial(future.follow, future.take_step()))
            piece = future.next_piece(min(PIECE_BYTES, rate))
            if piece is None:
                return True
            data = await self._workers.run(partial(piece.file.pread, piece.position, piece.size_bytes))
        except BadIndexError:
            await self._tasks.sleep(WAIT_MS)  # it is being built again
            return False
        except DAMAGE_ERRORS as error:
            self._logs.damaged.report(future.source.log, error)
            return False
        cuts = future.source.log.truncation_count
        if future.must_follow:
            return False  # what was read may have been truncated meanwhile
        await self._run(future, partial(future.append, piece, data, self._clock.wall_ms()))
        await self._pause(future, len(data))
        is_same = cuts == future.source.log.truncation_count
        return is_same and piece.size_bytes <= TAIL_BYTES

    async def _pause(self, future: FutureLog, size_bytes: int) -> None:
        """As long as the limit requires for so many bytes; it may change, and the move may end, meanwhile."""
        key = future.source.topic_partition
        while size_bytes > 0 and self._is_going_on(key, future):
            rate = self._rate()
            await self._tasks.sleep(min(size_bytes * 1000 // rate, LONGEST_PAUSE_MS))
            size_bytes -= rate * LONGEST_PAUSE_MS // 1000

    async def _run(self, future: FutureLog, job: Callable[[], None]) -> None:
        """Run a job that changes the copy."""
        try:
            await self._workers.run(job)
        except STORAGE_ERRORS as error:
            self._handle_error(future, error)

    def _handle_error(self, future: FutureLog, error: OSError | CorruptLogError) -> None:
        """Damage, or no room, ends the move; or the directory of the copy fails."""
        source = future.source
        if isinstance(error, CorruptLogError) and source.log.has_file(error.path):
            self._logs.damaged.report(source.log, error)
        elif isinstance(error, DAMAGE_ERRORS) or self._logs.copies.failed(future, error):
            logger.error("%s: %s", future.log.directory, error)
            self._cancel(source.topic_partition)

    async def _finish(self, key: TopicPartition, future: FutureLog) -> bool:
        """Tell the controller, then copy the tail and the producers and mark the log. Whether to swap now."""
        job = future.log.prepare_flush()
        await self._run(future, job.run)
        if not self._is_going_on(key, future):
            return False
        future.log.complete_flush(job)
        future.is_announced = True
        if not self._is_recorded(key, future):
            self._assignments.check(key)
            await self._tasks.sleep(WAIT_MS)
            return False
        try:
            piece = future.next_piece(TAIL_BYTES)
            if piece is not None and not future.must_follow and piece.size_bytes <= TAIL_BYTES:
                data = piece.file.pread(piece.position, piece.size_bytes)
                future.append(piece, data, self._clock.wall_ms())
            if future.lacks_producers:
                if not await future.store_producers(self._workers.run):
                    await self._tasks.sleep(WAIT_MS)
                return False  # the log may have grown meanwhile
            if not future.is_marked:
                if not await self._logs.copies.mark(future):
                    self._cancel(key)
                return False
        except BadIndexError:
            await self._tasks.sleep(WAIT_MS)
            return False
        except STORAGE_ERRORS as error:
            self._handle_error(future, error)
            return False
        return True

    def _swap(self, key: TopicPartition, future: FutureLog) -> OpenLog | None:
        """Let the copy take the log's place, if it still holds everything."""
        try:
            new = self._logs.copies.promote(future)
        except STORAGE_ERRORS as error:
            if is_of_the_process(error):
                raise  # perhaps within the swap: it cannot be repeated
            self._handle_error(future, error)
            return None
        if new is not None:
            del self._logs.wanted_dirs[key]
            partition = self._table.find(*key)
            if partition is not None:
                partition.use_log(new.log)
            logger.info("%s-%d was moved to %s", *key, new.log_dir)
        return new

    async def _settle(self, key: TopicPartition, future: FutureLog, new: OpenLog) -> None:
        """The copy has taken the log's place: delete what it has replaced."""
        partition = self._table.find(*key)
        await self._logs.copies.delete_moved(future.source, new)
        if partition is not None:
            partition.log_moved()
        self._assignments.check(key)

    def _is_recorded(self, key: TopicPartition, future: FutureLog) -> bool:
        """Whether the controller knows the replica in the new directory."""
        partition = self._metadata.image.partition(future.topic_id, key[1])
        directory = self._logs.dirs.ids.get(future.log_dir)
        return partition is not None and partition.directory(self._config.node_id) == directory

    def _rate(self) -> int:
        values = effective_dynamic_values(self._metadata.image, self._config.node_id)
        return max(1, int(values.get(RATE_CONFIG, UNLIMITED)))
