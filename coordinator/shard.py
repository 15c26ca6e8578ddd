"""One partition of a coordinator's topic while this broker leads it: its state, as a value for each offset.

It works like the controller: a handler decides, its records are replayed and appended, and the new state
belongs to the offset of the last record. What is decided until the next :meth:`Shard.flush` goes into one
batch. If its append fails, nothing of it has happened. The caller must hold each answer until the high
watermark has passed the offset of what it is based on, so that nothing is answered that a new leader would
not know.

There are no futures here, and no IO except through the :class:`.PartitionWriter` port.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from pykraft.coordinator.result import Outcome, Result
from pykraft.coordinator.writer import PartitionWriter
from pykraft.kafka_protocol.batch_builder import BatchBuilder, Producer
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.timeline import Timeline

S = TypeVar("S")
R = TypeVar("R", bound=Result)


class Staged(Generic[S, R]):
    """Decisions replayed since the last append: the next batch, and the state after it."""

    __slots__ = ("builder", "max_bytes", "results", "state", "wall_ms")

    def __init__(self, state: S, wall_ms: int, max_bytes: int, producer: Producer | None) -> None:
        self.state = state
        self.wall_ms = wall_ms
        self.max_bytes = max_bytes
        self.builder = BatchBuilder(producer)
        self.results: list[tuple[R, int]] = []
        """With the time at which each was decided."""


class Shard(ABC, Generic[S, R]):
    """The state of one partition that this broker leads at ``leader_epoch``.

    A subclass says what its records mean and how they are written (:meth:`_replay`, :meth:`_write`), and what
    else a result does (:meth:`_has_happened`).
    """

    def __init__(self, partition: int, leader_epoch: int, writer: PartitionWriter, empty: S) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.loaded = False
        self._writer = writer
        self._timeline: Timeline[S] = Timeline(empty)
        self._staged: Staged[S, R] | None = None
        self._pending_offset = -1
        self._high_watermark = 0

    @abstractmethod
    def _replay(self, state: S, result: R) -> S:
        """The state after the records of a result."""

    @abstractmethod
    def _write(self, builder: BatchBuilder, result: R) -> bool:
        """Add the records of a result to a batch; False if it must not hold them."""

    def _room_bytes(self, result: R) -> int:
        """How much a batch with the records of a result must have left."""
        return 0

    @abstractmethod
    def _has_happened(self, result: R, now_ms: int) -> None:
        """The records of a result, decided at ``now_ms``, are appended, or there are none."""

    @abstractmethod
    def _as_error(self, error: KafkaError) -> KafkaError:
        """The error for clients of an append that failed."""

    @property
    def state(self) -> S:
        """The newest state, appended or not, on which the next decision is made."""
        return self._timeline.current if self._staged is None else self._staged.state

    @property
    def appended(self) -> S:
        """The state of the whole log, committed or not, without what is staged."""
        return self._timeline.current

    @property
    def has_staged(self) -> bool:
        """Whether records wait for :meth:`flush`."""
        return self._staged is not None

    @property
    def end_offset(self) -> int:
        """The offset after the newest record of :attr:`state`."""
        return self._pending_offset

    @property
    def committed(self) -> S:
        """The newest state that every later coordinator has, perhaps with more records."""
        self.advance(self._known_high_watermark())
        return self._timeline.committed

    @property
    def committed_offset(self) -> int:
        """The end offset of what :attr:`committed` was, when it was last looked at."""
        return self._timeline.committed_offset

    def adopt(self, end_offset: int, state: S) -> None:
        """The whole log up to ``end_offset`` makes ``state``: it is loaded.

        The end of the log may be above the high watermark: answers wait for it as if it were our own write.
        """
        self._timeline = Timeline(self._timeline.committed)
        self._timeline.set(end_offset, state)
        self._pending_offset = end_offset
        self.advance(self._known_high_watermark())
        self.loaded = True

    def advance(self, high_watermark: int) -> None:
        self._timeline.commit(high_watermark)

    def stage(self, decide: Callable[[S], R], *, wall_ms: int, now_ms: int) -> Outcome[R] | None:
        """Decide on the current state, and take the result into the next batch, which :meth:`flush` appends.

        A batch holds whole results, so that a decision is in the log as a whole or not at all. None: nothing
        has changed, and what is staged must be flushed before the same is asked again. So it is if the batch
        has no room for the result, if that is part of another transaction or of none, or if it concerns other
        requests, which are not to be taken back with a batch that cannot be written. A :class:`KafkaError`
        leaves all unchanged.
        """
        assert self.loaded, "a shard must be loaded before it decides"
        staged = self._staged
        result = decide(self.state)
        if result.moves_others:
            return self._write_at_once(result, wall_ms, now_ms) if staged is None else None
        if not result.records:
            if staged is not None:
                staged.results.append((result, now_ms))
            else:
                self._has_happened(result, now_ms)
            return self.seen(result)
        if staged is None:
            staged = self._begin(result, wall_ms)
            if not self._add(staged, result, now_ms):
                raise self._as_error(_too_large())
            self._staged = staged
        elif not self._add(staged, result, now_ms):
            return None
        return Outcome(None, result, is_staged=True)

    def _write_at_once(self, result: R, wall_ms: int, now_ms: int) -> Outcome[R]:
        """Write a result that moves others by itself."""
        raise NotImplementedError

    def flush(self) -> int | None:
        """Append what is staged as one batch; returns the offset to wait for, None if that is committed.

        A :class:`KafkaError` means that all that was staged since the last flush has not happened.
        """
        staged, self._staged = self._staged, None
        if staged is not None:
            self._append(staged)
            for result, now_ms in staged.results:
                self._has_happened(result, now_ms)
        return self.wait_offset()

    def apply(self, decide: Callable[[S], R], *, wall_ms: int, now_ms: int) -> Outcome[R]:
        """Decide on the current state and write the result at once, where nothing is staged.

        A :class:`KafkaError` leaves all unchanged.
        """
        assert self._staged is None, "what is staged must be flushed first"
        outcome = self.stage(decide, wall_ms=wall_ms, now_ms=now_ms)
        assert outcome is not None
        return Outcome(self.flush(), outcome.result) if outcome.is_staged else outcome

    def seen(self, result: R) -> Outcome[R]:
        """A result without records that was made from the current state."""
        if self._staged is not None:
            return Outcome(None, result, is_staged=True)
        return Outcome(self.wait_offset(), result)

    def wait_offset(self) -> int | None:
        """The offset at which to answer what was decided or read just now; None if nothing is pending."""
        high_watermark = self._known_high_watermark()
        self.advance(high_watermark)
        return self._pending_offset if self._pending_offset > high_watermark else None

    def _begin(self, result: R, wall_ms: int) -> Staged[S, R]:
        try:
            return Staged(self.state, wall_ms, self._writer.max_batch_bytes(self.partition), result.producer)
        except KafkaError as error:
            raise self._as_error(error) from error

    def _add(self, staged: Staged[S, R], result: R, now_ms: int) -> bool:
        """Take a result into the batch, whole or not at all; False if the batch has no room for it."""
        builder = staged.builder
        if builder.producer != result.producer:
            return False
        mark = builder.mark
        try:
            room_bytes = staged.max_bytes - self._room_bytes(result)
            if not self._write(builder, result) or builder.size_bytes > room_bytes:
                builder.cut(mark)
                return False
            staged.state = self._replay(staged.state, result)
        except BaseException:
            builder.cut(mark)
            raise
        staged.results.append((result, now_ms))
        return True

    def _append(self, staged: Staged[S, R]) -> None:
        try:
            self._pending_offset = self._writer.append(
                self.partition, self.leader_epoch, staged.builder, staged.wall_ms
            )
        except KafkaError as error:
            raise self._as_error(error) from error
        self._timeline.set(self._pending_offset, staged.state)

    def _known_high_watermark(self) -> int:
        # An error means that this broker loses the partition. The decision stands; the resignation that
        # follows fails the waiting requests.
        try:
            self._high_watermark = self._writer.high_watermark(self.partition)
        except KafkaError:
            return self._high_watermark
        return self._high_watermark


def _too_large() -> KafkaError:
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "The records do not fit into one batch.")
