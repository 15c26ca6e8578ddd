"""One partition of ``__consumer_offsets`` while this broker leads it: its state and its timers.

It works like the controller: a handler decides, its records are replayed and appended, and the new state
belongs to the offset of the last record. What is decided until the next :meth:`Shard.flush` goes into one
batch. If its append fails, nothing of it has happened. The caller must hold each answer until the high
watermark has passed the offset of what it is based on, so that no epoch or offset is answered that a new
leader would not know.

There are no futures here, and no IO except through the :class:`PartitionWriter` port.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Protocol

from pykraft.group_coordinator.codec import encode_record
from pykraft.group_coordinator.commits import (
    TopicCommit,
    TopicRemoval,
    too_large,
    write_commit,
    write_removal,
)
from pykraft.group_coordinator.config import GroupConfig
from pykraft.group_coordinator.expiry import handle_timer, iter_new_sessions
from pykraft.group_coordinator.loading import BatchBody
from pykraft.group_coordinator.prepared_change import PreparedBatch
from pykraft.group_coordinator.replay import replay_all
from pykraft.group_coordinator.result import Answer, Call, Completion, CoordinatorResult, Record, Resolution
from pykraft.group_coordinator.sessions import Deadlines, TimerChange
from pykraft.group_coordinator.state import EMPTY_STATE, ShardState
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.timeline import Timeline

log = logging.getLogger(__name__)

TIMER_RETRY_MS = 1_000
"""How long to wait before a timer whose effect could not be written is tried again."""


class PartitionWriter(Protocol):
    """Access to the partitions of ``__consumer_offsets``, which the broker provides."""

    def append(self, partition: int, leader_epoch: int, records: BatchBuilder, now_ms: int) -> int:
        """Append one batch and return the exclusive end offset. :class:`KafkaError` if that fails."""
        ...

    def max_batch_bytes(self, partition: int) -> int:
        """The size of the largest batch that can be appended."""
        ...

    def high_watermark(self, partition: int) -> int:
        """The offset (exclusive) below which all records survive a change of the leader."""
        ...

    def read(self, partition: int, start_offset: int) -> Awaitable[tuple[Sequence[BatchBody], int]]:
        """Some batches from ``start_offset`` on and the next offset; at the end none and the same offset."""
        ...


@dataclass(slots=True)
class Outcome:
    """The answers to send once the high watermark reaches ``offset`` (None: at once).

    ``is_staged``: there is no offset yet. The answer is sent, or an error in its place, when
    :meth:`Shard.flush` has written what is staged.
    """

    offset: int | None
    response: Answer
    completions: tuple[Completion, ...] = ()
    is_staged: bool = False
    resolution: Resolution | None = None


class _Staged:
    """What was decided and replayed since the last append: the next batch, and the state after it."""

    __slots__ = ("builder", "max_bytes", "state", "timers", "wall_ms")

    def __init__(self, state: ShardState, wall_ms: int, max_bytes: int) -> None:
        self.state = state
        self.wall_ms = wall_ms
        self.max_bytes = max_bytes
        self.builder = BatchBuilder()
        self.timers: list[tuple[TimerChange, int]] = []
        """With the time at which each was decided."""

    def add(self, result: CoordinatorResult, now_ms: int) -> bool:
        """Take a result into the batch, whole or not at all; False if the batch has no room for it.

        What was prepared as a batch finds room only in an empty one.
        """
        if self.builder.record_count and any(isinstance(record, PreparedBatch) for record in result.records):
            return False
        mark = self.builder.mark
        try:
            write_records(self.builder, result.records)
            if self.builder.size_bytes > self.max_bytes:
                self.builder.cut(mark)
                return False
            self.state = replay_all(self.state, result.records)
        except BaseException:
            self.builder.cut(mark)
            raise
        if result.timers:
            self.timers += [(change, now_ms) for change in result.timers]
        return True


class Shard:
    """The state of one partition that this broker leads at ``leader_epoch``."""

    def __init__(self, partition: int, leader_epoch: int, writer: PartitionWriter) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.deadlines = Deadlines()
        self.loaded = False
        self._writer = writer
        self._timeline: Timeline[ShardState] = Timeline(EMPTY_STATE)
        self._staged: _Staged | None = None
        self._new_sessions: Iterator[tuple[TimerChange, ...]] | None = None
        self._pending_offset = -1
        self._high_watermark = 0

    @property
    def state(self) -> ShardState:
        """The newest state, appended or not, on which the next decision is made."""
        return self._timeline.current if self._staged is None else self._staged.state

    @property
    def appended(self) -> ShardState:
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
    def committed(self) -> ShardState:
        """The newest state that every later coordinator has, perhaps with more records."""
        self.advance(self._known_high_watermark())
        return self._timeline.committed

    def finish_loading(
        self, end_offset: int, state: ShardState, config_of: Callable[[str], GroupConfig]
    ) -> None:
        """The whole log up to ``end_offset`` makes ``state``; begin to start sessions.

        The end of the log may be above the high watermark: answers wait for it as if it were our own write.
        """
        self._timeline = Timeline(EMPTY_STATE)
        self._timeline.set(end_offset, state)
        self._pending_offset = end_offset
        self.restart_sessions(config_of)
        self.advance(self._known_high_watermark())
        self.loaded = True

    def restart_sessions(self, config_of: Callable[[str], GroupConfig]) -> None:
        """No heartbeat could arrive until now: :meth:`start_sessions` will give members full sessions."""
        self._new_sessions = iter_new_sessions(self.state, lambda: self.state, config_of)

    @property
    def starts_sessions(self) -> bool:
        """Whether members still wait for their new sessions; no timer expires until all have one."""
        return self._new_sessions is not None

    def start_sessions(self, now_ms: int, limit: int) -> int:
        """Take up to ``limit`` steps of the work of :meth:`restart_sessions`; returns how many it took."""
        if self._new_sessions is None:
            return 0
        steps = 0
        for changes in islice(self._new_sessions, limit):
            steps += 1
            for change in changes:
                self.deadlines.apply(change, now_ms)
        if steps < limit:
            self._new_sessions = None
        return steps

    def advance(self, high_watermark: int) -> None:
        self._timeline.commit(high_watermark)

    def stage(
        self, decide: Callable[[ShardState], CoordinatorResult], *, wall_ms: int, now_ms: int
    ) -> Outcome | None:
        """Decide on the current state, and take the result into the next batch, which :meth:`flush` appends.

        A batch holds whole results, so that a decision is in the log as a whole or not at all. None: nothing
        has changed, and what is staged must be flushed before the same is asked again. So it is if the batch
        has no room for the result, or if the result concerns other requests, which are not to be taken back
        with a batch that cannot be written. A :class:`KafkaError` leaves all unchanged.
        """
        assert self.loaded, "a shard must be loaded before it decides"
        result = decide(self.state)
        staged = self._staged
        if result.moves_others:
            return self._write_at_once(result, wall_ms, now_ms) if staged is None else None
        if not result.records:
            if staged is not None:
                staged.timers += [(change, now_ms) for change in result.timers]
            else:
                self._apply_timers(result.timers, now_ms)
            outcome = self.seen(result.response)
            outcome.resolution = result.resolution
            return outcome
        if staged is None:
            staged = self._begin(wall_ms)
            if not staged.add(result, now_ms):
                raise too_large()
            self._staged = staged
        elif not staged.add(result, now_ms):
            return None
        return Outcome(None, result.response, is_staged=True, resolution=result.resolution)

    def flush(self) -> int | None:
        """Append what is staged as one batch; returns the offset to wait for, None if that is committed.

        A :class:`KafkaError` means that all that was staged since the last flush has not happened.
        """
        staged, self._staged = self._staged, None
        if staged is not None:
            self._append(staged)
            for change, now_ms in staged.timers:
                self.deadlines.apply(change, now_ms)
        return self.wait_offset()

    def apply(
        self, decide: Callable[[ShardState], CoordinatorResult], *, wall_ms: int, now_ms: int
    ) -> Outcome:
        """Decide on the current state and write the result at once, where nothing is staged.

        A :class:`KafkaError` leaves all unchanged.
        """
        assert self._staged is None, "what is staged must be flushed first"
        outcome = self.stage(decide, wall_ms=wall_ms, now_ms=now_ms)
        assert outcome is not None
        if outcome.is_staged:
            return Outcome(self.flush(), outcome.response, resolution=outcome.resolution)
        return outcome

    def seen(self, response: Answer) -> Outcome:
        """An answer that was made from the current state."""
        if self._staged is not None:
            return Outcome(None, response, is_staged=True)
        return Outcome(self.wait_offset(), response)

    def _write_at_once(self, result: CoordinatorResult, wall_ms: int, now_ms: int) -> Outcome:
        staged = self._begin(wall_ms)
        if result.records and not staged.add(replace(result, timers=()), now_ms):
            raise too_large()
        state = staged.state
        for group in result.groups:
            state = state.with_group(group)
        for group_id in result.forgotten:
            state = _forget(state, group_id)
        staged.state = state
        if result.records:
            self._append(staged)
        elif state is not self.state:
            self._timeline.set(self._pending_offset, state)
        self._apply_timers(result.timers, now_ms)
        return Outcome(self.wait_offset(), result.response, result.completions, resolution=result.resolution)

    def _begin(self, wall_ms: int) -> _Staged:
        try:
            return _Staged(self.state, wall_ms, self._writer.max_batch_bytes(self.partition))
        except KafkaError as error:
            raise KafkaError(_as_coordinator_error(error.code), error.message) from error

    def _apply_timers(self, timers: Iterable[TimerChange], now_ms: int) -> None:
        for change in timers:
            self.deadlines.apply(change, now_ms)

    def wait_offset(self) -> int | None:
        """The offset at which to answer what was decided or read just now; None if nothing is pending."""
        high_watermark = self._known_high_watermark()
        self.advance(high_watermark)
        return self._pending_offset if self._pending_offset > high_watermark else None

    def expire(self, call: Call, *, now_ms: int, limit: int = 2**31) -> list[Outcome]:
        """Apply the effects of expired timers, at most ``limit`` of them."""
        assert not self.starts_sessions, "some deadlines are still the old ones"
        outcomes = []
        for key, epoch in self.deadlines.pop_expired(now_ms, limit):
            if key in self.deadlines:
                continue  # a timer that expired before it has set it again
            try:
                outcome = self.apply(
                    lambda state, key=key, epoch=epoch: handle_timer(state, key, epoch, call),  # type: ignore[misc]
                    wall_ms=call.wall_ms,
                    now_ms=now_ms,
                )
            except KafkaError:
                self.deadlines.set(key, now_ms + TIMER_RETRY_MS, epoch)
            else:
                outcomes.append(outcome)
        return outcomes

    def _known_high_watermark(self) -> int:
        # An error means that this broker loses the partition. The decision stands; the resignation that
        # follows fails the waiting requests.
        try:
            self._high_watermark = self._writer.high_watermark(self.partition)
        except KafkaError:
            return self._high_watermark
        return self._high_watermark

    def _append(self, staged: _Staged) -> None:
        try:
            self._pending_offset = self._writer.append(
                self.partition, self.leader_epoch, staged.builder, staged.wall_ms
            )
        except KafkaError as error:
            raise KafkaError(_as_coordinator_error(error.code), error.message) from error
        self._timeline.set(self._pending_offset, staged.state)


def write_records(builder: BatchBuilder, records: Iterable[Record]) -> None:
    """Add records to a batch."""
    for record in records:
        if isinstance(record, TopicCommit):
            write_commit(builder, record)
        elif isinstance(record, TopicRemoval):
            write_removal(builder, record)
        elif isinstance(record, PreparedBatch):
            builder.add_batch(record.builder)
        else:
            builder.add(*encode_record(record))


def _as_coordinator_error(code: ErrorCode) -> ErrorCode:
    """The error of a failed append for clients: find the new coordinator, retry, or give up."""
    match code:
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.FENCED_LEADER_EPOCH | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        case _:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _forget(state: ShardState, group_id: str) -> ShardState:
    """Remove a classic group that was never written; its offsets remain."""
    return state if state.consumer_group(group_id) is not None else state.without_group(group_id)
