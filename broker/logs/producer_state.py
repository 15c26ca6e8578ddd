"""Idempotent producers: the last batches of each, so that a batch enters a log exactly once and in order.

The state is derived from batch headers alone: leader and followers replay the same headers, so a new leader
knows what the old one knew (KIP-98). The last five batches of each producer id are kept, as many as a client
may have in flight. Decides whether a batch is a duplicate, next in sequence or refused; never opens a batch.

A snapshot holds the last batch of each producer (Kafka's format has no room for more). A rebuild from a
snapshot also replays the batches right before it (:class:`ProducerRebuild`), which a client may have had in
flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.records import BatchHeader
from pykraft.log_store.producer_snapshot import NO_SEQUENCE, SnapshotEntry

KEPT_BATCHES = 5
_SEQUENCE_MASK = 0x7FFFFFFF


class ProducedBatch(NamedTuple):
    """One remembered batch. ``next_offset`` is exclusive."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    next_offset: int
    timestamp_ms: int


class ProducerEntry:
    """One producer id: its newest epoch and the last batches written in it, oldest first.

    Replaced, never changed, when the producer writes: so a copy of the table is the state at one offset.
    ``idle_since_ms``: when it was first found idle; None if it has written since the last check.
    """

    __slots__ = ("batches", "epoch", "idle_since_ms")

    def __init__(self, epoch: int, batches: tuple[ProducedBatch, ...]) -> None:
        self.epoch = epoch
        self.batches = batches
        self.idle_since_ms: int | None = None


class ProducerState:
    """All producers of one partition.

    ``complete``: the state reflects every batch ever written, so an unknown producer must start at sequence
    0. It becomes False when old segments or idle producers are forgotten; from then on an unknown producer
    may start anywhere, as in Kafka since 2.5. ``is_behind``: the log was truncated and is being read again;
    until that is done the state is unknown.
    """

    __slots__ = ("_producers", "complete", "is_behind")

    def __init__(self, *, complete: bool = True) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self.complete = complete
        self.is_behind = False

    def __len__(self) -> int:
        return len(self._producers)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    def check(self, header: BatchHeader) -> ProducedBatch | None:
        """None if the batch is next in sequence; the original if it is a duplicate.

        :class:`KafkaError` OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH otherwise. Only for batches
        with a producer id.
        """
        if self.is_behind:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the state of the producers is being rebuilt")
        entry = self._producers.get(header.producer_id)
        first = header.base_sequence
        if entry is None:
            if first != 0 and self.complete:
                raise _out_of_order(header, "the first batch of a producer must have sequence 0")
            return None
        if header.producer_epoch != entry.epoch:
            if header.producer_epoch < entry.epoch:
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"producer {header.producer_id} has epoch {entry.epoch}, got {header.producer_epoch}",
                )
            if first != 0:
                raise _out_of_order(header, "the first batch of a producer epoch must have sequence 0")
            return None
        last = header.last_sequence
        for batch in entry.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        expected = (entry.batches[-1].last_sequence + 1) & _SEQUENCE_MASK
        if first != expected:
            raise _out_of_order(header, f"expected sequence {expected}")
        return None

    def replay(self, header: BatchHeader) -> None:
        """Record a batch that is in the log, with its offsets assigned."""
        if header.producer_id < 0 and header.record_count == 0:
            self.complete = False  # compaction removed batches here, perhaps of producers that are forgotten
        if header.producer_id < 0 or header.is_control or self.is_behind:
            return
        batch = ProducedBatch(
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            header.next_offset,
            header.max_timestamp,
        )
        entry = self._producers.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            self._producers[header.producer_id] = ProducerEntry(header.producer_epoch, (batch,))
        else:
            batches = (*entry.batches[1 - KEPT_BATCHES :], batch)
            self._producers[header.producer_id] = ProducerEntry(entry.epoch, batches)

    def truncate_to(self, end_offset: int) -> bool:
        """Forget batches at or after ``end_offset``; False if that cannot be done exactly.

        It cannot if all remembered batches of a producer are dropped: the earlier ones are unknown, and the
        state must be rebuilt from the log.
        """
        for producer_id in sorted(self._producers):
            entry = self._producers[producer_id]
            if entry.batches[-1].next_offset <= end_offset:
                continue
            batches = tuple(batch for batch in entry.batches if batch.next_offset <= end_offset)
            if not batches:
                return False
            self._producers[producer_id] = ProducerEntry(entry.epoch, batches)
        return True

    def fall_behind(self) -> None:
        """Drop the state; it is unknown until :meth:`adopt`."""
        self._producers = {}
        self.is_behind = True

    def adopt(self, other: ProducerState) -> None:
        """Take over another state."""
        self._producers, self.complete, self.is_behind = other._producers, other.complete, False

    def remembered_offsets(self) -> frozenset[int]:
        """The last offsets of all remembered batches: a rebuild of this state has to find them in the log."""
        return frozenset(
            batch.next_offset - 1 for entry in self._producers.values() for batch in entry.batches
        )

    def capture(self) -> dict[int, ProducerEntry]:
        """A copy of the producers as of now; for :func:`snapshot_entries`."""
        return dict(self._producers)

    def expire(self, now_ms: int, max_idle_ms: int) -> None:
        """Forget producers that have been idle for longer than ``max_idle_ms``.

        By this broker's clock, not by the timestamps of records, which may be of any age: a retried batch of
        a producer that was forgotten would be appended a second time.
        """
        idle = []
        for producer_id, entry in self._producers.items():
            if entry.idle_since_ms is None:
                entry.idle_since_ms = now_ms
            elif now_ms - entry.idle_since_ms > max_idle_ms:
                idle.append(producer_id)
        for producer_id in idle:
            del self._producers[producer_id]
        if idle:
            self.complete = False


class ProducerRebuild:
    """Builds a state from a snapshot and, in order, some batches before it and all batches after it."""

    def __init__(self, entries: Iterable[SnapshotEntry], *, complete: bool) -> None:
        self._known = {entry.producer_id: entry for entry in entries if entry.last_sequence != NO_SEQUENCE}
        self._state = ProducerState(complete=complete)

    def replay(self, header: BatchHeader) -> None:
        self._state.replay(header)

    def finish(self) -> ProducerState:
        """The state as of the last batch. The snapshot adds what the replayed batches do not show."""
        producers = self._state._producers
        for producer_id, known in self._known.items():
            last, newer = _last_batch(known), producers.get(producer_id)
            if newer is None:
                producers[producer_id] = ProducerEntry(known.producer_epoch, (last,))
            elif newer.epoch == known.producer_epoch and last.next_offset <= newer.batches[0].base_offset:
                batches = (last, *newer.batches)[-KEPT_BATCHES:]
                producers[producer_id] = ProducerEntry(newer.epoch, batches)
        return self._state


def snapshot_entries(captured: Mapping[int, ProducerEntry]) -> list[SnapshotEntry]:
    """The last batch of each producer, in order of the producer ids."""
    entries = []
    for producer_id in sorted(captured):
        entry = captured[producer_id]
        last = entry.batches[-1]
        entries.append(
            SnapshotEntry(
                producer_id,
                entry.epoch,
                last.last_sequence,
                last.next_offset - 1,
                last.next_offset - 1 - last.base_offset,
                last.timestamp_ms,
            )
        )
    return entries


def _last_batch(entry: SnapshotEntry) -> ProducedBatch:
    return ProducedBatch(
        entry.first_sequence,
        entry.last_sequence,
        entry.last_offset - entry.offset_delta,
        entry.last_offset + 1,
        entry.timestamp_ms,
    )


def rebuild(headers: Iterable[BatchHeader], *, log_start_offset: int) -> ProducerState:
    """The state as of the end of a log, from all its batch headers."""
    state = ProducerState(complete=log_start_offset == 0)
    for header in headers:
        state.replay(header)
    return state


def _out_of_order(header: BatchHeader, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence}: {why}",
    )
