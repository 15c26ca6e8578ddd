"""When producer snapshots are written, read and removed, and how a state is built from them.

Written when a segment begins and at an orderly stop; read at start and when a log was cut behind what is
remembered. Then only the batches behind the newest usable one are walked over, with a little before it;
without any, all of them. What cannot be done in the executor (a log is used on the event loop only) is done
in slices.

An empty snapshot at offset 0 says that the newer ones hold every producer there ever was: it is written
beside the first of them, and goes when one is forgotten.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar

from pykraft.broker.logs.producer_state import ProducerEntry, ProducerRebuild, ProducerState, snapshot_entries
from pykraft.kafka_protocol.records import BatchHeader
from pykraft.log_store.log import Log
from pykraft.log_store.producer_snapshot import (
    FoundSnapshot,
    encode_snapshot,
    prepare_snapshot,
    read_newest_snapshot,
    remove_snapshots_above,
    remove_unfinished_snapshots,
    remove_unneeded_snapshots,
    snapshot_path,
)
from pykraft.runtime.disk import Disk

LOOK_BACK_BYTES = 128 * 1024
"""Of batches before a snapshot: more than a client has in flight."""

HEADERS_PER_SLICE = 500
"""A slice of the event loop: a few milliseconds."""

T = TypeVar("T")


class Run(Protocol):
    """Runs a blocking job on values of its own in the executor."""

    def __call__(self, job: Callable[[], T]) -> Awaitable[T]: ...


def load_producers(disk: Disk, log: Log) -> ProducerState:
    """The state as of the end of a log that nobody uses yet. Blocks."""
    remove_unfinished_snapshots(disk, log.directory)
    rebuild, start = _begin(log, _read(disk, log))
    for header in log.iter_headers(start):
        rebuild.replay(header)
    return rebuild.finish()


async def rebuild_producers(
    disk: Disk, log: Log, state: ProducerState, run: Run, pause: Callable[[], Awaitable[None]]
) -> None:
    """Bring a state that is behind to the end of its log, which may grow, and be cut again, meanwhile."""
    while state.is_behind:
        cuts = log.truncation_count
        found = await run(partial(_read, disk, log))
        if log.truncation_count == cuts:
            await _walk(log, state, found, cuts, pause)


async def _walk(
    log: Log,
    state: ProducerState,
    found: FoundSnapshot | None,
    cuts: int,
    pause: Callable[[], Awaitable[None]],
) -> None:
    rebuild, start = _begin(log, found)
    while start < log.log_end_offset:
        headers: Iterator[BatchHeader] = log.iter_headers(start)
        while slice_ := list(islice(headers, HEADERS_PER_SLICE)):
            for header in slice_:
                rebuild.replay(header)
            start = slice_[-1].next_offset
            if start < log.log_end_offset:
                await pause()
                if log.truncation_count != cuts or start < log.log_start_offset:
                    return  # begin again: what was read is gone
    if state.is_behind:
        state.adopt(rebuild.finish())


def _read(disk: Disk, log: Log) -> FoundSnapshot | None:
    return read_newest_snapshot(disk, log.directory, log.log_start_offset, log.log_end_offset)


def _begin(log: Log, found: FoundSnapshot | None) -> tuple[ProducerRebuild, int]:
    """A rebuild, and the offset from which batches are to be replayed."""
    if found is None:
        return ProducerRebuild((), complete=log.log_start_offset == 0), log.log_start_offset
    complete = found.is_complete and log.log_start_offset == 0
    return ProducerRebuild(found.entries, complete=complete), log.offset_before(found.offset, LOOK_BACK_BYTES)


class SnapshotWriter:
    """Writes the snapshots of one log, one at a time."""

    def __init__(self, disk: Disk, log: Log, state: ProducerState, run: Run) -> None:
        self._disk = disk
        self._log = log
        self._state = state
        self._run = run

    async def write(self, offset: int, captured: dict[int, ProducerEntry], complete: bool) -> None:
        """Write what was captured at ``offset``, unless the log has been cut since."""
        cuts, directory = self._log.truncation_count, self._log.directory
        if complete and offset > 0:
            await self._write(0, {}, cuts)
        await self._write(offset, captured, cuts)
        bases = self._log.segment_base_offsets
        await self._run(partial(remove_unneeded_snapshots, self._disk, directory, bases))

    async def _write(self, offset: int, captured: dict[int, ProducerEntry], cuts: int) -> None:
        log, path = self._log, snapshot_path(self._log.directory, offset)
        prepared = await self._run(partial(_prepare, self._disk, log.directory, offset, captured))
        # It gets its name on the event loop, where logs are cut: never after a cut that it does not know.
        if log.truncation_count == cuts and (offset > 0 or self._state.complete):
            self._disk.rename(prepared, path)
        else:
            self._disk.remove(prepared)

    def remove_above(self, offset: int) -> None:
        """The log is about to be cut at ``offset``; at 0 nothing of it stays."""
        remove_snapshots_above(self._disk, self._log.directory, offset if offset > 0 else -1)

    def remove_unneeded(self) -> None:
        """Old segments are gone."""
        remove_unneeded_snapshots(self._disk, self._log.directory, self._log.segment_base_offsets)

    def forget_some(self) -> None:
        """Producers were forgotten: no snapshot holds all there ever were any more."""
        self._disk.remove(snapshot_path(self._log.directory, 0))


def _prepare(disk: Disk, directory: str, offset: int, captured: dict[int, ProducerEntry]) -> str:
    return prepare_snapshot(disk, directory, offset, encode_snapshot(snapshot_entries(captured)))
