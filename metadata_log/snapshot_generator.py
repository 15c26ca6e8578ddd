"""Writes this node's snapshots of the metadata in small slices, beside all its other work.

The image is immutable: the log continues to be folded while an older image is written, and a snapshot is
still of exactly one committed offset. Between two slices the writer yields to the event loop and pauses, so
that a million partitions delay no other work. When a newer snapshot is loaded, or the node stops, the
unfinished snapshot is abandoned and leaves no file. The quorum decides where the bytes are written, when the
snapshot is complete, and which part of the log is then deleted.
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
"""The pause between two slices of about a millisecond each: writing takes at most a third of one core."""


class SnapshotWriter(Protocol):
    """One snapshot that is being written."""

    def append(self, values: Sequence[bytes]) -> None: ...

    async def finish(self) -> object | None:
        """Make the snapshot durable and valid; None if the replica has halted meanwhile."""
        ...

    def abort(self) -> None: ...


class SnapshotQuorum(Protocol):
    """The generator's view of the quorum."""

    def start_snapshot(self, end_offset: int, append_time_ms: int) -> SnapshotWriter | None:
        """Start a snapshot; None if there already is one of this offset or a later one."""
        ...


class SnapshotGenerator:
    """Is told by the loader what is committed; writes snapshots through ``quorum`` on a schedule."""

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
        """Stop writing; an unfinished snapshot is abandoned."""
        await self._tasks.close()

    # Calls of the loader

    def handle_commit(self, batches: Sequence[CommittedBatch], image: MetadataImage) -> None:
        """The batches are committed; ``image`` includes them."""
        self._image = image
        self._append_time_ms = batches[-1].append_time_ms
        counted = self._schedule.committed_bytes
        self._schedule.handle_commit(sum(batch.size_bytes for batch in batches))
        if counted == 0 or self._wait_ms() == 0:
            self._news.set()

    def begin_snapshot(self) -> None:
        """A snapshot is being loaded in place of the local state: one that is written here is out of date."""
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
        # Batches that are committed from here on count towards the next snapshot.
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
