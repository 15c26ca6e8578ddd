"""One partition of ``__consumer_offsets`` while this broker leads it: its groups and their timers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeAlias

from pykraft.coordinator.result import Outcome
from pykraft.coordinator.shard import Shard
from pykraft.coordinator.writer import PartitionWriter
from pykraft.group_coordinator.replay import replay_all, replay_end, replay_transactional
from pykraft.group_coordinator.state.codec import encode_record
from pykraft.group_coordinator.state.commits import (
    TopicCommit,
    TopicRemoval,
    too_large,
    write_commit,
    write_removal,
)
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.prepared_change import PreparedBatch
from pykraft.group_coordinator.state.result import AnyResult, Call, Record
from pykraft.group_coordinator.state.sessions import Deadlines, TimerChange
from pykraft.group_coordinator.state.shard_state import EMPTY_STATE, ShardState
from pykraft.group_coordinator.timers_expired import handle_timer, iter_new_sessions
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import COMMIT, EndOfTransaction

GroupOutcome: TypeAlias = Outcome[AnyResult]

TIMER_RETRY_MS = 1_000
"""How long to wait before a timer whose effect could not be written is tried again."""


class GroupShard(Shard[ShardState, AnyResult]):
    """See :class:`.Shard`. Some state of classic groups is not in records, nor are the timers."""

    def __init__(self, partition: int, leader_epoch: int, writer: PartitionWriter) -> None:
        super().__init__(partition, leader_epoch, writer, EMPTY_STATE)
        self.deadlines = Deadlines()
        self._new_sessions: Iterator[tuple[TimerChange, ...]] | None = None

    def _replay(self, state: ShardState, result: AnyResult) -> ShardState:
        if result.producer is not None:
            return replay_transactional(state, result.producer[0], result.records)
        return replay_all(state, result.records)

    def _write(self, builder: BatchBuilder, result: AnyResult) -> bool:
        """Write the records if they have room; a prepared batch needs an empty builder."""
        if builder.record_count and any(isinstance(record, PreparedBatch) for record in result.records):
            return False
        write_records(builder, result.records)
        return True

    def _has_happened(self, result: AnyResult, now_ms: int) -> None:
        for change in result.timers:
            self.deadlines.apply(change, now_ms)

    def _as_error(self, error: KafkaError) -> KafkaError:
        return KafkaError(_as_coordinator_error(error.code), error.message)

    def end_transaction(self, end: EndOfTransaction, *, wall_ms: int) -> int | None:
        """Append a marker, and the offsets of its transaction count, or are dropped; returns the offset to
        wait for, None if that is committed. :class:`KafkaError` of the log, and nothing has changed.
        """
        assert not self.has_staged, "what is staged must be flushed first"
        state = replay_end(self.state, end.producer_id, is_commit=end.marker.kind == COMMIT)
        self._pending_offset = self._writer.end_transaction(self.partition, self.leader_epoch, end, wall_ms)
        self._timeline.set(self._pending_offset, state)
        return self.wait_offset()

    def finish_loading(
        self, end_offset: int, state: ShardState, config_of: Callable[[str], GroupConfig]
    ) -> None:
        """The whole log up to ``end_offset`` makes ``state``; begin to start sessions."""
        self.adopt(end_offset, state)
        self.restart_sessions(config_of)

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

    def _write_at_once(self, result: AnyResult, wall_ms: int, now_ms: int) -> GroupOutcome:
        staged = self._begin(result, wall_ms)
        if result.records and not self._add(staged, result, now_ms):
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
        self._has_happened(result, now_ms)
        return Outcome(self.wait_offset(), result)

    def expire(self, call: Call, *, now_ms: int, limit: int = 2**31) -> list[GroupOutcome]:
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
        case ErrorCode.INVALID_PRODUCER_EPOCH | ErrorCode.INVALID_TXN_STATE:
            return code  # the producer's transaction is over: it must not try again
        case _:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _forget(state: ShardState, group_id: str) -> ShardState:
    """Remove a classic group that was never written; its offsets remain."""
    return state if state.consumer_group(group_id) is not None else state.without_group(group_id)
