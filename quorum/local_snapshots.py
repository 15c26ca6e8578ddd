"""Snapshots that the local replica makes of its own committed state, and the log that they replace.

The state comes from a listener, value by value, over any number of turns of the loop
(:class:`SnapshotWriter`); the file is made durable in a worker thread. One is written at a time. Then the
replica is notified, and the log before the snapshot is deleted as far as the retention settings allow. A disk
fault halts the replica, like any other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from pykraft.log_store.log.log import Log
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.events import Event, RetentionReached, SnapshotTaken
from pykraft.quorum.core.voters import VoterSet
from pykraft.quorum.snapshots import SnapshotFileWriter, SnapshotId, SnapshotInfo, SnapshotStore
from pykraft.runtime.clock import Clock

_ROLL_SHARE = 8


class SnapshotWriter:
    """Takes the values of one snapshot, in order. :meth:`finish` or :meth:`abort` must follow.

    If the replica halts meanwhile, calls have no effect and :meth:`finish` returns None.
    """

    def __init__(self, owner: LocalSnapshots, file: SnapshotFileWriter) -> None:
        self._owner = owner
        self._file = file
        self.snapshot_id: SnapshotId = file.info.snapshot_id

    def append(self, values: Sequence[bytes]) -> None:
        """The next values. Writes to the page cache; pass slices that fit into a turn of the loop."""
        self._owner.attempt(self, lambda: self._file.append(values))

    async def finish(self) -> SnapshotId | None:
        """All values are in: the snapshot is durable on return, and the log may have been shortened."""
        return await self._owner.finish(self, self._file)

    def abort(self) -> None:
        """Give up and remove the file. Harmless after :meth:`finish`."""
        self._owner.attempt(self, self._file.discard)
        self._owner.forget(self)


class LocalSnapshots:
    """``run_blocking`` runs a job in a thread; ``fail`` halts the replica; ``step`` takes an event."""

    def __init__(
        self,
        log: Log,
        store: SnapshotStore,
        config: QuorumConfig,
        clock: Clock,
        run_blocking: Callable[[Callable[[], None]], Awaitable[None]],
        step: Callable[[Event], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._store = store
        self._config = config
        self._clock = clock
        self._run_blocking = run_blocking
        self._step = step
        self._fail = fail
        self._writer: SnapshotWriter | None = None

    def begin(
        self, snapshot_id: SnapshotId, append_time_ms: int, voters: VoterSet | None
    ) -> SnapshotWriter | None:
        """A writer; None if one is active, or no batch ends there."""
        if self._writer is not None or not self._is_batch_boundary(snapshot_id.end_offset):
            return None
        try:
            file = self._store.writer(snapshot_id, append_time_ms, voters)
        except OSError as error:
            self._fail(error)
            return None
        self._writer = SnapshotWriter(self, file)
        return self._writer

    def _is_batch_boundary(self, offset: int) -> bool:
        for header in self._log.iter_headers(offset):
            return header.base_offset == offset
        return offset == self._log.log_end_offset

    def attempt(self, writer: SnapshotWriter, action: Callable[[], None]) -> bool:
        """Apply an operation to the file of the active writer; returns whether it was applied."""
        if writer is not self._writer:
            return False
        try:
            action()
        except OSError as error:
            self._fail(error)
        return writer is self._writer

    async def finish(self, writer: SnapshotWriter, file: SnapshotFileWriter) -> SnapshotId | None:
        if not self.attempt(writer, file.finish):
            return None
        try:
            await self._run_blocking(file.publish)
            if writer is not self._writer:
                return None
            self._writer = None
            self._published(file.info)
        except OSError as error:
            self._fail(error)
            return None
        return writer.snapshot_id

    def _published(self, info: SnapshotInfo) -> None:
        self._store.add(info)
        self._step(SnapshotTaken(info.snapshot_id))
        if self._log.active_segment_bytes * _ROLL_SHARE >= self._config.max_retention_bytes >= 0:
            # Only whole segments can be deleted.
            self._log.roll(self._clock.wall_ms())
        self.clean()

    def clean(self) -> None:
        """Delete what the retention settings no longer require."""
        chosen = choose_log_start(
            self._store.infos(),
            self._log.log_start_offset,
            self._log.size_bytes_from,
            now_ms=self._clock.wall_ms(),
            max_bytes=self._config.max_retention_bytes,
            max_ms=self._config.max_retention_ms,
        )
        if chosen is not None:
            self._step(RetentionReached(chosen))

    def forget(self, writer: SnapshotWriter | None = None) -> None:
        """This writer, or any, has ended."""
        if writer is None or writer is self._writer:
            self._writer = None


def choose_log_start(
    infos: Sequence[SnapshotInfo],
    log_start_offset: int,
    log_bytes_from: Callable[[int], int],
    *,
    now_ms: int,
    max_bytes: int,
    max_ms: int,
) -> SnapshotId | None:
    """The snapshot at whose end the log should start now; None if it may stay as it is. Pure.

    The log may start at the end of any snapshot, and everything before it is deleted; the newest one stays.

    ``infos``: oldest first. ``log_bytes_from(offset)``: size of the log if it starts there. ``max_bytes``
    counts log and snapshots together. ``max_ms``: what is older, by the time of the last batch in a snapshot,
    is deleted; -1 for no limit (both).
    """
    chosen: SnapshotId | None = None
    start_offset = log_start_offset
    for info in infos:
        end_offset = info.snapshot_id.end_offset
        if end_offset <= log_start_offset:
            continue
        kept_bytes = log_bytes_from(start_offset)
        kept_bytes += sum(i.size_bytes for i in infos if i.snapshot_id.end_offset >= start_offset)
        is_old = 0 <= max_ms < now_ms - info.last_contained_log_time_ms
        if not is_old and not 0 <= max_bytes < kept_bytes:
            break
        chosen, start_offset = info.snapshot_id, end_offset
    return chosen
