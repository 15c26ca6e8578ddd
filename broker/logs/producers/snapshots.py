"""Writes, reads and removes producer snapshots, and builds the state of producers from them.

A snapshot is written when a segment begins and at an orderly stop. It is read at a start, and when a log was
truncated further than the remembered batches reach. Then only the batches after the newest usable snapshot
are read, and a few before it; without a snapshot, all of them. The batches that are stored below the log
start count, too: a producer whose records have all been deleted may repeat the last one. Work that cannot run
in the executor (a log is used on the event loop only) is done in slices.

A rebuild also restores what the transaction indexes lack: after an unclean stop, so it begins with a snapshot
from before that (:attr:`.Log.unindexed_from`), and while the state was behind, when no snapshot is written.
It begins before the high watermark if transactions have ended above that, since they still hold back readers.
A start that must pass over the newest snapshot still takes from it the producers that it finds nowhere else.

An empty snapshot at offset 0 means that the newer ones hold every producer that ever wrote: it is written
with the first of them, and removed when a producer is forgotten.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar

from pykraft.broker.logs.producers.rebuild import ProducerRebuild, add_unknown, snapshot_entries
from pykraft.broker.logs.producers.state import Captured, ProducerEntry, ProducerState
from pykraft.kafka_protocol.markers import Marker
from pykraft.kafka_protocol.records import BatchHeader
from pykraft.log_store.log.log import Log
from pykraft.log_store.producer_snapshot import (
    FoundSnapshot,
    encode_snapshot,
    pack_entries,
    prepare_snapshot,
    read_newest_snapshot,
    remove_snapshots_above,
    remove_unfinished_snapshots,
    remove_unneeded_snapshots,
    snapshot_path,
)
from pykraft.runtime.disk import Disk

LOOK_BACK_BYTES = 128 * 1024
"""How much is read before the offset of a snapshot: more than a client has in flight."""

HEADERS_PER_SLICE = 500
"""How much is read in one slice of the event loop: a few milliseconds."""

PRODUCERS_PER_JOB = 2000
"""In one job of the executor, since Python code in a thread holds up the event loop: some milliseconds."""

T = TypeVar("T")


class Run(Protocol):
    """Runs a blocking job, on values that nothing else uses, in the executor."""

    def __call__(self, job: Callable[[], T]) -> Awaitable[T]: ...


def load_producers(disk: Disk, log: Log, high_watermark: int) -> ProducerState:
    """The state as of the end of a log that is not in use yet. Blocks."""
    remove_unfinished_snapshots(disk, log.directory)
    newest = _read(disk, log, None)
    found = newest if log.unindexed_from is None else _read(disk, log, log.unindexed_from)
    if found is not None and high_watermark < found.offset:
        between = log.iter_stored_headers(high_watermark, found.offset)
        if any(header.is_control for header in between):
            found = _read(disk, log, high_watermark)
    rebuild, start = _begin(log, found, high_watermark)
    for header, marker in log.iter_produced(start):
        rebuild.replay(header, marker)
    log.restore_aborted(rebuild.aborted, start if found is None else found.offset)
    state = rebuild.finish()
    if newest is not None and newest is not found:
        add_unknown(state, newest.entries, newest.offset)
    return state


async def rebuild_producers(
    disk: Disk,
    log: Log,
    state: ProducerState,
    high_watermark: int,
    run: Run,
    pause: Callable[[], Awaitable[None]],
) -> None:
    """Bring a state to the end of its log, which may grow, and be truncated again, meanwhile."""
    while state.is_behind:
        cuts = log.truncation_count
        found = await run(partial(_read, disk, log, high_watermark))
        if log.truncation_count == cuts:
            await _walk(log, state, found, high_watermark, cuts, pause)


async def _walk(
    log: Log,
    state: ProducerState,
    found: FoundSnapshot | None,
    high_watermark: int,
    cuts: int,
    pause: Callable[[], Awaitable[None]],
) -> None:
    rebuild, start = _begin(log, found, high_watermark)
    first = start
    for _ in rebuild.take_in():
        await pause()
        if _is_gone(log, start, cuts):
            return
    while start < log.log_end_offset:
        end = log.log_end_offset
        batches: Iterator[tuple[BatchHeader, Marker | None]] = log.iter_produced(start, end)
        while slice_ := list(islice(batches, HEADERS_PER_SLICE)):
            for header, marker in slice_:
                rebuild.replay(header, marker)
            start = slice_[-1][0].next_offset
            if start < log.log_end_offset:
                await pause()
                if _is_gone(log, start, cuts):
                    return
        start = max(start, end)
    if state.is_behind:
        log.restore_aborted(rebuild.aborted, first if found is None else found.offset)
        state.adopt(rebuild.finish())


def _is_gone(log: Log, start: int, cuts: int) -> bool:
    """Whether to start over: the log no longer has what was read, or is read next."""
    return log.truncation_count != cuts or start < log.first_stored_offset


def _read(disk: Disk, log: Log, most: int | None) -> FoundSnapshot | None:
    first, end = log.first_stored_offset, log.log_end_offset
    return read_newest_snapshot(disk, log.directory, first, end, at_most=most)


def _begin(log: Log, found: FoundSnapshot | None, high_watermark: int) -> tuple[ProducerRebuild, int]:
    """A rebuild, and the offset from which to replay batches."""
    # Where batches may be missing, so may be all those of a producer.
    has_all = log.log_start_offset == 0 and log.compacted_offset == 0
    if found is None:
        rebuild = ProducerRebuild((), complete=has_all, high_watermark=high_watermark)
        return rebuild, log.first_stored_offset
    complete = found.is_complete and has_all
    rebuild = ProducerRebuild(found.entries, found.offset, complete=complete, high_watermark=high_watermark)
    return rebuild, log.offset_before(found.offset, LOOK_BACK_BYTES)


class SnapshotWriter:
    """Writes the snapshots of one log, one at a time.

    ``durable_offset``: the newest one that this process has made durable stands for all batches before it.
    """

    def __init__(self, disk: Disk, log: Log, state: ProducerState, run: Run) -> None:
        self._disk = disk
        self._log = log
        self._state = state
        self._run = run
        self.durable_offset = 0

    async def write(self, offset: int, captured: Captured, complete: bool) -> None:
        """Write the producers captured at ``offset``, unless the log has been truncated since."""
        cuts, directory = self._log.truncation_count, self._log.directory
        if complete and offset > 0:
            await self._write(0, iter(()), cuts)
        if await self._write(offset, captured, cuts):
            self.durable_offset = max(self.durable_offset, offset)
        bases = self._log.segment_base_offsets
        await self._run(partial(remove_unneeded_snapshots, self._disk, directory, bases))

    async def _write(self, offset: int, captured: Captured, cuts: int) -> bool:
        """Whether it is there, durably."""
        log, path = self._log, snapshot_path(self._log.directory, offset)
        parts = list[bytes]()
        while part := dict(islice(captured, PRODUCERS_PER_JOB)):
            parts.append(await self._run(partial(_pack, part)))
        prepared = await self._run(partial(_prepare, self._disk, log.directory, offset, parts))
        # Renamed on the event loop, where logs are truncated: never after a truncation it does not know of.
        if log.truncation_count == cuts and (offset > 0 or self._state.complete):
            self._disk.rename(prepared, path)
            await self._run(partial(self._disk.flush_dir, log.directory))
            return log.truncation_count == cuts
        self._disk.remove(prepared)
        return False

    def remove_above(self, offset: int) -> None:
        """Remove the snapshots above ``offset``, to which the log is being truncated; at 0 all of them."""
        if self.durable_offset > offset:
            self.durable_offset = 0  # an older one may be left: it is not looked for
        remove_snapshots_above(self._disk, self._log.directory, offset if offset > 0 else -1)

    def remove_unneeded(self) -> None:
        """Remove the snapshots of segments that were deleted."""
        remove_unneeded_snapshots(self._disk, self._log.directory, self._log.segment_base_offsets)

    def forget_some(self) -> None:
        """Producers were forgotten: no snapshot holds all producers that ever wrote any more."""
        self._disk.remove(snapshot_path(self._log.directory, 0))


def _prepare(disk: Disk, directory: str, offset: int, parts: list[bytes]) -> str:
    return prepare_snapshot(disk, directory, offset, encode_snapshot(parts))


def _pack(part: dict[int, ProducerEntry]) -> bytes:
    return pack_entries(snapshot_entries(part))
