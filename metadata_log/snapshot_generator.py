"""Writes this node's snapshots of the metadata, a little at a time beside all its other work.

The image is immutable, so the log goes on being folded while an older image is written; a snapshot is of one
committed offset all the same. Between two slices the loop is given back and rests a while, so that a million
partitions delay nobody. A snapshot that a newer one overtakes, or a stop, is abandoned without trace. Where
the bytes go, when they count, and what then leaves the log is the quorum's business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage
from pykraft.metadata_log.snapshot import iter_snapshot_values
from pykraft.metadata_log.snapshot_schedule import SnapshotConfig, SnapshotSchedule
from pykraft.quorum.listener import CommittedBatch
from pykraft.runtime.clock import Clock
from pykraft.runtime.tasks import FatalHandler, TaskSupervisor

logger = logging.getLogger(__name__)

PAUSE_S: Final = 0.002
"""Between two slices of about a millisecond: a third of one core at most."""


class SnapshotWriter(Protocol):
    """One snapshot on its way to the disk."""

    def append(self, values: Sequence[bytes]) -> None: ...

    async def finish(self) -> object | None:
        """Make it durable and let it count; None if the replica has halted meanwhile."""
        ...

    def abort(self) -> None: ...


class SnapshotQuorum(Protocol):
    """What the generator needs of the quorum."""

    def start_snapshot(self, end_offset: int, append_time_ms: int) -> SnapshotWriter | None:
        """None if there is a snapshot of this offset or a later one already."""
        ...


class SnapshotGenerator:
    """Told by the loader what is committed; writes snapshots through ``quorum`` by the schedule."""

    def __init__(
        self, config: SnapshotConfig, quorum: SnapshotQuorum, clock: Clock, on_fatal: FatalHandler
    ) -> None:
        self._quorum = quorum
        self._clock = clock
        self._schedule = SnapshotSchedule(config, clock.monotonic_ms())
        self._tasks = TaskSupervisor(on_fatal)
        self._image = EMPTY_IMAGE
        self._append_time_ms = 0
        self._writer: SnapshotWriter | None = None
        self._loading = False
        self._news = asyncio.Event()

    def start(self) -> None:
        """Begin to write snapshots."""
        self._tasks.start(self._run(), "metadata-snapshots")

    async def stop(self) -> None:
        """Write no more; what is half written is abandoned."""
        await self._tasks.close()

    # What the loader tells

    def handle_commit(self, batches: Sequence[CommittedBatch], image: MetadataImage) -> None:
        """``image`` is what is committed up to the last of the batches."""
        self._image = image
        self._append_time_ms = batches[-1].append_time_ms
        counted = self._schedule.committed_bytes
        self._schedule.handle_commit(sum(batch.size_bytes for batch in batches))
        if counted == 0 or self._wait_ms() == 0:
            self._news.set()

    def begin_snapshot(self) -> None:
        """A snapshot is being loaded in place of all that was known here: ours would be of the past."""
        self._loading = True
        if self._writer is not None:
            self._writer.abort()
            self._writer = None

    def finish_snapshot(self, image: MetadataImage, append_time_ms: int) -> None:
        """The snapshot is loaded."""
        self._loading = False
        self._image = image
        self._append_time_ms = append_time_ms
        self._schedule.handle_snapshot(self._clock.monotonic_ms())
        self._news.set()

    # The one task

    def _wait_ms(self) -> int | None:
        return None if self._loading else self._schedule.wait_ms(self._clock.monotonic_ms())

    async def _run(self) -> None:
        while True:
            self._news.clear()
            wait_ms = self._wait_ms()
            if wait_ms == 0:
                await self._write()
                continue
            try:
                async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _write(self) -> None:
        image, started_ms = self._image, self._clock.monotonic_ms()
        # What is committed from here on counts for the next one.
        self._schedule.handle_snapshot(started_ms)
        writer = self._quorum.start_snapshot(image.offset + 1, self._append_time_ms)
        if writer is None:
            return
        self._writer = writer
        try:
            for values in iter_snapshot_values(image):
                if values:
                    writer.append(values)
                await asyncio.sleep(PAUSE_S)
                if self._writer is not writer:
                    return
            self._writer = None  # too late to be abandoned
            snapshot_id = await writer.finish()
        finally:
            if self._writer is writer:
                self._writer = None
                writer.abort()
        if snapshot_id is None:
            return
        took_ms = self._clock.monotonic_ms() - started_ms
        logger.info("wrote a snapshot of the metadata up to offset %d in %d ms", image.offset, took_ms)
