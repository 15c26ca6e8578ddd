"""The checkpoint files of one log directory: of each of its logs the recovery point, the log start, the high
watermark, how far it was compacted, and how far Kafka's compaction may have left gaps.

A start after a crash trusts them: none may ever promise more than the logs hold. Decides what is written and
in which order, not when (:mod:`.log_checkpoints`); never touches a log. A directory may have many thousands
of logs: they are looked at some in each turn of the event loop, and files are written in the executor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from pykraft.broker.logs.log_dirs import is_of_the_process
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store import checkpoint
from pykraft.log_store.interface import CorruptCheckpointError
from pykraft.log_store.log.log import Log
from pykraft.log_store.segment.segment import MAX_OFFSET
from pykraft.runtime.disk import Disk, UnreadableError
from pykraft.runtime.paced import paced
from pykraft.runtime.tasks import Workers

logger = logging.getLogger(__name__)

_NAMES = (
    checkpoint.RECOVERY_POINT_CHECKPOINT,
    checkpoint.LOG_START_OFFSET_CHECKPOINT,
    checkpoint.REPLICATION_OFFSET_CHECKPOINT,
    checkpoint.CLEANER_OFFSET_CHECKPOINT,
)
_LOWERED = (
    checkpoint.RECOVERY_POINT_CHECKPOINT,
    checkpoint.LOG_START_OFFSET_CHECKPOINT,
    checkpoint.CLEANER_OFFSET_CHECKPOINT,
    checkpoint.GAP_OFFSET_CHECKPOINT,
)
"""The files whose entries are lowered where logs are truncated."""
Offsets = dict[TopicPartition, int]


@dataclass(slots=True)
class StoredOffsets:
    """The contents of the files. ``is_clean``: after an orderly stop.

    ``gaps``: below which offsets logs may have gaps; None if no broker but Kafka's has used the directory.
    """

    is_clean: bool
    recovery_points: Offsets
    log_starts: Offsets
    high_watermarks: Offsets
    compacted: Offsets
    gaps: Offsets | None

    @classmethod
    def read(cls, disk: Disk, log_dir: str, *, is_clean: bool) -> StoredOffsets:
        """Blocks."""
        points, starts, high_watermarks, compacted = (
            _read(disk, f"{log_dir}/{name}") or {} for name in _NAMES
        )
        path = f"{log_dir}/{checkpoint.GAP_OFFSET_CHECKPOINT}"
        gaps = _read(disk, path) if disk.exists(path) else None
        return cls(is_clean, points, starts, high_watermarks, compacted, gaps)

    def gap_offset(self, key: TopicPartition) -> int:
        """Below it gaps are no damage."""
        return MAX_OFFSET if self.gaps is None else self.gaps.get(key, 0)

    def recovery_point(self, key: TopicPartition) -> int:
        """The offset up to which the log must be intact. An orderly stop flushed all committed records."""
        flushed = self.recovery_points.get(key, 0)
        return max(flushed, self.high_watermarks.get(key, 0)) if self.is_clean else flushed

    def log_start(self, key: TopicPartition) -> int | None:
        """The stored log start; None if it is unknown or impossible: no log starts after its end."""
        start, end = self.log_starts.get(key), self.recovery_points.get(key)
        return None if self.is_clean and start is not None and end is not None and start > end else start

    def with_records(self) -> set[TopicPartition]:
        """The logs that had records."""
        return {
            key
            for offsets in (self.recovery_points, self.high_watermarks)
            for key, offset in offsets.items()
            if offset > 0
        }


def _read(disk: Disk, path: str) -> Offsets | None:
    """The offsets in a checkpoint file. None if it cannot be read: then more is recovered, or accepted."""
    try:
        return checkpoint.read_offset_checkpoint(disk, path)
    except (CorruptCheckpointError, UnreadableError) as error:
        logger.error("%s; the file will be rewritten", error)
        return None


class CheckpointFiles:
    """``logs``: those of the directory that are in use.

    ``kept``: those that are not, and that a start would find there. ``fail`` is called with the path
    and the error of a write that failed, unless the process lacked something: it left the file as it was. The
    error is then raised.
    """

    def __init__(
        self,
        disk: Disk,
        log_dir: str,
        stored: StoredOffsets,
        logs: Callable[[], Mapping[TopicPartition, Log]],
        kept: Callable[[], Iterable[TopicPartition]],
        workers: Workers,
        fail: Callable[[str, OSError], object],
    ) -> None:
        self._disk = disk
        self._log_dir = log_dir
        #: What the files say. These are replaced, never changed: a job may be writing them.
        self._stored: dict[str, Offsets] = {
            checkpoint.RECOVERY_POINT_CHECKPOINT: stored.recovery_points,
            checkpoint.LOG_START_OFFSET_CHECKPOINT: stored.log_starts,
            checkpoint.CLEANER_OFFSET_CHECKPOINT: stored.compacted,
            checkpoint.GAP_OFFSET_CHECKPOINT: stored.gaps or {},
            checkpoint.REPLICATION_OFFSET_CHECKPOINT: stored.high_watermarks,
        }
        self._logs = logs
        self._kept = kept
        self._workers = workers
        self._fail = fail
        #: Held from the first look at the logs until the file is durable: an older version never replaces a
        #: newer one, and a log that was deleted meanwhile is forgotten before another has its name.
        self._writing = asyncio.Lock()
        #: How often :meth:`lower` was called.
        self._cuts = 0
        #: What the newest job is to write.
        self._wanted: Offsets = {}

    def cleaned_offset(self, key: TopicPartition) -> int | None:
        """Return the offset a start would find as the last round's end; None if there was no round."""
        return self._stored[checkpoint.CLEANER_OFFSET_CHECKPOINT].get(key)

    async def write_cleaned_offset(self, key: TopicPartition, offset: int, truncation_count: int) -> None:
        """Write what a round of compaction reached, unless the log was removed or cut since that count."""

        async def reached(stored: Offsets) -> Offsets:
            logs = self._logs()
            if key not in logs or logs[key].truncation_count != truncation_count:
                return stored
            return {one: stored[one] for one in stored if one in logs} | {key: offset}

        async with self._writing:
            await self._replace(checkpoint.CLEANER_OFFSET_CHECKPOINT, reached)

    async def forget_gaps(self, key: TopicPartition) -> None:
        """A round of compaction has filled all gaps of a log."""
        async with self._writing:
            await self._replace(checkpoint.GAP_OFFSET_CHECKPOINT, partial(_without, [key]))

    def lower(self, key: TopicPartition, end_offset: int) -> None:
        """Lower the checkpoints: none may claim more of a log than it will hold.

        They are written at once and before the truncation: otherwise a start after a crash would take the
        truncated tail for damage, or trust bytes that were appended later and never flushed.
        """
        self._cuts += 1
        for name in _LOWERED:
            offsets = self._stored[name]
            # A log that is cut at its start keeps it, or deleted records would be back after a power loss. It
            # moves back a little if the cut is within the batch of its start. At 0 it starts over elsewhere.
            starts_over = name == checkpoint.LOG_START_OFFSET_CHECKPOINT and end_offset == 0
            if starts_over and key in offsets:
                offsets = {one: offset for one, offset in offsets.items() if one != key}
            elif offsets.get(key, 0) > end_offset:
                offsets = {**offsets, key: end_offset}
            else:
                continue
            with self._failing(name) as path:
                checkpoint.write_offset_checkpoint(self._disk, path, offsets)
            self._stored[name] = offsets

    async def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Remove from the files what they still say about logs that no longer exist.

        Their entries go by name: after a crash a new log would be taken to be as durable, as committed and as
        far deleted as the old one was; and a log that was deleted on purpose would be reported missing.
        """
        others = partial(_without, list(keys))
        async with self._writing:
            for name in self._stored:
                await self._replace(name, others)

    async def write_recovery_points(self) -> None:
        """Damaged logs not yet renamed keep theirs: without it a start would take a hole for a lost tail."""

        async def points(stored: Offsets) -> Offsets:
            found = {key: log.recovery_point async for key, log in self._in_turns()}
            return found | self._of_kept(stored)

        async with self._writing:
            await self._replace(checkpoint.RECOVERY_POINT_CHECKPOINT, points)

    async def write_log_starts(self) -> None:
        """Also of logs that start at 0, so that a start sees missing segments. Logs are told afterwards."""

        async def starts(stored: Offsets) -> Offsets:
            found = {key: log.log_start_offset async for key, log in self._in_turns()}
            return found | self._of_kept(stored)

        name = checkpoint.LOG_START_OFFSET_CHECKPOINT
        async with self._writing:
            await self._replace(name, starts)
            async for key, log in self._in_turns():
                if key in self._stored[name]:  # as of now: it may have been lowered since
                    log.log_start_stored(self._stored[name][key])

    async def write_high_watermarks(
        self, high_watermarks: Mapping[TopicPartition, int], meant: Mapping[TopicPartition, Log]
    ) -> None:
        """Only for ``meant``, the logs that the high watermarks belong to: not for logs that were deleted,
        and perhaps created again under the same name, meanwhile.
        """

        async def still_meant(stored: Offsets) -> Offsets:
            return {
                key: high_watermarks[key]
                async for key, log in self._in_turns()
                if key in high_watermarks and meant.get(key) is log
            }

        async with self._writing:
            await self._replace(checkpoint.REPLICATION_OFFSET_CHECKPOINT, still_meant)

    def _of_kept(self, stored: Offsets) -> Offsets:
        """Those of logs here and not in use: a start would lack what is acknowledged, such as log starts."""
        return {key: stored[key] for key in self._kept() if key in stored and key not in self._logs()}

    def _in_turns(self) -> AsyncIterator[tuple[TopicPartition, Log]]:
        """The logs that are in use now."""
        return paced(iter(list(self._logs().items())))

    async def _replace(self, name: str, replacing: Callable[[Offsets], Awaitable[Offsets]]) -> None:
        """Write what is to replace the stored offsets, if that is not themselves; :attr:`_writing` is held.

        The file is renamed on the event loop, where logs are truncated: an older, higher offset must not
        overtake :meth:`lower`. If a log was truncated meanwhile, all is done again.
        """
        with self._failing(name) as path:
            prepared, cuts = f"{path}.new", -1
            while cuts != self._cuts:
                cuts, stored = self._cuts, self._stored[name]
                offsets = await replacing(stored)
                if offsets is stored:
                    return
                self._wanted = offsets
                await self._workers.run(partial(self._prepare, prepared, offsets))
            self._disk.rename(prepared, path)
            self._stored[name] = offsets
            await self._workers.run(partial(self._disk.flush_dir, self._log_dir))

    def _prepare(self, path: str, offsets: Offsets) -> None:
        """Blocks. A job whose caller was cancelled may begin late: it must not overtake the next one."""
        if self._wanted is offsets:
            checkpoint.write_offset_checkpoint(self._disk, path, offsets)

    @contextmanager
    def _failing(self, name: str) -> Iterator[str]:
        """The path of a file that is being written."""
        path = f"{self._log_dir}/{name}"
        try:
            yield path
        except OSError as error:
            if not is_of_the_process(error):
                self._fail(path, error)
            raise


async def _without(keys: Iterable[TopicPartition], offsets: Offsets) -> Offsets:
    """The offsets themselves if they have none of the keys."""
    gone = [key for key in keys if key in offsets]
    if gone:
        offsets = offsets.copy()
        for key in gone:
            del offsets[key]
    return offsets
