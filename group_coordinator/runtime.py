"""The groups of the shards that this broker leads: parked joins and syncs, timers, sweeps, expressions.

Extends :mod:`pykraft.coordinator.runtime`, which decides when answers are sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from pykraft.coordinator.answers import Answers
from pykraft.coordinator.hosted import HostedShard, Waiting
from pykraft.coordinator.lease import Lease
from pykraft.coordinator.partitioning import OFFSETS_TOPIC
from pykraft.coordinator.runtime import WAITING_CHECK_MS, CoordinatorRuntime
from pykraft.coordinator.writer import PartitionWriter
from pykraft.group_coordinator.consumer.regex_refresh import handle_resolution
from pykraft.group_coordinator.consumer.regex_worker import Found, RegexWorker
from pykraft.group_coordinator.housekeeping import (
    Sweep,
    sweep_after_load,
    sweep_deleted_topics,
    sweep_expired_groups,
    sweep_expired_offsets,
)
from pykraft.group_coordinator.loading import Loader
from pykraft.group_coordinator.observer import UNOBSERVED, GroupObserver
from pykraft.group_coordinator.past_lease import Decide, Member, answer_heartbeat
from pykraft.group_coordinator.shard import GroupOutcome, GroupShard
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.result import (
    A,
    AnyResult,
    Call,
    CoordinatorResult,
    Parked,
    build_superseded,
)
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import EndOfTransaction
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.persistent import Map
from pykraft.runtime.clock import Clock
from pykraft.runtime.tasks import FatalHandler
from pykraft.runtime.turns import Turns

_NEVER_MS = 2**63


class HostedGroups(HostedShard[GroupShard, AnyResult]):
    """A shard with the joins and syncs that are parked in it, and with its unfinished sweeps."""

    def __init__(self, shard: GroupShard, answers: Answers) -> None:
        super().__init__(shard, answers)
        self.parked: dict[Parked, asyncio.Future[object]] = {}
        self.deleted_while_loading: set[str] = set()
        self.sweeps: deque[Sweep] = deque()
        self.sweep_from_ms = 0
        """The earliest time of the next slice: later than now only after one that could not be written."""
        self.swept_offset: int | None = None
        """The end of the last slice until it is committed: the replicas set the pace."""
        self.next_cleanup_ms = 0

    @property
    def sweep_due_ms(self) -> int:
        """When the next slice of a sweep is due; far in the future if none is."""
        return self.sweep_from_ms if self.sweeps and self.swept_offset is None else _NEVER_MS

    def drop(self) -> None:
        for future in self.parked.values():
            self._answers.fail(future, ErrorCode.NOT_COORDINATOR)
        self.parked.clear()
        super().drop()


log = logging.getLogger(__name__)

_SESSIONS_PER_TICK = 500
_EXPIRED_PER_TICK = 5


class GroupRuntime(CoordinatorRuntime[ShardState, AnyResult, HostedGroups, Member]):
    def __init__(
        self,
        config: GroupConfig,
        writer: PartitionWriter,
        clock: Clock,
        on_fatal: FatalHandler,
        lease: Lease | None = None,
        on_growth: Callable[[], None] | None = None,
        turns: Turns | None = None,
        observer: GroupObserver = UNOBSERVED,
    ) -> None:
        super().__init__(OFFSETS_TOPIC, writer, clock, on_fatal, lease, on_growth, turns)
        self.config = config
        self.topics = TopicsView()
        self._configs: Map[tuple[int, str], Map[str, str]] = Map()
        self._regexes = RegexWorker(self._tasks)
        self._observer = observer
        # What the timers of all shards together may still do in this turn.
        self._sessions_left = self._expired_left = 0

    @property
    def _linger_ms(self) -> int:
        return self.config.append_linger_ms

    @property
    def _write_timeout_ms(self) -> int:
        return self.config.offset_commit_timeout_ms

    # ---- leadership

    def _host(self, partition: int, leader_epoch: int) -> HostedGroups:
        return HostedGroups(GroupShard(partition, leader_epoch, self._writer), self._answers)

    def _loader(self, partition: int) -> Loader:
        return Loader(partition)

    def _finish_loading(self, hosted: HostedGroups, end_offset: int, state: ShardState) -> None:
        hosted.shard.finish_loading(end_offset, state, self.config_of)
        self._observer.shard_loaded(hosted.shard)
        hosted.next_cleanup_ms = self._clock.monotonic_ms() + self.config.offsets_retention_check_interval_ms
        self._start_sweep(hosted, sweep_after_load(state, self.topics, hosted.deleted_while_loading))

    def _has_resigned(self, hosted: HostedGroups) -> None:
        self._regexes.forget(lambda owner: owner[0] is hosted)

    # ---- events of the broker

    def _committed(self, hosted: HostedGroups, high_watermark: int) -> None:
        if hosted.swept_offset is not None and hosted.swept_offset <= high_watermark:
            hosted.swept_offset = None
            self._wake.set()
        self._observer.shard_committed(hosted.shard)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._configs = image.configs
        if image.topics_by_id is not self.topics.image.topics_by_id:
            self.topics = TopicsView(image, self.topics, are_new=bool(delta.created_topics))
        if not delta.deleted_topics:
            return
        deleted = [(topic.name, topic.id) for topic in delta.iter_deleted_topics()]
        for hosted in self._hosted.values():
            if hosted.shard.loaded:
                self._flush(hosted)  # what is staged may be taken back, and hides older offsets until then
                self._start_sweep(hosted, sweep_deleted_topics(hosted.shard.state, deleted))
            else:
                hosted.deleted_while_loading.update(name for name, _ in deleted)

    def config_of(self, group_id: str) -> GroupConfig:
        """The settings of a group: its overrides, and this broker's settings for all others."""
        overrides = self._configs.get((ConfigResourceType.GROUP, group_id))
        return self.config if overrides is None else self.config.with_group_overrides(overrides)

    # ---- requests

    def write(
        self,
        partition: int,
        decide: Callable[[ShardState], CoordinatorResult[A]],
        member: Member | None = None,
    ) -> Coroutine[Any, Any, A]:
        """As of every coordinator; the answer is the response of the result, also of one that is parked."""
        return super().write(partition, decide, member)

    def count_timers(self) -> int:
        """How many timers run: one for each member, and more in groups that rebalance."""
        return sum(len(hosted.shard.deadlines) for hosted in self._hosted.values())

    async def end_transaction(self, partition: int, end: EndOfTransaction) -> None:
        """Append a marker behind all that was decided before it, and return when it is committed."""
        now_ms = self._clock.monotonic_ms()
        self._lease_expired_ms(now_ms)
        hosted = self._loaded(partition)
        self._flush(hosted)
        offset = hosted.shard.end_transaction(end, wall_ms=self._clock.wall_ms())
        self._has_written(hosted)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._answer_from(hosted, offset, Waiting(0, now_ms + self._write_timeout_ms, future, None))
        await future

    def _past_lease(
        self, hosted: HostedGroups, decide: Decide, member: Member, expired_ms: int
    ) -> AnyResult | None:
        return answer_heartbeat(decide, member, hosted.shard, expired_ms)

    def _answer(self, hosted: HostedGroups, outcome: GroupOutcome, now_ms: int) -> object:
        result = outcome.result
        if isinstance(result.response, Parked):
            future = self._park(hosted, result.response)
            self._complete_parked(hosted, outcome, now_ms)
            return future
        self._complete_parked(hosted, outcome, now_ms)
        return super()._answer(hosted, outcome, now_ms)

    def _park(self, hosted: HostedGroups, key: Parked) -> asyncio.Future[object]:
        """Park a request under ``key``. An older one of the same member has been given up by its client."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        older = hosted.parked.get(key)
        if older is not None and not older.done():
            self._answers.give(older, build_superseded(key))
        hosted.parked[key] = future
        return future

    def _complete_parked(self, hosted: HostedGroups, outcome: GroupOutcome, now_ms: int) -> None:
        """Answer the parked requests that the outcome completes, now or at its offset."""
        for completion in outcome.result.completions:
            future = hosted.parked.pop(completion.parked, None)
            if future is not None:
                self._answer_at(hosted, outcome, future, completion.response, now_ms)

    def _has_written(self, hosted: HostedGroups) -> None:
        super()._has_written(hosted)
        deadline_ms = hosted.shard.deadlines.next_deadline_ms()
        if deadline_ms is not None:
            self._wake_at(deadline_ms)

    def _take_effect(self, hosted: HostedGroups, result: AnyResult) -> None:
        """Find the topics of a group's regular expressions; what is found is a decision like any other."""
        topics, resolution = self.topics, result.resolution
        assert resolution is not None

        def on_found(found: Found) -> None:
            if not self._lease.lease_valid(self._clock.monotonic_ms()):
                return  # a later heartbeat asks again
            try:
                self._apply(
                    hosted, lambda state: handle_resolution(state, resolution.group_id, found, self.topics)
                )
            except KafkaError as error:
                log.warning("regular expressions of group %s: %s", resolution.group_id, error)

        self._regexes.resolve((hosted, resolution.group_id), resolution, topics, on_found)

    # ---- time

    def _begin_tick(self) -> None:
        self._sessions_left, self._expired_left = _SESSIONS_PER_TICK, _EXPIRED_PER_TICK

    def _run_timers_of(self, hosted: HostedGroups, now_ms: int) -> None:
        shard = hosted.shard
        if self._lease_expired:
            shard.restart_sessions(self.config_of)
        if shard.starts_sessions:
            self._sessions_left -= shard.start_sessions(now_ms, self._sessions_left)
        if not shard.starts_sessions:
            for outcome in shard.expire(self._timer_call(), now_ms=now_ms, limit=self._expired_left):
                self._complete_parked(hosted, outcome, now_ms)
                self._expired_left -= 1
        if hosted.next_cleanup_ms <= now_ms and not hosted.sweeps:
            hosted.next_cleanup_ms = now_ms + self.config.offsets_retention_check_interval_ms
            expired = sweep_expired_offsets(shard.state), sweep_expired_groups(shard.state)
            self._start_sweep(hosted, *expired)

    def _next_deadline_ms(self, hosted: HostedGroups, now_ms: int) -> int:
        if hosted.shard.starts_sessions:
            return now_ms
        sweep_ms = hosted.sweep_due_ms if hosted.sweeps else hosted.next_cleanup_ms
        deadline_ms = hosted.shard.deadlines.next_deadline_ms()
        return sweep_ms if deadline_ms is None else min(sweep_ms, deadline_ms)

    def _timer_call(self) -> Call:
        return Call(self.config, self.topics, version=0, wall_ms=self._clock.wall_ms())

    # ---- housekeeping

    def _start_sweep(self, hosted: HostedGroups, *sweeps: Sweep) -> None:
        hosted.sweeps.extend(sweeps)
        self._wake.set()

    def _end_tick(self, now_ms: int) -> None:
        """Write one slice of one sweep; the shards take turns."""
        due = [hosted for hosted in self._hosted.values() if hosted.sweep_due_ms <= now_ms]
        if not due:
            return
        hosted = min(due, key=lambda hosted: hosted.sweep_from_ms)
        sweep = hosted.sweeps[0]
        call = self._timer_call()
        try:
            outcome = self._apply(hosted, lambda state: sweep.build_slice(state, call))
        except KafkaError as error:
            log.warning("cleaning up __consumer_offsets-%d: %s", hosted.shard.partition, error)
            if error.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
                sweep.slice_is_too_large()
            hosted.sweep_from_ms = now_ms + WAITING_CHECK_MS
            return
        sweep.slice_is_written()
        hosted.sweep_from_ms, hosted.swept_offset = now_ms, outcome.offset
        if sweep.is_finished:
            hosted.sweeps.popleft()
