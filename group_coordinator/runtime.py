"""The shards this broker leads, and everyone who waits for one: the only file here that holds futures.

Loading, answering at the high watermark, parked joins and syncs, timers. Decisions are made in pure code;
this file decides only *when* an answer leaves. On resignation everything that waits for a shard fails with
NOT_COORDINATOR and the shard is dropped: its next leader knows everything that was ever answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from pykraft.group_coordinator.config import GroupConfig
from pykraft.group_coordinator.housekeeping import build_cleanup, topics_gone
from pykraft.group_coordinator.result import Call, CoordinatorResult, Parked, build_superseded
from pykraft.group_coordinator.shard import Outcome, PartitionWriter, Shard
from pykraft.group_coordinator.state import ShardState
from pykraft.group_coordinator.subscription import TopicsView
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.record_codec import Record
from pykraft.kafka_protocol.schema import Message
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.persistent import Map
from pykraft.metadata_log.records import ConfigResourceType
from pykraft.runtime.clock import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOAD_SLICE_RECORDS = 500
_LOAD_RETRY_S = 0.2
_LOAD_RETRY_MAX_S = 5.0
_IDLE_WAIT_MS = 60_000
_WAITING_CHECK_MS = 500

FaultHandler = Callable[[str, BaseException], None]


class Lease(Protocol):
    """What the controller has granted this broker."""

    def lease_valid(self, now_ms: int) -> bool:
        """Whether nobody else can have been told to take over yet. ``now_ms`` is monotonic."""
        ...


class _NoLease:
    """For a coordinator that nobody else can replace."""

    def lease_valid(self, now_ms: int) -> bool:
        return True


class _Waiting:
    """Somebody to be answered once the high watermark reaches ``offset``, or told off at the deadline."""

    __slots__ = ("answer", "deadline_ms", "future", "offset")

    def __init__(self, offset: int, deadline_ms: int, future: asyncio.Future[object], answer: object) -> None:
        self.offset = offset
        self.deadline_ms = deadline_ms
        self.future = future
        self.answer = answer


class HostedShard:
    """A shard with those who wait for it."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.load_task: asyncio.Task[None] | None = None
        self.parked: dict[Parked, asyncio.Future[object]] = {}
        self.waiting: deque[_Waiting] = deque()
        # With the state of that moment: commits that came later belong to a new topic of the same name.
        self.deleted_topics: dict[str, ShardState] = {}
        self.next_cleanup_ms = 0

    def release(self, high_watermark: int) -> None:
        while self.waiting and self.waiting[0].offset <= high_watermark:
            waiting = self.waiting.popleft()
            if not waiting.future.done():
                waiting.future.set_result(waiting.answer)

    def give_up_waiting(self, now_ms: int) -> None:
        """The replicas take too long. What was decided stands, but the client must ask again."""
        while self.waiting and self.waiting[0].deadline_ms <= now_ms:
            _fail(self.waiting.popleft().future, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def drop(self) -> None:
        if self.load_task is not None:
            self.load_task.cancel()
        for future in self.parked.values():
            _fail(future, ErrorCode.NOT_COORDINATOR)
        for waiting in self.waiting:
            _fail(waiting.future, ErrorCode.NOT_COORDINATOR)
        self.parked.clear()
        self.waiting.clear()


class CoordinatorRuntime:
    def __init__(
        self,
        config: GroupConfig,
        writer: PartitionWriter,
        clock: Clock,
        lease: Lease | None = None,
        on_fault: FaultHandler | None = None,
    ) -> None:
        self.config = config
        self.topics = TopicsView()
        self._configs: Map[tuple[int, str], Map[str, str]] = Map()
        self._writer = writer
        self._clock = clock
        self._lease = _NoLease() if lease is None else lease
        self._on_fault = on_fault
        self._lapsed = False
        self._hosted: dict[int, HostedShard] = {}
        self._timer_task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._sleeping_until_ms = 0

    def start(self) -> None:
        assert self._timer_task is None, "already started"
        self._timer_task = asyncio.create_task(self._run_timers(), name="group-coordinator-timers")
        self._timer_task.add_done_callback(self._report_bug)

    async def stop(self) -> None:
        for partition in sorted(self._hosted):
            self.resign(partition)
        if self._timer_task is not None:
            self._timer_task.cancel()
            await asyncio.gather(self._timer_task, return_exceptions=True)
            self._timer_task = None

    # ---- leadership

    def elect(self, partition: int, leader_epoch: int) -> None:
        """This broker leads ``partition``: load it. An epoch that is not newer is old news."""
        hosted = self._hosted.get(partition)
        if hosted is not None:
            if hosted.shard.leader_epoch >= leader_epoch:
                return
            self.resign(partition)
        hosted = HostedShard(Shard(partition, leader_epoch, self._writer))
        self._hosted[partition] = hosted
        hosted.load_task = asyncio.create_task(
            self._load(hosted), name=f"load-__consumer_offsets-{partition}"
        )
        hosted.load_task.add_done_callback(self._report_bug)

    def resign(self, partition: int) -> None:
        hosted = self._hosted.pop(partition, None)
        if hosted is not None:
            hosted.drop()

    async def _load(self, hosted: HostedShard) -> None:
        shard = hosted.shard
        offset, retry_s = 0, _LOAD_RETRY_S
        while True:
            try:
                records, next_offset = await self._writer.read(shard.partition, offset)
            except KafkaError as error:
                log.warning("loading __consumer_offsets-%d at offset %d: %s", shard.partition, offset, error)
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, _LOAD_RETRY_MAX_S)
                continue
            if next_offset == offset:
                break
            await _replay_in_slices(shard, records)
            offset = next_offset
        now_ms = self._clock.monotonic_ms()
        shard.finish_loading(offset, self.config_of, now_ms)
        hosted.next_cleanup_ms = now_ms + self.config.offsets_retention_check_interval_ms
        # Topics may have been deleted, and even made anew, during the load. All that was loaded is older: it
        # was written before this broker was elected.
        gone = {*topics_gone(shard.state, self.topics), *hosted.deleted_topics}
        hosted.deleted_topics = dict.fromkeys(gone, shard.state)
        self._forget_deleted_topics(hosted)
        self._wake.set()
        level = logging.INFO if offset else logging.DEBUG  # a new topic: fifty partitions of nothing
        log.log(level, "loaded __consumer_offsets-%d up to offset %d", shard.partition, offset)

    # ---- events of the broker

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        hosted = self._hosted.get(partition)
        if hosted is not None and hosted.shard.loaded:
            hosted.shard.advance(high_watermark)
            hosted.release(high_watermark)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        old = self.topics.image
        self._configs = image.configs
        if image.topics_by_id is not old.topics_by_id or image.topic_ids is not old.topic_ids:
            self.topics = TopicsView(image)
        if not delta.deleted_topics:
            return
        deleted = [topic.name for topic in delta.deleted_topics.values()]
        for partition in sorted(self._hosted):
            hosted = self._hosted[partition]
            hosted.deleted_topics.update(dict.fromkeys(deleted, hosted.shard.state))
            if hosted.shard.loaded:
                self._forget_deleted_topics(hosted)

    def config_of(self, group_id: str) -> GroupConfig:
        """The settings of a group: what was set for it, else what holds here."""
        overrides = self._configs.get((ConfigResourceType.GROUP, group_id))
        return self.config if overrides is None else self.config.with_group_overrides(overrides)

    # ---- requests

    def hosted_partitions(self) -> list[int]:
        return sorted(self._hosted)

    async def write(self, partition: int, decide: Callable[[ShardState], CoordinatorResult]) -> Message:
        """Decide on a shard and answer once the decision can no longer be lost."""
        hosted = self._loaded(partition)
        outcome = self._apply(hosted, decide)
        if isinstance(outcome.response, Parked):
            future = self._park(hosted, outcome.response)
            self._settle(hosted, outcome)
            answer = await future
        else:
            self._settle(hosted, outcome)
            answer = await self._at(hosted, outcome.offset, outcome.response)
        assert isinstance(answer, Message)
        return answer

    async def read(self, partition: int, view: Callable[[ShardState], T]) -> T:
        """Look at a shard, and tell once nothing that was seen can be lost."""
        hosted = self._loaded(partition)
        seen = view(hosted.shard.state)
        await self._at(hosted, hosted.shard.wait_offset(), None)
        return seen

    def _loaded(self, partition: int) -> HostedShard:
        if not self._lease.lease_valid(self._clock.monotonic_ms()):
            # Somebody else may coordinate by now: take newer commits, give partitions to others. What is
            # written here waits for the replicas and could not do harm, but an answer without records could.
            self._lapsed = True
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "This broker has lost touch with the controller."
            )
        hosted = self._hosted.get(partition)
        if hosted is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "This broker does not coordinate the group.")
        if not hosted.shard.loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The group is being loaded.")
        return hosted

    def _apply(self, hosted: HostedShard, decide: Callable[[ShardState], CoordinatorResult]) -> Outcome:
        now_ms = self._clock.monotonic_ms()
        outcome = hosted.shard.apply(decide, wall_ms=self._clock.wall_ms(), now_ms=now_ms)
        deadline_ms = hosted.shard.deadlines.next_deadline_ms()
        if deadline_ms is not None and deadline_ms < self._sleeping_until_ms:
            self._wake.set()
        return outcome

    def _park(self, hosted: HostedShard, key: Parked) -> asyncio.Future[object]:
        """Wait under ``key``. An older request of the same member has been given up by its client."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        older = hosted.parked.get(key)
        if older is not None and not older.done():
            older.set_result(build_superseded(key))
        hosted.parked[key] = future
        return future

    def _settle(self, hosted: HostedShard, outcome: Outcome) -> None:
        """Answer those who were parked, now or at the offset of the outcome."""
        for completion in outcome.completions:
            future = hosted.parked.pop(completion.parked, None)
            if future is not None:
                self._answer_at(hosted, outcome.offset, future, completion.response)

    async def _at(self, hosted: HostedShard, offset: int | None, answer: object) -> object:
        if offset is None:
            return answer
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._answer_at(hosted, offset, future, answer)
        return await future

    def _answer_at(
        self, hosted: HostedShard, offset: int | None, future: asyncio.Future[object], answer: object
    ) -> None:
        if offset is not None:
            deadline_ms = self._clock.monotonic_ms() + self.config.offset_commit_timeout_ms
            hosted.waiting.append(_Waiting(offset, deadline_ms, future, answer))
            if deadline_ms < self._sleeping_until_ms:
                self._wake.set()
        elif not future.done():
            future.set_result(answer)

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
        """Let everything that is due at this moment happen."""
        now_ms = self._clock.monotonic_ms()
        leads = self._lease.lease_valid(now_ms)
        for partition in sorted(self._hosted):
            hosted = self._hosted[partition]
            if not hosted.shard.loaded:
                continue
            if not leads:
                hosted.give_up_waiting(now_ms)
                continue
            if self._lapsed:
                hosted.shard.restart_sessions(self.config_of, now_ms)
            for outcome in hosted.shard.expire(self._timer_call(), now_ms=now_ms):
                self._settle(hosted, outcome)
            hosted.give_up_waiting(now_ms)
            self._forget_deleted_topics(hosted)
            if hosted.next_cleanup_ms <= now_ms:
                hosted.next_cleanup_ms = now_ms + self.config.offsets_retention_check_interval_ms
                self._clean_up(hosted)
        self._lapsed = not leads

    def _next_wake_ms(self, now_ms: int) -> int:
        wake_ms = now_ms + _IDLE_WAIT_MS
        for hosted in self._hosted.values():
            if not hosted.shard.loaded:
                continue
            if self._lapsed:
                return min(wake_ms, now_ms + _WAITING_CHECK_MS)
            deadline_ms = hosted.shard.deadlines.next_deadline_ms()
            if deadline_ms is not None:
                wake_ms = min(wake_ms, deadline_ms)
            wake_ms = min(wake_ms, hosted.next_cleanup_ms)
            if hosted.waiting or hosted.deleted_topics:
                wake_ms = min(wake_ms, now_ms + _WAITING_CHECK_MS)
        return wake_ms

    def _timer_call(self) -> Call:
        return Call(self.config, self.topics, version=0, wall_ms=self._clock.wall_ms())

    # ---- housekeeping

    def _forget_deleted_topics(self, hosted: HostedShard) -> None:
        if hosted.deleted_topics and self._apply_all(
            hosted, lambda state: build_cleanup(state, self._timer_call(), hosted.deleted_topics)
        ):
            hosted.deleted_topics = {}

    def _clean_up(self, hosted: HostedShard) -> None:
        self._apply_all(hosted, lambda state: build_cleanup(state, self._timer_call()))

    def _apply_all(self, hosted: HostedShard, decide: Callable[[ShardState], CoordinatorResult]) -> bool:
        """Apply until there is nothing more to do; False if a write failed (it will be tried again)."""
        try:
            while True:
                before = hosted.shard.state
                self._settle(hosted, self._apply(hosted, decide))
                if hosted.shard.state is before:
                    return True
        except KafkaError as error:
            log.warning("cleaning up __consumer_offsets-%d: %s", hosted.shard.partition, error)
            return False

    def _report_bug(self, task: asyncio.Task[None]) -> None:
        """A background task never ends by itself: if it does, that is a bug, and the owner must know."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._on_fault is not None:
            self._on_fault(task.get_name(), error)
        else:
            context = {"message": f"{task.get_name()} failed", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)


async def _replay_in_slices(shard: Shard, records: Sequence[Record]) -> None:
    """Fold without holding the event loop for long."""
    for start in range(0, len(records), _LOAD_SLICE_RECORDS):
        shard.load(records[start : start + _LOAD_SLICE_RECORDS])
        await asyncio.sleep(0)


def _fail(future: asyncio.Future[object], code: ErrorCode) -> None:
    if not future.done():
        future.set_exception(KafkaError(code))
