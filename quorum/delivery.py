"""Hands snapshots, committed batches and leader changes to the listeners, in slices, in order, exactly once.

Decides nothing about commitment: it reads the log between the last delivered offset and the high watermark
that it is given. The leadership of the local replica is announced only after its LeaderChange record has been
delivered; any other leader at once. It is never called from within the core's effects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from pykraft.kafka_protocol.records import BatchHeader
from pykraft.kafka_protocol.value_batches import decode_values
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.listener import CommittedBatch, LeaderAndEpoch, QuorumListener

SLICE_RECORDS = 500
"""A batch of more is handed over in pieces of so many."""
SLICE_BYTES = 1 << 20


class CommittedLog(Protocol):
    """The part of the log that delivery reads."""

    def iter_batches(
        self, start_offset: int, end_offset: int | None = None
    ) -> Iterator[tuple[BatchHeader, bytes]]: ...


class CommittedSnapshot(Protocol):
    """A snapshot file, opened."""

    snapshot_id: SnapshotId
    last_contained_log_time_ms: int

    def __iter__(self) -> Iterator[tuple[bytes, ...]]: ...

    def close(self) -> None: ...


class Delivery:
    """``delivered_offset``: everything below it has been handed to every listener."""

    def __init__(self, log: CommittedLog) -> None:
        self._log = log
        self._pending: tuple[tuple[LeaderAndEpoch, int | None], ...] = ()
        self._announced: LeaderAndEpoch | None = None
        self._snapshot: CommittedSnapshot | None = None
        self._snapshot_values: Iterator[tuple[bytes, ...]] | None = None
        self._pieces: Iterator[CommittedBatch] = iter(())
        """What is left of the batch at ``delivered_offset``."""
        self.delivered_offset = 0
        self.high_watermark = 0

    def replace_by(self, snapshot: CommittedSnapshot) -> None:
        """Deliver a snapshot next, then the log from its end; one that was being delivered is dropped."""
        assert snapshot.snapshot_id.end_offset > self.delivered_offset
        if self._snapshot is not None:
            self._snapshot.close()
        self._snapshot, self._snapshot_values, self._pieces = snapshot, None, iter(())
        self.high_watermark = max(self.high_watermark, snapshot.snapshot_id.end_offset)

    def leader_changed(self, leader: LeaderAndEpoch, after_offset: int | None) -> None:
        """A later change replaces those not yet announced, except that an election does not hide a
        resignation.

        Otherwise a leader that is elected again would learn of the new epoch without the end of the old one,
        and take what others committed in between for its own.
        """
        due_at_once = tuple(pending for pending in self._pending if pending[1] is None)
        self._pending = (*(due_at_once if after_offset is not None else ()), (leader, after_offset))

    @property
    def has_work(self) -> bool:
        return self.delivered_offset < self.high_watermark or self._may_announce()

    def deliver_slice(self, listeners: Sequence[QuorumListener]) -> None:
        """Announce a leader change that is due, or deliver one slice of at most about 500 records."""
        if self._snapshot is not None:
            self._deliver_snapshot_slice(self._snapshot, listeners)
            return
        piece = next(self._pieces, None)
        if piece is None and self._may_announce():
            self._announce(listeners)
            return
        batches = self._read_slice() if piece is None else [piece]
        for listener in listeners:
            listener.handle_commit(batches)
        if batches[-1].is_last_piece:
            self.delivered_offset = batches[-1].last_offset + 1

    def _deliver_snapshot_slice(
        self, snapshot: CommittedSnapshot, listeners: Sequence[QuorumListener]
    ) -> None:
        if self._snapshot_values is None:
            self._snapshot_values = iter(snapshot)
            for listener in listeners:
                listener.begin_snapshot(snapshot.snapshot_id, snapshot.last_contained_log_time_ms)
            return
        values = next(self._snapshot_values, None)
        if values is not None:
            for listener in listeners:
                listener.handle_snapshot_values(values)
            return
        self._snapshot = self._snapshot_values = None
        snapshot.close()
        self.delivered_offset = snapshot.snapshot_id.end_offset
        for listener in listeners:
            listener.finish_snapshot()

    def _may_announce(self) -> bool:
        if not self._pending:
            return False
        after_offset = self._pending[0][1]
        return after_offset is None or self.delivered_offset > after_offset

    def _announce(self, listeners: Sequence[QuorumListener]) -> None:
        (leader, _), *rest = self._pending
        self._pending = tuple(rest)
        if leader != self._announced:
            self._announced = leader
            for listener in listeners:
                listener.handle_leader_change(leader)

    def _read_slice(self) -> list[CommittedBatch]:
        """The next batches, at least one; or the first piece of the next."""
        batches: list[CommittedBatch] = []
        records = size_bytes = 0
        next_offset = self.delivered_offset
        for header, data in self._log.iter_batches(next_offset, self.high_watermark):
            assert header.base_offset == next_offset, f"no batch at {next_offset}, next {header.base_offset}"
            if header.record_count > SLICE_RECORDS:
                if not batches:
                    self._pieces = _iter_pieces(header, data)
                    batches.append(next(self._pieces))
                break
            batches += _iter_pieces(header, data)
            next_offset = header.next_offset
            records += header.record_count
            size_bytes += len(data)
            if records >= SLICE_RECORDS or size_bytes >= SLICE_BYTES:
                break
        assert batches, f"nothing to read at {next_offset}, below the high watermark"
        return batches


def _iter_pieces(header: BatchHeader, data: bytes) -> Iterator[CommittedBatch]:
    values = () if header.is_control else decode_values(data, header)
    for start in range(0, len(values) or 1, SLICE_RECORDS):
        yield CommittedBatch(
            header.base_offset,
            header.last_offset,
            header.partition_leader_epoch,
            header.max_timestamp,
            values[start : start + SLICE_RECORDS],
            len(data),
            start,
        )
