"""The invariants of the state that a replica derives from its records: it equals what its batches give.

Its producers, its leader epochs and its look-ups by time are derived from batch headers while batches are
written, truncated, deleted, snapshotted and loaded again; here they are compared with the result of one walk
over the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pykraft.broker.logs.producers.snapshots import LOOK_BACK_BYTES
from pykraft.broker.logs.producers.state import ProducedBatch, ProducerState
from pykraft.log_store.compaction.transactions import TransactionScan

if TYPE_CHECKING:
    from pykraft.kafka_protocol.records import BatchHeader
    from pykraft.log_store.log.log import Log

DERIVED: Final = "the state derived from a log equals what the log gives"

_KEPT_BATCHES: Final = 5
"""Batches of each producer: as many as a client may have in flight."""
_TIMES: Final = 5
"""How many times are looked up in each log."""


def find_difference(log: Log, producers: ProducerState, *, is_loaded: bool) -> str | None:
    """The first difference between derived state and log; None if there is none. Raises errors of reading.

    ``is_loaded``: the log has just been opened, and no truncation has removed the state of a batch.
    """
    headers = list(log.iter_headers(log.log_start_offset))
    return (
        _find_in_producers(log, producers, is_loaded=is_loaded)
        or _find_in_epochs(log, headers)
        or _find_in_times(log, headers)
    )


def _find_in_producers(log: Log, producers: ProducerState, *, is_loaded: bool) -> str | None:
    """The state includes batches before the log start that are still stored; others it may include or not.

    The batches that compaction has removed are in a snapshot only. Of a log that was just opened they may
    have been the last ones: a power loss takes later ones that were there when the log was compacted.
    """
    if producers.is_behind:
        return None
    removed: list[range] = []
    epochs: dict[int, int] = {}
    written: dict[int, list[ProducedBatch]] = {}
    transactions: dict[int, tuple[int, int]] = {}
    for header, marker in log.iter_produced(log.first_stored_offset):
        if is_loaded and header.producer_id < 0 and header.record_count == 0:
            removed.append(range(header.base_offset, header.next_offset))
        if header.producer_id < 0 or (header.is_control and marker is None):
            continue
        if epochs.get(header.producer_id) != header.producer_epoch:
            written[header.producer_id] = []
        epochs[header.producer_id] = header.producer_epoch
        coordinator_epoch, first_offset = transactions.get(header.producer_id, (-1, -1))
        if marker is not None:
            transactions[header.producer_id] = (marker.coordinator_epoch, -1)
            continue
        if header.is_transactional and first_offset < 0:
            transactions[header.producer_id] = (coordinator_epoch, header.base_offset)
        written[header.producer_id].append(
            ProducedBatch(
                header.base_sequence,
                header.last_sequence,
                header.base_offset,
                header.next_offset,
                header.max_timestamp,
            )
        )
    for producer_id, entry in producers.capture().items():
        last_offset = entry.batches[-1].next_offset if entry.batches else -1
        if producer_id not in written and last_offset > log.log_start_offset:
            return f"producer {producer_id} is known by {entry.batches[-1]}, which the log does not hold"
    for producer_id, batches in written.items():
        known = producers.entry(producer_id)
        newest = tuple(batches[-_KEPT_BATCHES:])
        if known is None:
            return f"producer {producer_id} is unknown, the log holds {newest}"
        stored = tuple(
            batch for batch in known.batches if not any(batch.base_offset in gap for gap in removed)
        )
        if not is_loaded or log.size_bytes > LOOK_BACK_BYTES:  # a snapshot holds the last one alone
            newest = newest[-len(stored) :] if stored else newest
        same = stored[-len(newest) :] if newest else stored
        if known.coordinator_epoch >= 0:  # a snapshot has one time of each producer, perhaps of its marker
            same, newest = _without_times(same), _without_times(newest)
        if known.epoch != epochs[producer_id] or same != newest:
            return (
                f"producer {producer_id} is known by epoch {known.epoch} and {known.batches}, "
                f"the log holds epoch {epochs[producer_id]} and {newest}"
            )
        coordinator_epoch, first_offset = transactions.get(producer_id, (-1, -1))
        if known.coordinator_epoch != coordinator_epoch and coordinator_epoch >= 0:
            found = f"known is {known.coordinator_epoch}"
            return f"producer {producer_id}: the last marker is of {coordinator_epoch}, {found}"
        first_known = known.first_offset
        if first_known != first_offset and max(first_known, first_offset) >= log.log_start_offset:
            return f"producer {producer_id}: its transaction is from {first_offset}, known is {first_known}"
    return _find_in_transactions(log, producers)


def _without_times(batches: tuple[ProducedBatch, ...]) -> tuple[ProducedBatch, ...]:
    return tuple(batch._replace(timestamp_ms=0) for batch in batches)


def _find_in_transactions(log: Log, producers: ProducerState) -> str | None:
    """The transaction indexes, and what holds back readers.

    What of a transaction was deleted, or removed by compaction, which leaves empty batches, is still in an
    index, and no longer in the log.
    """
    scan, emptied = TransactionScan(), set[int]()
    for header, marker in log.iter_produced(log.first_stored_offset):
        scan.note(header, marker)
        if not header.record_count:
            emptied.update(range(header.base_offset, header.next_offset))
    indexed = frozenset(log.iter_aborted())
    start = log.log_start_offset
    missing = [one for one in scan.aborted if one.first_offset >= start and one not in indexed]
    if missing:
        return f"the transaction indexes lack {missing[0]}"
    held = {one[:3] for one in scan.aborted}
    for entry in log.iter_aborted():
        if entry.last_offset >= log.log_end_offset:
            return f"the transaction indexes hold {entry}, the log ends at {log.log_end_offset}"
        is_gone = entry.first_offset < log.first_stored_offset or entry.first_offset in emptied
        if not is_gone and entry[:3] not in held:
            return f"the transaction indexes hold {entry}, which the log does not abort"
    first_open, known = scan.first_open_offset, producers.transactions.first_open_offset
    if first_open != known and first_open is not None and first_open >= start:
        return f"the first open transaction begins at {first_open}, and is known to begin at {known}"
    return None


def _find_in_epochs(log: Log, headers: Sequence[BatchHeader]) -> str | None:
    begun = {log.log_start_offset}
    epoch = -1
    for header in headers:
        if header.partition_leader_epoch != epoch:
            begun.add(header.base_offset)
        epoch = header.partition_leader_epoch
        known = log.epoch_cache.epoch_for_offset(max(header.base_offset, log.log_start_offset))
        if known != epoch:
            return f"offset {header.base_offset} is of leader epoch {epoch}, and known as of {known}"
    for entry in log.epoch_cache.entries:
        if entry.start_offset < log.log_end_offset and entry.start_offset not in begun:
            return f"no leader epoch begins with {entry}"
    return None


def _find_in_times(log: Log, headers: Sequence[BatchHeader]) -> str | None:
    """``headers`` may begin below the log start: records there are no longer found. Compaction leaves batches
    without records, which have no time.
    """
    headers = [header for header in headers if header.record_count]
    times = sorted({header.max_timestamp for header in headers})
    for timestamp_ms in times[:: max(1, len(times) // _TIMES)]:
        first = next(header for header in headers if header.max_timestamp >= timestamp_ms)
        found = log.lookup_timestamp(timestamp_ms)
        if first.base_offset < log.log_start_offset:
            continue
        if found is None or not first.base_offset <= found.offset < first.next_offset:
            return f"time {timestamp_ms} is found as {found}, the log holds it in {first}"
    return None
