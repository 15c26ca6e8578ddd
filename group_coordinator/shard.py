"""One partition of ``__consumer_offsets`` while this broker leads it: its state and its timers.

It works like the controller: a handler decides, its records are replayed and appended as one batch, and the
new state belongs to the offset of its last record. If the append fails nothing has changed. The caller must
hold the answer until the high watermark has passed the returned offset, so that no epoch or offset is
answered that a new leader would not know.

There are no futures here, and no IO except through the :class:`PartitionWriter` port.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from pykraft.group_coordinator.classic_group import ClassicGroup
from pykraft.group_coordinator.codec import decode_record, encode_records
from pykraft.group_coordinator.config import GroupConfig
from pykraft.group_coordinator.expiry import handle_timer, iter_new_sessions
from pykraft.group_coordinator.records import GroupRecord
from pykraft.group_coordinator.replay import replay, replay_all
from pykraft.group_coordinator.result import Answer, Call, Completion, CoordinatorResult
from pykraft.group_coordinator.sessions import Deadlines, TimerChange
from pykraft.group_coordinator.state import EMPTY_STATE, ShardState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.record_codec import Record
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.timeline import Timeline

log = logging.getLogger(__name__)

TIMER_RETRY_MS = 1_000
"""How long to wait before a timer whose effect could not be written is tried again."""


class PartitionWriter(Protocol):
    """Access to the partitions of ``__consumer_offsets``, which the broker provides."""

    def append(
        self, partition: int, leader_epoch: int, records: Sequence[tuple[bytes, bytes | None]], now_ms: int
    ) -> int:
        """Append one batch and return the exclusive end offset. :class:`KafkaError` if that fails."""
        ...

    def high_watermark(self, partition: int) -> int:
        """The offset (exclusive) below which all records survive a change of the leader."""
        ...

    def read(self, partition: int, start_offset: int) -> Awaitable[tuple[Sequence[Record], int]]:
        """Some records from ``start_offset`` on and the next offset; at the end none and the same offset."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answers to send once the high watermark reaches ``offset`` (None: at once)."""

    offset: int | None
    response: Answer
    completions: tuple[Completion, ...] = ()


class Shard:
    """The state of one partition that this broker leads at ``leader_epoch``."""

    def __init__(self, partition: int, leader_epoch: int, writer: PartitionWriter) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.deadlines = Deadlines()
        self.loaded = False
        self._writer = writer
        self._timeline: Timeline[ShardState] = Timeline(EMPTY_STATE)
        self._loading = EMPTY_STATE
        self._new_sessions: Iterator[tuple[TimerChange, ...]] | None = None
        self._pending_offset = -1
        self._high_watermark = 0

    @property
    def state(self) -> ShardState:
        """The newest state, committed or not, on which the next decision is made."""
        return self._timeline.current

    @property
    def end_offset(self) -> int:
        """The offset after the newest record of :attr:`state`."""
        return self._pending_offset

    @property
    def committed(self) -> ShardState:
        """The newest state that every later coordinator has, perhaps with more records."""
        self.advance(self._known_high_watermark())
        return self._timeline.committed

    def load(self, records: Sequence[Record]) -> None:
        """Replay a part of the log. Records that are unknown or cannot be decoded are skipped."""
        for record in records:
            if record.key is None:
                continue
            try:
                decoded = decode_record(
                    bytes(record.key), None if record.value is None else bytes(record.value)
                )
            except ProtocolError as error:
                log.error("__consumer_offsets-%d, offset %d: %s", self.partition, record.offset, error)
                continue
            if decoded is not None:
                self._loading = replay(self._loading, decoded)

    def finish_loading(self, end_offset: int, config_of: Callable[[str], GroupConfig]) -> None:
        """The whole log is replayed, up to ``end_offset``; begin to start sessions.

        The end of the log may be above the high watermark: answers wait for it as if it were our own write.
        """
        self._timeline = Timeline(EMPTY_STATE)
        self._timeline.set(end_offset, self._loading)
        self._loading = EMPTY_STATE
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

    def apply(
        self, decide: Callable[[ShardState], CoordinatorResult], *, wall_ms: int, now_ms: int
    ) -> Outcome:
        """Decide on the current state and apply the result. A :class:`KafkaError` leaves all unchanged."""
        assert self.loaded, "a shard must be loaded before it decides"
        result = decide(self.state)
        state = replay_all(self.state, result.records)
        for group in result.groups:
            state = state.with_group(group)
        for group_id in result.forgotten:
            state = _forget(state, group_id)
        if result.records:
            self._pending_offset = self._append(result.records, wall_ms)
        if state is not self.state:
            self._timeline.set(self._pending_offset, state)
        for change in result.timers:
            self.deadlines.apply(change, now_ms)
        return Outcome(self.wait_offset(), result.response, result.completions)

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
        with contextlib.suppress(KafkaError):
            self._high_watermark = self._writer.high_watermark(self.partition)
        return self._high_watermark

    def _append(self, records: Sequence[GroupRecord], wall_ms: int) -> int:
        try:
            return self._writer.append(self.partition, self.leader_epoch, encode_records(records), wall_ms)
        except KafkaError as error:
            raise KafkaError(_as_coordinator_error(error.code), error.message) from error


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
    if state.classic_group(group_id) is None:
        return state
    if group_id in state.offsets:
        return state.with_group(ClassicGroup(group_id))
    return state.without_group(group_id)
