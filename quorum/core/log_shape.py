"""The outline of the local log that the core decides by: its end, what is flushed, which epoch is where.

The core never sees record bytes and never reads the log: its effects run after it has decided, so a log it
could read would lag behind its own decisions. It keeps this outline instead, as current as its last
decision; the driver asserts after each effect that the real log agrees.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple


class SnapshotId(NamedTuple):
    """The committed state below ``end_offset`` (exclusive), whose last record is of ``epoch`` (KIP-630)."""

    end_offset: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.end_offset}-{self.epoch}"


BEGINNING = SnapshotId(0, 0)
"""The start of a log that was never shortened."""


class LogShape:
    """End offset, flushed end offset and the start offset of each epoch (rules of KIP-101 and KIP-320).

    ``start`` is the snapshot that covers what lies before the first record: the log begins at its end offset,
    and its epoch is that of the record before. Older epochs are unknown. ``end_offset`` counts appended
    records, ``flushed_offset`` only those that survive a power loss. ``generation`` grows with each
    truncation; flushes of an earlier generation are void.
    """

    __slots__ = ("_epochs", "_starts", "end_offset", "flushed_offset", "generation", "start")

    def __init__(
        self,
        end_offset: int = 0,
        epoch_starts: Iterable[tuple[int, int]] = (),
        start: SnapshotId = BEGINNING,
    ) -> None:
        """Everything found on disk at start counts as flushed: recovery flushed it."""
        assert end_offset >= start.end_offset
        self.start = start
        pairs = list(epoch_starts)
        self._epochs = [epoch for epoch, _ in pairs]
        self._starts = [start for _, start in pairs]
        self.end_offset = end_offset
        self.flushed_offset = end_offset
        self.generation = 0
        assert self._epochs == sorted(set(self._epochs)), f"epochs out of order: {pairs}"

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, be it in the log or in the snapshot; 0 when there is none."""
        return self._epochs[-1] if self._epochs else self.start.epoch

    @property
    def start_offset(self) -> int:
        return self.start.end_offset

    @property
    def epoch_starts(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self._epochs, self._starts, strict=True))

    def append(self, end_offset: int, epoch: int) -> None:
        assert end_offset > self.end_offset, f"append ends at {end_offset}, log at {self.end_offset}"
        assert epoch >= self.last_epoch, f"append of epoch {epoch} after epoch {self.last_epoch}"
        if not self._epochs or epoch > self._epochs[-1]:
            self._epochs.append(epoch)
            self._starts.append(self.end_offset)
        self.end_offset = end_offset

    def truncate(self, end_offset: int) -> None:
        assert self.start_offset <= end_offset < self.end_offset, (
            f"truncation to {end_offset}, the log is [{self.start_offset}, {self.end_offset})"
        )
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self.end_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.generation += 1

    def restart_at(self, snapshot_id: SnapshotId) -> None:
        """Forget every record: a snapshot has taken the place of the whole log."""
        self._epochs.clear()
        self._starts.clear()
        self.start = snapshot_id
        self.end_offset = self.flushed_offset = snapshot_id.end_offset
        self.generation += 1

    def advance_start(self, snapshot_id: SnapshotId) -> None:
        """Forget what lies before the end of a snapshot of this log."""
        offset = snapshot_id.end_offset
        assert self.start_offset <= offset <= self.end_offset
        index = bisect_right(self._starts, offset) - 1
        if index >= 0:
            del self._epochs[:index], self._starts[:index]
            self._starts[0] = offset
        self.start = snapshot_id

    def epoch_of(self, offset: int) -> int:
        """The epoch of the record at ``offset``, which is in the log or the last one before it."""
        assert self.start_offset - 1 <= offset < self.end_offset
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else self.start.epoch

    def flushed(self, end_offset: int, generation: int) -> bool:
        """Note a finished flush; False if it is void or brings nothing new."""
        if generation != self.generation or end_offset <= self.flushed_offset:
            return False
        assert end_offset <= self.end_offset
        self.flushed_offset = end_offset
        return True

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch here up to ``epoch``, and where it ends; the start if there is none."""
        index = bisect_right(self._epochs, epoch) - 1
        if index < 0:
            return self.start.epoch, self.start_offset
        end = self._starts[index + 1] if index + 1 < len(self._starts) else self.end_offset
        return self._epochs[index], end
