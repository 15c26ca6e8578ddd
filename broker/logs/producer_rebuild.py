"""Builds the state of producers from a log, and the snapshots that make that quick.

A snapshot holds the last batch of each producer (Kafka's format has no room for more) and where its
transaction began. A rebuild from a snapshot also replays the batches right before it, which a client may have
had in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykraft.broker.logs.producer_state import (
    KEPT_BATCHES,
    NO_OFFSET,
    ProducedBatch,
    ProducerEntry,
    ProducerState,
)
from pykraft.kafka_protocol.markers import Marker
from pykraft.kafka_protocol.records import BatchHeader
from pykraft.log_store.producer_snapshot import NO_SEQUENCE, SnapshotEntry
from pykraft.log_store.transaction_index import AbortedTransaction


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
        self._known = list(entries)
        self._offset = offset
        self._state = ProducerState(complete=complete, high_watermark=high_watermark)
        #: Aborted by the markers after the snapshot.
        self.aborted: list[AbortedTransaction] = []

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
        entries = {
            producer_id: ProducerEntry(entry.epoch, entry.batches, entry.timestamp_ms)
            for producer_id, entry in self._state.capture().items()
        }
        open_transactions = []
        for known in self._known:
            entries[known.producer_id] = _join(entries.get(known.producer_id), known)
            if known.current_transaction_first_offset >= 0:
                open_transactions.append((known.producer_id, known.current_transaction_first_offset))
        self._state.restore(entries, open_transactions, offset)
        self._offset = None


def _join(replayed: ProducerEntry | None, known: SnapshotEntry) -> ProducerEntry:
    """An entry of a snapshot, with the batches that were replayed before it."""
    batches: tuple[ProducedBatch, ...] = ()
    if known.last_offset >= 0:
        last = _last_batch(known)
        batches = (last,)
        if replayed is not None and replayed.epoch == known.producer_epoch:
            same = [batch for batch in replayed.batches if batch.next_offset == last.next_offset]
            earlier = [batch for batch in replayed.batches if batch.next_offset <= last.base_offset]
            batches = (*earlier, *(same or [last]))[-KEPT_BATCHES:]
    return ProducerEntry(
        known.producer_epoch,
        batches,
        known.timestamp_ms,
        known.coordinator_epoch,
        known.current_transaction_first_offset,
    )


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
