"""The shards that this broker leads, and the requests that wait for them.

Loads shards, sends answers at the high watermark, keeps parked joins and syncs, runs timers and sweeps.
Decisions are made in pure code; this file decides only *when* an answer is sent. On resignation all requests
that wait for a shard fail with NOT_COORDINATOR, and the shard is dropped: its next leader knows everything
that was ever answered. This file is long because leadership, requests, timers and sweeps all act on the same
hosted shards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Protocol, TypeVar

from pykraft.group_coordinator.answers import Answers, Waiter
from pykraft.group_coordinator.config import GroupConfig
from pykraft.group_coordinator.hosted import HostedShard, Waiting
from pykraft.group_coordinator.housekeeping import (
    Sweep,
    sweep_after_load,
    sweep_deleted_topics,
    sweep_expired_groups,
    sweep_expired_offsets,
)
from pykraft.group_coordinator.loading import Loader
from pykraft.group_coordinator.past_lease import (
    Decide,
    MemberTimeout,
    MustWaitForLeaseError,
    answer_heartbeat,
    lease_is_over,
    only_with_records,
)
from pykraft.group_coordinator.regex_refresh import handle_resolution
from pykraft.group_coordinator.regex_worker import Found, RegexWorker
from pykraft.group_coordinator.result import Answer, Call, Parked, Resolution, build_superseded
from pykraft.group_coordinator.shard import Outcome, PartitionWriter, Shard
from pykraft.group_coordinator.state import ShardState
from pykraft.group_coordinator.subscription import TopicsView
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.schema import Message
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.persistent import Map
from pykraft.runtime.clock import Clock
from pykraft.runtime.tasks import FatalHandler, TaskSupervisor
from pykraft.runtime.turns import Turns, UnlimitedTurn

log = logging.getLogger(__name__)

T = TypeVar("T")

_GROWTH_RECORDS = 5_000
_LOAD_RETRY_S = 0.2
_LOAD_RETRY_MAX_S = 5.0
_IDLE_WAIT_MS = 60_000
_WAITING_CHECK_MS = 500
_SESSIONS_PER_TICK = 500
_EXPIRED_PER_TICK = 5


class Lease(Protocol):
    """The lease that the controller has granted this broker."""

    def lease_valid(self, now_ms: int) -> bool:
        """Whether no other broker can have taken over yet. ``now_ms`` is monotonic."""
        ...

    def expired_ms(self, now_ms: int) -> int | None:
        """How long ago the lease expired; 0 while it holds, None for a broker that is fenced."""
        ...


class _NoLease:
    """The lease of a coordinator that no other broker can replace."""

    def lease_valid(self, now_ms: int) -> bool:
        return True

    def expired_ms(self, now_ms: int) -> int | None:
        return 0


@dataclass(slots=True)
class _Allowance:
    """How much the timers of all shards together may still do in this turn."""

    sessions: int = field(default_factory=lambda: _SESSIONS_PER_TICK)
    expired: int = field(default_factory=lambda: _EXPIRED_PER_TICK)


class CoordinatorRuntime:
    def __init__(
        self,
        config: GroupConfig,
        writer: PartitionWriter,
        clock: Clock,
        on_fatal: FatalHandler,
        lease: Lease | None = None,
        on_growth: Callable[[], None] | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.config = config
        self.topics = TopicsView()
        self._configs: Map[tuple[int, str], Map[str, str]] = Map()
        self._writer = writer
        self._clock = clock
        self._lease = _NoLease() if lease is None else lease
        self._on_growth = on_growth or (lambda: None)
        self._grown_records = 0
        self._answers = Answers(UnlimitedTurn() if turns is None else turns)
        self._load_slice = asyncio.Lock()
        self._lease_expired = False
        self._hosted: dict[int, HostedShard] = {}
        self._tasks = TaskSupervisor(on_fatal)
        self._regexes = RegexWorker(self._tasks)
        self._wake = asyncio.Event()
        self._sleeping_until_ms = 0

    def start(self) -> None:
        self._tasks.start(self._run_timers(), "group-coordinator-timers")

    async def stop(self) -> None:
        for partition in sorted(self._hosted):
            self.resign(partition)
        await self._tasks.close()
        self._answers.flush()

    # ---- leadership

    def elect(self, partition: int, leader_epoch: int) -> None:
        """This broker leads ``partition``: load it. An epoch that is not newer changes nothing."""
        hosted = self._hosted.get(partition)
        if hosted is not None:
            if hosted.shard.leader_epoch >= leader_epoch:
                return
            self.resign(partition)
        hosted = HostedShard(Shard(partition, leader_epoch, self._writer), self._answers)
        self._hosted[partition] = hosted
        hosted.load_task = self._tasks.start(self._load(hosted), f"load-__consumer_offsets-{partition}")

    def resign(self, partition: int) -> None:
        hosted = self._hosted.pop(partition, None)
        if hosted is not None:
            hosted.drop()
            self._regexes.forget(lambda owner: owner[0] is hosted)

    async def _load(self, hosted: HostedShard) -> None:
        shard, loader = hosted.shard, Loader(hosted.shard.partition)
        offset, retry_s = 0, _LOAD_RETRY_S
        while True:
            try:
                batches, next_offset = await self._writer.read(shard.partition, offset)
            except KafkaError as error:
                log.warning("loading __consumer_offsets-%d at offset %d: %s", shard.partition, offset, error)
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, _LOAD_RETRY_MAX_S)
                continue
            if next_offset == offset:
                break
            await self._in_slices(loader.load(batches))
            offset = next_offset
        await self._in_slices(loader.finish())
        shard.finish_loading(offset, loader.state, self.config_of)
        hosted.grown_offset = offset
        hosted.next_cleanup_ms = self._clock.monotonic_ms() + self.config.offsets_retention_check_interval_ms
        self._start_sweep(hosted, sweep_after_load(shard.state, self.topics, hosted.deleted_while_loading))
        level = logging.INFO if offset else logging.DEBUG  # a new topic has fifty empty partitions
        log.log(level, "loaded __consumer_offsets-%d up to offset %d", shard.partition, offset)

    async def _in_slices(self, work: Iterator[int]) -> None:
        """Do a part of a load without holding the event loop for long."""
        while True:
            async with self._load_slice:  # many partitions may be loaded at once
                steps = next(work, None)
                if steps is None:
                    return
                self._grow(steps)
                await asyncio.sleep(0)

    # ---- events of the broker

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        hosted = self._hosted.get(partition)
        if hosted is not None and hosted.shard.loaded:
            hosted.shard.advance(high_watermark)
            hosted.release(high_watermark, self._clock.monotonic_ms())
            if hosted.swept_offset is not None and hosted.swept_offset <= high_watermark:
                hosted.swept_offset = None
                self._wake.set()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        old = self.topics.image
        self._configs = image.configs
        if image.topics_by_id is not old.topics_by_id or image.topic_ids is not old.topic_ids:
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

    def hosted_partitions(self) -> list[int]:
        return sorted(self._hosted)

    def count_timers(self) -> int:
        """How many timers run: one for each member, and more in groups that rebalance."""
        return sum(len(hosted.shard.deadlines) for hosted in self._hosted.values())

    def submit(self, partition: int, decide: Decide, waiter: Waiter) -> bool:
        """Decide at once, without a task, and answer ``waiter`` as :meth:`write` does. Not for results that
        move other requests.

        False if the lease is over: nothing was decided, and :meth:`write` is to be used.
        """
        now_ms = self._clock.monotonic_ms()
        if self._lease_expired_ms(now_ms) != 0:
            return False
        hosted = self._loaded(partition)
        outcome = self._stage(hosted, decide, now_ms)
        assert not outcome.completions
        self._answer_at(hosted, outcome, waiter, outcome.response, now_ms)
        return True

    def state_of(self, partition: int) -> ShardState:
        """The newest state of a shard: not to be answered from, since some of it may be taken back."""
        return self._loaded(partition).shard.state

    def max_batch_bytes(self, partition: int) -> int:
        """The size of the largest batch that can be written."""
        return self._writer.max_batch_bytes(partition)

    async def write(
        self, partition: int, decide: Decide, member_timeout: MemberTimeout | None = None
    ) -> Answer:
        """Decide on a shard and answer once the decision can no longer be lost.

        ``member_timeout`` is set for heartbeats: see :mod:`.past_lease`.
        """
        while True:
            now_ms = self._clock.monotonic_ms()
            expired_ms = self._lease_expired_ms(now_ms)
            hosted = self._loaded(partition)
            if expired_ms == 0:
                return await self._answer(hosted, self._stage(hosted, decide, now_ms), now_ms)
            if member_timeout is not None:
                shard = hosted.shard
                answer = answer_heartbeat(shard.committed, shard.state, decide, member_timeout, expired_ms)
                if answer is not None:
                    return answer.response
            try:
                outcome = self._stage(hosted, only_with_records(decide), now_ms)
            except MustWaitForLeaseError:
                await self._wait_for_lease(hosted)
            else:
                return await self._answer(hosted, outcome, now_ms)

    async def _answer(self, hosted: HostedShard, outcome: Outcome, now_ms: int) -> Answer:
        if isinstance(outcome.response, Parked):
            future = self._park(hosted, outcome.response)
            self._complete_parked(hosted, outcome, now_ms)
        else:
            self._complete_parked(hosted, outcome, now_ms)
            if outcome.offset is None and not outcome.is_staged:
                return outcome.response
            future = asyncio.get_running_loop().create_future()
            self._answer_at(hosted, outcome, future, outcome.response, now_ms)
        answer = await future
        assert isinstance(answer, Message | int | list)
        return answer

    async def read(self, partition: int, view: Callable[[ShardState], T]) -> T:
        """Read from a shard while the lease holds, and answer once nothing that was read can be lost."""
        while self._lease_expired_ms(now_ms := self._clock.monotonic_ms()) != 0:
            await self._wait_for_lease(self._loaded(partition))
        hosted = self._loaded(partition)
        seen: T | KafkaError
        try:
            seen = view(hosted.shard.state)
        except KafkaError as error:
            seen = error  # it may be based on what is taken back, as an answer may
        outcome = hosted.shard.seen(None)
        if outcome.is_staged or outcome.offset is not None:
            future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            self._answer_at(hosted, outcome, future, outcome.response, now_ms)
            await future
        if isinstance(seen, KafkaError):
            raise seen
        return seen

    def _lease_expired_ms(self, now_ms: int) -> int:
        """How long ago the lease expired; 0 while it holds. :class:`KafkaError` if the broker is fenced."""
        expired_ms = self._lease.expired_ms(now_ms)
        if expired_ms != 0:
            self._lease_expired = True
        if expired_ms is None:
            raise lease_is_over()
        return expired_ms

    async def _wait_for_lease(self, hosted: HostedShard) -> None:
        """Wait until the lease is renewed; :class:`KafkaError` if that takes too long."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        deadline_ms = self._clock.monotonic_ms() + self.config.offset_commit_timeout_ms
        hosted.waiting_for_lease.append(Waiting(0, deadline_ms, future, None))
        self._wake.set()
        await future

    def _loaded(self, partition: int) -> HostedShard:
        hosted = self._hosted.get(partition)
        if hosted is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "This broker does not coordinate the group.")
        if not hosted.shard.loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The group is being loaded.")
        return hosted

    def _stage(self, hosted: HostedShard, decide: Decide, now_ms: int) -> Outcome:
        """Decide; what is written goes into the next batch of the shard."""
        wall_ms = self._clock.wall_ms()
        outcome = hosted.shard.stage(decide, wall_ms=wall_ms, now_ms=now_ms)
        if outcome is None:
            self._flush(hosted)
            outcome = hosted.shard.stage(decide, wall_ms=wall_ms, now_ms=now_ms)
            assert outcome is not None, "nothing is staged after a flush"
        if not outcome.is_staged:
            self._has_written(hosted)
        if outcome.resolution is not None:
            hosted.resolutions.append(outcome.resolution)
            if not outcome.is_staged:
                self._begin_resolutions(hosted)
        return outcome

    def _apply(self, hosted: HostedShard, decide: Decide) -> Outcome:
        """Decide and write at once."""
        self._flush(hosted)
        now_ms = self._clock.monotonic_ms()
        outcome = hosted.shard.apply(decide, wall_ms=self._clock.wall_ms(), now_ms=now_ms)
        self._has_written(hosted)
        if outcome.resolution is not None:
            self._resolve(hosted, outcome.resolution)
        return outcome

    def _schedule_flush(self, hosted: HostedShard) -> None:
        """Append what is staged behind everything that is ready to run now, or after the configured time.

        So one append is shared by all requests that have arrived, and a single one hardly waits.
        """
        if hosted.flush is not None or not hosted.shard.has_staged:
            return
        linger_ms = self.config.append_linger_ms
        if linger_ms == 0:
            self._flush(hosted)
        elif linger_ms < 0:
            hosted.flush = asyncio.get_running_loop().call_soon(self._flush, hosted)
        else:
            hosted.flush = asyncio.get_running_loop().call_later(linger_ms / 1000, self._flush, hosted)

    def _flush(self, hosted: HostedShard) -> None:
        """Append what is staged, and answer its requests; all of them fail if it cannot be appended."""
        if hosted.flush is not None:
            hosted.flush.cancel()
            hosted.flush = None
        if not hosted.shard.has_staged:
            return
        requests, hosted.staged = hosted.staged, []
        try:
            offset = hosted.shard.flush()
        except KafkaError as error:
            hosted.resolutions.clear()
            for waiting in requests:
                self._answers.give(waiting.future, KafkaError(error.code, error.message))
        except BaseException:
            for waiting in requests:
                self._answers.fail(waiting.future, ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        else:
            self._has_written(hosted)
            for waiting in requests:
                self._answer_from(hosted, offset, waiting)
            self._begin_resolutions(hosted)

    def _begin_resolutions(self, hosted: HostedShard) -> None:
        """Look for the topics of regular expressions of which the log knows by now."""
        resolutions, hosted.resolutions = hosted.resolutions, []
        for resolution in resolutions:
            self._resolve(hosted, resolution)

    def _has_written(self, hosted: HostedShard) -> None:
        """State and timers of a shard have changed."""
        shard = hosted.shard
        self._grow(max(0, shard.end_offset - hosted.grown_offset))
        hosted.grown_offset = shard.end_offset
        deadline_ms = shard.deadlines.next_deadline_ms()
        if deadline_ms is not None and deadline_ms < self._sleeping_until_ms:
            self._wake.set()

    def _resolve(self, hosted: HostedShard, resolution: Resolution) -> None:
        """Find the topics of a group's regular expressions; the result is a decision like any other."""
        topics = self.topics

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

    def _grow(self, records: int) -> None:
        """Count records that entered the state: each is a new object for the garbage collector."""
        self._grown_records += records
        if self._grown_records >= _GROWTH_RECORDS:
            self._grown_records = 0
            self._on_growth()

    def _park(self, hosted: HostedShard, key: Parked) -> asyncio.Future[object]:
        """Park a request under ``key``. An older one of the same member has been given up by its client."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        older = hosted.parked.get(key)
        if older is not None and not older.done():
            self._answers.give(older, build_superseded(key))
        hosted.parked[key] = future
        return future

    def _complete_parked(self, hosted: HostedShard, outcome: Outcome, now_ms: int) -> None:
        """Answer the parked requests that the outcome completes, now or at its offset."""
        for completion in outcome.completions:
            future = hosted.parked.pop(completion.parked, None)
            if future is not None:
                self._answer_at(hosted, outcome, future, completion.response, now_ms)

    def _answer_at(
        self, hosted: HostedShard, outcome: Outcome, waiter: Waiter, answer: Answer, now_ms: int
    ) -> None:
        """Give ``answer`` as soon as what the outcome is based on cannot be lost."""
        waiting = Waiting(0, now_ms + self.config.offset_commit_timeout_ms, waiter, answer)
        if outcome.is_staged:
            hosted.staged.append(waiting)
            self._schedule_flush(hosted)
        else:
            self._answer_from(hosted, outcome.offset, waiting)

    def _answer_from(self, hosted: HostedShard, offset: int | None, waiting: Waiting) -> None:
        """Answer when the high watermark has reached ``offset``; None: now."""
        if offset is None:
            self._answers.give(waiting.future, waiting.answer)
            return
        waiting.offset = offset
        hosted.waiting.append(waiting)
        if waiting.deadline_ms < self._sleeping_until_ms:
            self._wake.set()

    # ---- time

    async def _run_timers(self) -> None:
        while True:
            now_ms = self._clock.monotonic_ms()
            self._sleeping_until_ms = self._next_wake_ms(now_ms)
            self._wake.clear()
            try:
                async with asyncio.timeout(max(self._sleeping_until_ms - now_ms, 0) / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self.tick()

    def tick(self) -> None:
        """Run the timers and sweeps that are due, as many as one turn of the event loop allows."""
        now_ms = self._clock.monotonic_ms()
        leads = self._lease.lease_valid(now_ms)
        left = _Allowance()
        for partition in sorted(self._hosted):
            hosted = self._hosted[partition]
            if not hosted.shard.loaded:
                continue
            self._flush(hosted)
            hosted.give_up_waiting(now_ms)
            if leads:
                hosted.resume_waiting_for_lease()
                self._run_timers_of(hosted, now_ms, left)
        if leads:
            self._sweep(now_ms)
        self._lease_expired = not leads

    def _run_timers_of(self, hosted: HostedShard, now_ms: int, left: _Allowance) -> None:
        shard = hosted.shard
        if self._lease_expired:
            shard.restart_sessions(self.config_of)
        if shard.starts_sessions:
            left.sessions -= shard.start_sessions(now_ms, left.sessions)
        if not shard.starts_sessions:
            for outcome in shard.expire(self._timer_call(), now_ms=now_ms, limit=left.expired):
                self._complete_parked(hosted, outcome, now_ms)
                left.expired -= 1
        if hosted.next_cleanup_ms <= now_ms and not hosted.sweeps:
            hosted.next_cleanup_ms = now_ms + self.config.offsets_retention_check_interval_ms
            expired = sweep_expired_offsets(shard.state), sweep_expired_groups(shard.state)
            self._start_sweep(hosted, *expired)

    def _next_wake_ms(self, now_ms: int) -> int:
        wake_ms = now_ms + _IDLE_WAIT_MS
        for hosted in self._hosted.values():
            if not hosted.shard.loaded:
                continue
            if self._lease_expired:
                return min(wake_ms, now_ms + _WAITING_CHECK_MS)
            if hosted.shard.starts_sessions:
                return now_ms
            deadline_ms = hosted.shard.deadlines.next_deadline_ms()
            if deadline_ms is not None:
                wake_ms = min(wake_ms, deadline_ms)
            wake_ms = min(wake_ms, hosted.sweep_due_ms if hosted.sweeps else hosted.next_cleanup_ms)
            if hosted.waiting:
                wake_ms = min(wake_ms, now_ms + _WAITING_CHECK_MS)
        return wake_ms

    def _timer_call(self) -> Call:
        return Call(self.config, self.topics, version=0, wall_ms=self._clock.wall_ms())

    # ---- housekeeping

    def _start_sweep(self, hosted: HostedShard, *sweeps: Sweep) -> None:
        hosted.sweeps.extend(sweeps)
        self._wake.set()

    def _sweep(self, now_ms: int) -> None:
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
            hosted.sweep_from_ms = now_ms + _WAITING_CHECK_MS
            return
        sweep.slice_is_written()
        hosted.sweep_from_ms, hosted.swept_offset = now_ms, outcome.offset
        if sweep.is_finished:
            hosted.sweeps.popleft()
