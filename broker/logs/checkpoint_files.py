"""The checkpoint files of one log directory: of each of its logs the recovery point, the log start, the high
watermark, how far it was compacted, and how far Kafka's compaction may have left gaps.

A start after a crash trusts them: none may ever promise more than the logs hold. Decides what is written and
in which order, not when (:mod:`.log_manager`); never touches a log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store import checkpoint
from pykraft.log_store.interface import CorruptCheckpointError
from pykraft.log_store.log import Log
from pykraft.log_store.segment import MAX_OFFSET
from pykraft.runtime.disk import Disk, UnreadableError
from pykraft.runtime.tasks import Workers

logger = logging.getLogger(__name__)

_NAMES = (
    checkpoint.RECOVERY_POINT_CHECKPOINT,
    checkpoint.LOG_START_OFFSET_CHECKPOINT,
    checkpoint.REPLICATION_OFFSET_CHECKPOINT,
    checkpoint.CLEANER_OFFSET_CHECKPOINT,
)
_LOWERED = (checkpoint.CLEANER_OFFSET_CHECKPOINT, checkpoint.GAP_OFFSET_CHECKPOINT)
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

    ``damaged``: those that are not, and whose directories do not say so yet. ``fail`` is called with the path
    and the error of a write that failed; the error is then raised.
    """

    def __init__(
        self,
        disk: Disk,
        log_dir: str,
        stored: StoredOffsets,
        logs: Callable[[], Mapping[TopicPartition, Log]],
        damaged: Callable[[], Collection[TopicPartition]],
        workers: Workers,
        fail: Callable[[str, OSError], object],
    ) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._stored = stored
        self._lowered = dict(zip(_LOWERED, (stored.compacted, stored.gaps or {}), strict=True))
        self._logs = logs
        self._damaged = damaged
        self._workers = workers
        self._fail = fail
        #: Held while a file is written in the executor, so that an older version never replaces a newer one.
        self._writing = asyncio.Lock()

    def cleaned_offset(self, key: TopicPartition) -> int | None:
        """What the last round of compaction reached, as a start would find it; None if there was none."""
        return self._lowered[checkpoint.CLEANER_OFFSET_CHECKPOINT].get(key)

    async def write_cleaned_offset(self, key: TopicPartition, offset: int, truncation_count: int) -> None:
        """Write what a round of compaction has reached, unless the log was removed, or truncated since that
        count was taken.
        """
        async with self._writing:
            if self._truncation_counts([key]) != {key: truncation_count}:
                return
            name = checkpoint.CLEANER_OFFSET_CHECKPOINT
            await self._replace_lowered(name, {**_only(self._lowered[name], self._logs()), key: offset})

    async def forget_gaps(self, key: TopicPartition) -> None:
        """A round of compaction has filled all gaps of a log."""
        name = checkpoint.GAP_OFFSET_CHECKPOINT
        async with self._writing:
            offsets = _only(self._lowered[name], self._logs())
            if offsets.pop(key, None) is not None:
                await self._replace_lowered(name, offsets)

    def lower(self, key: TopicPartition, end_offset: int) -> None:
        """Lower the checkpoints: none may claim more of a log than it will hold.

        They are written at once and before the truncation: otherwise a start after a crash would take the
        truncated tail for damage, or trust bytes that were appended later and never flushed.
        """
        if self._stored.recovery_points.get(key, 0) > end_offset:
            self.write_recovery_points([(key, end_offset)])
        starts = self._stored.log_starts
        # A log that is cut at its start keeps it, or deleted records would be back after a power loss. It
        # moves back a little if the cut is within the batch of its start. At 0 it starts over elsewhere.
        if key in starts and (starts[key] > end_offset or end_offset == 0):
            starts = {k: start for k, start in starts.items() if k != key}
            if end_offset > 0:
                starts[key] = end_offset
            with self._failing(checkpoint.LOG_START_OFFSET_CHECKPOINT) as path:
                checkpoint.write_offset_checkpoint(self._disk, path, starts)
            self._stored.log_starts = starts
        for name, offsets in self._lowered.items():
            if offsets.get(key, 0) > end_offset:
                with self._failing(name) as path:
                    checkpoint.write_offset_checkpoint(self._disk, path, {**offsets, key: end_offset})
                self._lowered[name] = {**offsets, key: end_offset}

    async def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Remove from the files what they still say about logs that no longer exist.

        Their entries go by name: after a crash a new log would be taken to be as durable, as committed and as
        far deleted as the old one was; and a log that was deleted on purpose would be reported missing.
        """
        keys, stored = frozenset(keys), self._stored
        if keys & stored.recovery_points.keys():
            self.write_recovery_points()
        async with self._writing:
            if keys & stored.log_starts.keys():
                await self._replace_log_starts(_only(stored.log_starts, self._logs()))
        for name in _LOWERED:
            async with self._writing:
                if keys & self._lowered[name].keys():
                    await self._replace_lowered(name, _only(self._lowered[name], self._logs()))
        async with self._writing:
            if keys & stored.high_watermarks.keys():
                await self._replace_high_watermarks(_only(stored.high_watermarks, self._logs()))

    def write_recovery_points(self, lowered: Iterable[tuple[TopicPartition, int]] = ()) -> None:
        """Not in the executor: an older, higher recovery point must not overtake a truncation.

        Damaged logs that are not yet renamed keep theirs: without it a start would take a hole for a lost
        tail.
        """
        points = _only(self._stored.recovery_points, self._damaged())
        points.update((key, log.recovery_point) for key, log in self._logs().items())
        points.update(lowered)
        with self._failing(checkpoint.RECOVERY_POINT_CHECKPOINT) as path:
            checkpoint.write_offset_checkpoint(self._disk, path, points)
        self._stored.recovery_points = points

    async def write_log_starts(self) -> None:
        """Also of logs that start at 0, so that a start can tell whether the oldest segments are missing."""
        async with self._writing:  # a log that began anew while this waited has another start
            await self._replace_log_starts({key: log.log_start_offset for key, log in self._logs().items()})

    async def _replace_log_starts(self, starts: Offsets) -> None:
        """Write the log starts. The file is renamed on the event loop, where logs are truncated: an older
        start must not overtake :meth:`lower`. If a log was truncated meanwhile, the file is prepared again.
        The logs are told once it is durable.
        """
        prepared = f"{self._log_dir}/{checkpoint.LOG_START_OFFSET_CHECKPOINT}.new"
        with self._failing(checkpoint.LOG_START_OFFSET_CHECKPOINT) as path:
            while True:
                cuts = self._truncation_counts(starts)
                job = partial(checkpoint.write_offset_checkpoint, self._disk, prepared, starts)
                await self._workers.run(job)
                if self._truncation_counts(starts) == cuts:
                    break
                logs = self._logs()
                starts = {key: logs[key].log_start_offset for key in starts if key in logs}
            self._disk.rename(prepared, path)
            self._stored.log_starts = starts
            await self._workers.run(partial(self._disk.flush_dir, self._log_dir))
        for key, log in self._logs().items():
            if key in starts and log.truncation_count == cuts.get(key):
                log.log_start_stored(starts[key])

    async def _replace_lowered(self, name: str, offsets: Offsets) -> None:
        """As :meth:`_replace_log_starts`. Logs that are truncated meanwhile keep what :meth:`lower` has left
        them.
        """
        prepared = f"{self._log_dir}/{name}.new"
        with self._failing(name) as path:
            while True:
                cuts = self._truncation_counts(offsets)
                job = partial(checkpoint.write_offset_checkpoint, self._disk, prepared, offsets)
                await self._workers.run(job)
                now = self._truncation_counts(offsets)
                if now == cuts:
                    break
                known = self._lowered[name]
                offsets = {
                    key: known[key] if now.get(key) != cuts.get(key) else offset
                    for key, offset in offsets.items()
                    if now.get(key) == cuts.get(key) or key in known
                }
            self._disk.rename(prepared, path)
            self._lowered[name] = offsets
            await self._workers.run(partial(self._disk.flush_dir, self._log_dir))

    def _truncation_counts(self, keys: Iterable[TopicPartition]) -> Offsets:
        logs = self._logs()
        return {key: logs[key].truncation_count for key in keys if key in logs}

    async def write_high_watermarks(
        self, high_watermarks: Mapping[TopicPartition, int], meant: Mapping[TopicPartition, Log]
    ) -> None:
        """Of ``meant``, the logs that the high watermarks belong to."""
        async with self._writing:
            await self._replace_high_watermarks(self._still_meant(_only(high_watermarks, meant), meant))

    async def _replace_high_watermarks(self, offsets: Offsets) -> None:
        with self._failing(checkpoint.REPLICATION_OFFSET_CHECKPOINT) as path:
            await self._workers.run(partial(checkpoint.write_offset_checkpoint, self._disk, path, offsets))
        self._stored.high_watermarks = offsets

    def _still_meant(self, offsets: Offsets, meant: Mapping[TopicPartition, Log]) -> Offsets:
        """Without logs that were deleted, and perhaps created again under the same name, meanwhile."""
        logs = self._logs()
        return {key: offset for key, offset in offsets.items() if logs.get(key) is meant[key]}

    @contextmanager
    def _failing(self, name: str) -> Iterator[str]:
        """The path of a file that is being written."""
        path = f"{self._log_dir}/{name}"
        try:
            yield path
        except OSError as error:
            self._fail(path, error)
            raise


def _only(offsets: Mapping[TopicPartition, int], keys: Collection[TopicPartition]) -> Offsets:
    return {key: offset for key, offset in offsets.items() if key in keys}
