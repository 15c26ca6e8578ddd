"""The invariants of the state that a replica derives from its records: it equals what its batches give.

Its producers, its leader epochs and its look-ups by time are derived from batch headers while batches are
written, truncated, deleted, snapshotted and loaded again; here they are compared with the result of one walk
over the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pykraft.broker.logs.producer_snapshots import LOOK_BACK_BYTES
from pykraft.broker.logs.producer_state import ProducedBatch, ProducerState

if TYPE_CHECKING:
    from pykraft.kafka_protocol.records import BatchHeader
    from pykraft.log_store.log import Log

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
    """The state includes batches before the log start that are still stored; others it may include or not."""
    if producers.is_behind:
        return None
    epochs: dict[int, int] = {}
    written: dict[int, list[ProducedBatch]] = {}
    for header in log.iter_stored_headers(log.first_stored_offset):
        if header.producer_id < 0 or header.is_control:
            continue
        if epochs.get(header.producer_id) != header.producer_epoch:
            written[header.producer_id] = []
        epochs[header.producer_id] = header.producer_epoch
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
        if producer_id not in written and entry.batches[-1].next_offset > log.log_start_offset:
            return f"producer {producer_id} is known by {entry.batches[-1]}, which the log does not hold"
    for producer_id, batches in written.items():
        known = producers.entry(producer_id)
        newest = tuple(batches[-_KEPT_BATCHES:])
        if known is None:
            return f"producer {producer_id} is unknown, {newest[-1]} is in the log"
        if not is_loaded or log.size_bytes > LOOK_BACK_BYTES:  # a snapshot holds the last one alone
            newest = newest[-len(known.batches) :]
        if known.epoch != epochs[producer_id] or known.batches[-len(newest) :] != newest:
            return (
                f"producer {producer_id} is known by epoch {known.epoch} and {known.batches}, "
                f"the log holds epoch {epochs[producer_id]} and {newest}"
            )
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
