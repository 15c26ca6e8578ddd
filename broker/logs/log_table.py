"""Which logs this broker has, and which of them a job in the executor is using.

Knows names and states; touches no file. The logs are used on the event loop only. While a flush, a producer
snapshot or a round of compaction uses the files of a log, its directory is neither renamed nor removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pykraft.broker.logs.future_log import FutureLog
from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.offline_logs import OfflineLog, TopicPartition
from pykraft.kafka_protocol.ids import Uuid
from pykraft.log_store.log.log import Log


class LogTable:
    """``logs`` maps (topic, partition) to the open logs, ``offline`` to the damaged ones that have not been
    replaced, ``unavailable`` to the topic id and the directory of those in failed directories.
    """

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, OpenLog] = {}
        self._logs_in: dict[str, dict[TopicPartition, Log]] = {}
        self.logs: Mapping[TopicPartition, OpenLog] = self._logs
        self.offline: dict[TopicPartition, OfflineLog] = {}
        self.unavailable: dict[TopicPartition, tuple[Uuid, str]] = {}
        #: The copies of logs that are being moved (``placement.log_moves``), and the
        #: directories that logs are to be moved to, or created in.
        self.futures: dict[TopicPartition, FutureLog] = {}
        self.wanted_dirs: dict[TopicPartition, str] = {}
        #: The logs that were moved, each with a directory in which what it was is not yet deleted.
        self.moved_from: set[tuple[TopicPartition, str]] = set()

    def put(self, opened: OpenLog) -> None:
        """Take a log into use, in place of the one that its replica had."""
        key = opened.topic_partition
        if key in self._logs:
            self.take_out(key)
        self._logs[key] = opened
        self._logs_in.setdefault(opened.log_dir, {})[key] = opened.log

    def take_out(self, key: TopicPartition) -> OpenLog:
        """Take a log out of use."""
        opened = self._logs.pop(key)
        del self._logs_in[opened.log_dir][key]
        return opened

    def is_in_use(self, opened: OpenLog) -> bool:
        """Whether it is still the log of its replica."""
        return self.logs.get(opened.topic_partition) is opened

    def find(self, log: Log) -> OpenLog | None:
        """The entry of a log; None if it was deleted, moved or taken offline meanwhile."""
        opened = self.logs.get(log.topic_partition)
        return None if opened is None or opened.log is not log else opened

    def find_file(self, path: str) -> OpenLog | None:
        """The log that this segment file belongs to; None if it belongs to none any more."""
        topic, _, index = path.split("/")[-2].rpartition("-")
        opened = self.logs.get((topic, int(index)))
        return None if opened is None or not opened.log.has_file(path) else opened

    def logs_in(self, log_dir: str) -> Mapping[TopicPartition, Log]:
        """As of now and later on."""
        return self._logs_in.setdefault(log_dir, {})

    def damaged_in(self, log_dir: str) -> list[TopicPartition]:
        """The damaged logs whose directories are not yet renamed."""
        return [k for k, one in self.offline.items() if one.log_dir == log_dir and not one.is_set_aside]

    def kept_in(self, log_dir: str) -> list[TopicPartition]:
        """Logs in a directory that a start would find and that are not used: damaged, or just moved away."""
        moved = [key for key, path in self.moved_from if path == log_dir]
        return [*self.damaged_in(log_dir), *moved]

    def moves_to(self, log_dir: str) -> dict[TopicPartition, tuple[int, int]]:
        """The size and the lag of the copies of logs in a directory, those included that are yet to begin."""
        moves: dict[TopicPartition, tuple[int, int]] = {}
        for key, path in self.wanted_dirs.items():
            opened, future = self.logs.get(key), self.futures.get(key)
            if opened is None or path != log_dir or path == opened.log_dir:
                continue
            if future is not None and future.log_dir == path:
                moves[key] = (future.log.size_bytes, future.lag)
            else:
                moves[key] = (0, opened.log.log_end_offset)
        return moves

    def may_clean(self, opened: OpenLog) -> bool:
        """Whether a log is still in use, and is not being moved to another directory."""
        return self.is_in_use(opened) and opened.topic_partition not in self.futures


class LogUses:
    """The logs whose files are used by jobs."""

    def __init__(self) -> None:
        self.flushing: set[TopicPartition] = set()
        #: The logs that a round of compaction reads.
        self.cleaning: set[TopicPartition] = set()
        #: The log whose producer snapshot is being written.
        self.snapshotting: set[TopicPartition] = set()
        #: The logs that are about to be moved, and those that were, while what they were is deleted.
        self.settling: set[TopicPartition] = set()
        self._released = asyncio.Event()

    @contextmanager
    def using(self, users: set[TopicPartition], key: TopicPartition) -> Iterator[None]:
        """Keep the log's directory as it is until the end of the block."""
        users.add(key)
        try:
            yield
        finally:
            users.discard(key)
            self._released.set()

    def is_used(self, key: TopicPartition) -> bool:
        return any(key in users for users in (self.flushing, self.cleaning, self.snapshotting, self.settling))

    async def until_unused(self, key: TopicPartition) -> None:
        """Wait until neither a flush, a snapshot, a compaction nor a move of the log is under way."""
        while self.is_used(key):
            await self._released_one()

    async def until_not_flushed(self, key: TopicPartition) -> None:
        """Wait until no flush of the log is under way."""
        while key in self.flushing:
            await self._released_one()

    async def _released_one(self) -> None:
        self._released.clear()
        await self._released.wait()
