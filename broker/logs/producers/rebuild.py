"""Builds the state of producers from a log, and the snapshots that make that quick.

A snapshot holds the last batch of each producer (Kafka's format has no room for more) and where its
transaction began. A rebuild from a snapshot also replays the batches right before it, which a client may have
had in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from pykraft.broker.logs.producers.state import (
    KEPT_BATCHES,
    NO_OFFSET,
    Captured,
    ProducedBatch,
    ProducerEntry,
    ProducerState,
)
from pykraft.kafka_protocol.markers import Marker
from pykraft.kafka_protocol.records import BatchHeader
from pykraft.log_store.indexes.transaction_index import AbortedTransaction
from pykraft.log_store.producer_snapshot import NO_SEQUENCE, SnapshotEntry

ENTRIES_PER_SLICE = 2000
"""So much of a snapshot is taken in at once: a few milliseconds."""


class ProducerRebuild:
    """Builds a state from a snapshot and, in order, some batches before it and all batches after it.

    ``offset``: of the snapshot; all batches count if there is none. ``high_watermark``: no transaction counts
    whose marker is below (:class:`.Transactions`).
    """

    def __init__(
        self,
        entries: Iterable[SnapshotEntry],
        offset: int | None = None,
        *,
        complete: bool,
        high_watermark: int = 0,
    ) -> None:
        self._rest = iter(entries)
        self._known: dict[int, ProducerEntry] = {}
        self._open_transactions: list[tuple[int, int]] = []
        self._offset = offset
        self._state = ProducerState(complete=complete, high_watermark=high_watermark)
        #: Aborted by the markers after the snapshot.
        self.aborted: list[AbortedTransaction] = []

    def take_in(self) -> Iterator[int]:
        """Take in the snapshot, and tell after each part how many producers those were; what is left of it
        when the first batch after it is replayed is taken in at once.
        """
        while part := list(islice(self._rest, ENTRIES_PER_SLICE)):
            for known in part:
                self._known[known.producer_id] = _known_entry(known)
                if known.current_transaction_first_offset >= 0:
                    self._open_transactions.append(
                        (known.producer_id, known.current_transaction_first_offset)
                    )
            yield len(part)

    def replay(self, header: BatchHeader, marker: Marker | None = None) -> None:
        if self._offset is not None:
            if header.base_offset < self._offset:
                self._state.replay(header)  # its markers are in the snapshot
                return
            self._join_snapshot(self._offset)
        aborted = self._state.replay(header, marker)
        if aborted is not None:
            self.aborted.append(aborted)

    def finish(self) -> ProducerState:
        """The state as of the last batch."""
        if self._offset is not None:
            self._join_snapshot(self._offset)
        return self._state

    def _join_snapshot(self, offset: int) -> None:
        """The snapshot tells all but the earlier ones of the last batches."""
        for _ in self.take_in():
            pass
        for producer_id, replayed in self._state.items():
            known = self._known.get(producer_id)
            if known is None:
                self._known[producer_id] = ProducerEntry(
                    replayed.epoch, replayed.batches, replayed.timestamp_ms
                )
            elif known.batches and replayed.epoch == known.epoch:
                self._known[producer_id] = _join(replayed, known)
        self._state.restore(self._known, self._open_transactions, offset)
        self._offset = None


def _join(replayed: ProducerEntry, known: ProducerEntry) -> ProducerEntry:
    """An entry of a snapshot, with the batches of its epoch that were replayed before it."""
    last = known.batches[-1]
    same = [batch for batch in replayed.batches if batch.next_offset == last.next_offset]
    earlier = [batch for batch in replayed.batches if batch.next_offset <= last.base_offset]
    batches = (*earlier, *(same or [last]))[-KEPT_BATCHES:]
    return ProducerEntry(
        known.epoch, batches, known.timestamp_ms, known.coordinator_epoch, known.first_offset
    )


def _known_entry(known: SnapshotEntry) -> ProducerEntry:
    return ProducerEntry(
        known.producer_epoch,
        (_last_batch(known),) if known.last_offset >= 0 else (),
        known.timestamp_ms,
        known.coordinator_epoch,
        known.current_transaction_first_offset,
    )


def add_unknown(state: ProducerState, entries: Iterable[SnapshotEntry], offset: int) -> None:
    """Add the producers of a later snapshot whose batches are all gone, and with them their transactions."""
    gone = [known for known in entries if state.entry(known.producer_id) is None]
    without = [known._replace(current_transaction_first_offset=NO_OFFSET) for known in gone]
    state.add({known.producer_id: _known_entry(known) for known in without}, offset)


def remembered_offsets(captured: Captured) -> Iterator[tuple[int, int, list[int]]]:
    """For each producer its id, its epoch, and the last offsets of its remembered batches, which a rebuild
    has to find in the log; none if it is known by a marker of that epoch alone, which has to be found then.
    """
    for producer_id, entry in captured:
        yield producer_id, entry.epoch, [batch.next_offset - 1 for batch in entry.batches]


def snapshot_entries(captured: Mapping[int, ProducerEntry]) -> list[SnapshotEntry]:
    """The last batch of each producer, and its transaction, in order of the producer ids."""
    entries = []
    for producer_id in sorted(captured):
        entry = captured[producer_id]
        last_sequence, last_offset, offset_delta = NO_SEQUENCE, NO_OFFSET, 0
        if entry.batches:
            last = entry.batches[-1]
            last_sequence, last_offset = last.last_sequence, last.next_offset - 1
            offset_delta = last_offset - last.base_offset
        entries.append(
            SnapshotEntry(
                producer_id,
                entry.epoch,
                last_sequence,
                last_offset,
                offset_delta,
                entry.timestamp_ms,
                entry.coordinator_epoch,
                entry.first_offset,
            )
        )
    return entries


def _last_batch(entry: SnapshotEntry) -> ProducedBatch:
    return ProducedBatch(
        NO_SEQUENCE if entry.last_sequence == NO_SEQUENCE else entry.first_sequence,
        entry.last_sequence,
        entry.last_offset - entry.offset_delta,
        entry.last_offset + 1,
        entry.timestamp_ms,
    )


def rebuild(
    batches: Iterable[tuple[BatchHeader, Marker | None]], *, log_start_offset: int, high_watermark: int = 0
) -> ProducerState:
    """The state as of the end of a log, from all its batches (:meth:`.Log.iter_produced`)."""
    state = ProducerState(complete=log_start_offset == 0, high_watermark=high_watermark)
    for header, marker in batches:
        state.replay(header, marker)
    return state
