"""The shards that this broker leads, and the requests that wait for them.

Loads shards, sends answers at the high watermark, and runs the timers of a coordinator. Decisions are made in
pure code; this file decides only *when* an answer is sent. On resignation all requests that wait for a shard
fail with NOT_COORDINATOR, and the shard is dropped: its next leader knows everything that was ever answered.

A coordinator extends it: with how a shard is made and loaded, and with what happens in it as time passes. It
is long because leadership, requests and timers all act on the same hosted shards.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from pykraft.coordinator.answers import Answers, Waiter
from pykraft.coordinator.hosted import HostedShard, Waiting
from pykraft.coordinator.lease import (
    EndlessLease,
    Lease,
    MustWaitForLeaseError,
    lease_is_over,
    only_with_records,
)
from pykraft.coordinator.result import Outcome, Result
from pykraft.coordinator.writer import BatchBody, PartitionWriter
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.clock import Clock
from pykraft.runtime.tasks import FatalHandler, TaskSupervisor
from pykraft.runtime.turns import Turns, UnlimitedTurn

log = logging.getLogger(__name__)

S = TypeVar("S")
R = TypeVar("R", bound=Result)
H = TypeVar("H", bound="HostedShard[Any, Any]")
M = TypeVar("M")
T = TypeVar("T")

_GROWTH_RECORDS = 5_000
_LOAD_RETRY_S = 0.2
_LOAD_RETRY_MAX_S = 5.0
_IDLE_WAIT_MS = 60_000
_LEASE_PATIENCE_MS = 5_000
WAITING_CHECK_MS = 500


class Loader(Protocol[S]):
    """One load: :meth:`load` takes the log in order; after :meth:`finish` ``state`` is the result."""

    state: S

    def load(self, batches: Iterable[BatchBody]) -> Iterator[int]:
        """Read batches; yields the number of steps after each slice."""
        ...

    def finish(self) -> Iterator[int]: ...


class CoordinatorRuntime(ABC, Generic[S, R, H, M]):
    def __init__(
        self,
        topic: str,
        writer: PartitionWriter,
        clock: Clock,
        on_fatal: FatalHandler,
        lease: Lease | None = None,
        on_growth: Callable[[], None] | None = None,
        turns: Turns | None = None,
    ) -> None:
        """``on_growth`` is called repeatedly while the state grows by many long-lived objects."""
        self._topic = topic
        self._writer = writer
        self._clock = clock
        self._lease = EndlessLease() if lease is None else lease
        self._on_growth = on_growth or (lambda: None)
        self._grown_records = 0
        self._answers = Answers(UnlimitedTurn() if turns is None else turns)
        self._load_slice = asyncio.Lock()
        self._lease_expired = False
        self._hosted: dict[int, H] = {}
        self._tasks = TaskSupervisor(on_fatal)
        self._wake = asyncio.Event()
        self._sleeping_until_ms = 0

    # ---- what a coordinator adds

    @property
    @abstractmethod
    def _linger_ms(self) -> int:
        """How long records are collected for one batch; below 0: until all that has arrived is handled."""

    @property
    @abstractmethod
    def _write_timeout_ms(self) -> int:
        """How long a request waits for the replicas."""

    @abstractmethod
    def _host(self, partition: int, leader_epoch: int) -> H:
        """A shard to load."""

    @abstractmethod
    def _loader(self, partition: int) -> Loader[S]: ...

    @abstractmethod
    def _finish_loading(self, hosted: H, end_offset: int, state: S) -> None:
        """The whole log up to ``end_offset`` makes ``state``."""

    @abstractmethod
    def _next_deadline_ms(self, hosted: H, now_ms: int) -> int | None:
        """When a timer of the shard is due."""

    @abstractmethod
    def _run_timers_of(self, hosted: H, now_ms: int) -> None:
        """Do what is due; only while the lease holds."""

    def _begin_tick(self) -> None:
        """The timers of all shards are going to run."""

    def _end_tick(self, now_ms: int) -> None:
        """The timers of all shards have run, and the lease holds."""

    def _has_resigned(self, hosted: H) -> None:
        """The shard is no longer led here."""

    def _committed(self, hosted: H, high_watermark: int) -> None:
        """The high watermark has moved; answers have been sent."""

    def _past_lease(self, hosted: H, decide: Callable[[S], R], member: M, expired_ms: int) -> R | None:
        """Return an answer that needs no record, so many ms after the lease has expired, or None."""
        return None

    def _take_effect(self, hosted: H, result: R) -> None:
        """The records of a result that ``has_effects`` are appended, or there are none."""

    # ---- leadership

    def start(self) -> None:
        self._tasks.start(self._run_timers(), f"{self._topic}-timers")

    async def stop(self) -> None:
        for partition in sorted(self._hosted):
            self.resign(partition)
        await self._tasks.close()
        self._answers.flush()

    def elect(self, partition: int, leader_epoch: int) -> None:
        """This broker leads ``partition``: load it. An epoch that is not newer changes nothing."""
        hosted = self._hosted.get(partition)
        if hosted is not None:
            if hosted.shard.leader_epoch >= leader_epoch:
                return
            self.resign(partition)
        hosted = self._hosted[partition] = self._host(partition, leader_epoch)
        hosted.load_task = self._tasks.start(self._load(hosted), f"load-{self._topic}-{partition}")

    def resign(self, partition: int) -> None:
        hosted = self._hosted.pop(partition, None)
        if hosted is not None:
            hosted.drop()
            self._has_resigned(hosted)

    async def _load(self, hosted: H) -> None:
        partition = hosted.shard.partition
        loader = self._loader(partition)
        offset, retry_s = 0, _LOAD_RETRY_S
        while True:
            try:
                batches, next_offset = await self._writer.read(partition, offset)
            except KafkaError as error:
                log.warning("loading %s-%d at offset %d: %s", self._topic, partition, offset, error)
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, _LOAD_RETRY_MAX_S)
                continue
            if next_offset == offset:
                break
            await self._in_slices(loader.load(batches))
            offset = next_offset
        await self._in_slices(loader.finish())
        hosted.grown_offset = offset
        self._finish_loading(hosted, offset, loader.state)
        self._wake.set()
        level = logging.INFO if offset else logging.DEBUG  # a new topic has fifty empty partitions
        log.log(level, "loaded %s-%d up to offset %d", self._topic, partition, offset)

    async def _in_slices(self, work: Iterator[int]) -> None:
        """Do a part of a load without holding the event loop for long."""
        while True:
            async with self._load_slice:  # many partitions may be loaded at once
                steps = next(work, None)
                if steps is None:
                    return
                self._grow(steps)
                await asyncio.sleep(0)

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        hosted = self._hosted.get(partition)
        if hosted is not None and hosted.shard.loaded:
            hosted.shard.advance(high_watermark)
            hosted.release(high_watermark, self._clock.monotonic_ms())
            self._committed(hosted, high_watermark)

    # ---- requests

    def leads(self, partition: int) -> bool:
        """Whether this broker coordinates the partition, loaded or not."""
        return partition in self._hosted

    def hosted_partitions(self) -> list[int]:
        return sorted(self._hosted)

    def submit(self, partition: int, decide: Callable[[S], R], waiter: Waiter) -> bool:
        """Decide at once, without a task, and answer ``waiter`` as :meth:`write` does. Not for results that
        move other requests.

        False if the lease is over: nothing was decided, and :meth:`write` is to be used.
        """
        now_ms = self._clock.monotonic_ms()
        if self._lease_expired_ms(now_ms) != 0:
            return False
        hosted = self._loaded(partition)
        outcome = self._stage(hosted, decide, now_ms)
        assert not outcome.result.moves_others
        self._answer_at(hosted, outcome, waiter, outcome.result.response, now_ms)
        return True

    def state_of(self, partition: int) -> S:
        """The newest state of a shard: not to be answered from, since some of it may be taken back."""
        state: S = self._loaded(partition).shard.state
        return state

    def states(self) -> Iterator[S]:
        """The newest state of every loaded shard, for counting."""
        for partition in self.hosted_partitions():
            hosted = self._hosted.get(partition)
            if hosted is not None and hosted.shard.loaded:
                yield hosted.shard.state

    def max_batch_bytes(self, partition: int) -> int:
        """The size of the largest batch that can be written."""
        return self._writer.max_batch_bytes(partition)

    async def write(self, partition: int, decide: Callable[[S], R], member: M | None = None) -> Any:
        """Decide on a shard and answer once the decision can no longer be lost.

        ``member``: who sends a heartbeat, which may have an answer after the lease has expired.
        """
        while True:
            now_ms = self._clock.monotonic_ms()
            expired_ms = self._lease_expired_ms(now_ms)
            hosted = self._loaded(partition)
            if expired_ms == 0:
                answer = self._answer(hosted, self._stage(hosted, decide, now_ms), now_ms)
                break
            if member is not None:
                result = self._past_lease(hosted, decide, member, expired_ms)
                if result is not None:
                    return result.response
            try:
                outcome = self._stage(hosted, only_with_records(decide), now_ms)
            except MustWaitForLeaseError:
                await self._wait_for_lease(hosted)
            else:
                answer = self._answer(hosted, outcome, now_ms)
                break
        return await answer if isinstance(answer, asyncio.Future) else answer

    def _answer(self, hosted: H, outcome: Outcome[R], now_ms: int) -> object:
        """The answer, or the future that gets it."""
        if outcome.offset is None and not outcome.is_staged:
            return outcome.result.response
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._answer_at(hosted, outcome, future, outcome.result.response, now_ms)
        return future

    async def read(self, partition: int, view: Callable[[S], T]) -> T:
        """Read from a shard while the lease holds, and answer once nothing that was read can be lost."""
        while self._lease_expired_ms(now_ms := self._clock.monotonic_ms()) != 0:
            await self._wait_for_lease(self._loaded(partition))
        hosted = self._loaded(partition)
        seen: T | KafkaError
        try:
            seen = view(hosted.shard.state)
        except KafkaError as error:
            seen = error  # it may be based on what is taken back, as an answer may
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        waiting = Waiting(0, now_ms + self._write_timeout_ms, future, None)
        if hosted.shard.has_staged:
            hosted.staged.append(waiting)
            self._schedule_flush(hosted)
            await future
        elif (offset := hosted.shard.wait_offset()) is not None:
            self._answer_from(hosted, offset, waiting)
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

    async def _wait_for_lease(self, hosted: H) -> None:
        """Wait until the lease is renewed; :class:`KafkaError` if that takes too long.

        Everything behind the request on its connection waits, too: not as long as for replicas.
        """
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        deadline_ms = self._clock.monotonic_ms() + min(self._write_timeout_ms, _LEASE_PATIENCE_MS)
        hosted.waiting_for_lease.append(Waiting(0, deadline_ms, future, None))
        self._wake.set()
        await future

    def _loaded(self, partition: int) -> H:
        hosted = self._hosted.get(partition)
        if hosted is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "This broker is not the coordinator.")
        if not hosted.shard.loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The coordinator is loading.")
        return hosted

    def _stage(self, hosted: H, decide: Callable[[S], R], now_ms: int) -> Outcome[R]:
        """Decide; what is written goes into the next batch of the shard."""
        wall_ms = self._clock.wall_ms()
        outcome: Outcome[R] | None = hosted.shard.stage(decide, wall_ms=wall_ms, now_ms=now_ms)
        if outcome is None:
            self._flush(hosted)
            outcome = hosted.shard.stage(decide, wall_ms=wall_ms, now_ms=now_ms)
            assert outcome is not None, "nothing is staged after a flush"
        if not outcome.is_staged:
            self._has_written(hosted)
        if outcome.result.has_effects:
            hosted.effects.append(outcome.result)
            if not outcome.is_staged:
                self._take_effects(hosted)
        return outcome

    def _apply(self, hosted: H, decide: Callable[[S], R]) -> Outcome[R]:
        """Decide and write at once."""
        self._flush(hosted)
        now_ms = self._clock.monotonic_ms()
        outcome: Outcome[R] = hosted.shard.apply(decide, wall_ms=self._clock.wall_ms(), now_ms=now_ms)
        self._has_written(hosted)
        if outcome.result.has_effects:
            self._take_effect(hosted, outcome.result)
        return outcome

    def _schedule_flush(self, hosted: H) -> None:
        """Append what is staged behind everything that is ready to run now, or after the configured time.

        So one append is shared by all requests that have arrived, and a single one hardly waits.
        """
        if hosted.flush is not None or not hosted.shard.has_staged:
            return
        linger_ms = self._linger_ms
        if linger_ms == 0:
            self._flush(hosted)
        elif linger_ms < 0:
            hosted.flush = asyncio.get_running_loop().call_soon(self._flush, hosted)
        else:
            hosted.flush = asyncio.get_running_loop().call_later(linger_ms / 1000, self._flush, hosted)

    def _flush(self, hosted: H) -> None:
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
            hosted.effects.clear()
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
            self._take_effects(hosted)

    def _take_effects(self, hosted: H) -> None:
        """The log knows of all that was decided."""
        effects, hosted.effects = hosted.effects, []
        for result in effects:
            self._take_effect(hosted, result)

    def _has_written(self, hosted: H) -> None:
        """State and timers of a shard have changed."""
        end_offset = hosted.shard.end_offset
        self._grow(max(0, end_offset - hosted.grown_offset))
        hosted.grown_offset = end_offset

    def _grow(self, records: int) -> None:
        """Count records that entered the state: each is a new object for the garbage collector."""
        self._grown_records += records
        if self._grown_records >= _GROWTH_RECORDS:
            self._grown_records = 0
            self._on_growth()

    def _answer_at(self, hosted: H, outcome: Outcome[R], waiter: Waiter, answer: object, now_ms: int) -> None:
        """Give ``answer`` as soon as what the outcome is based on cannot be lost."""
        waiting = Waiting(0, now_ms + self._write_timeout_ms, waiter, answer)
        if outcome.is_staged:
            hosted.staged.append(waiting)
            self._schedule_flush(hosted)
        else:
            self._answer_from(hosted, outcome.offset, waiting)

    def _answer_from(self, hosted: H, offset: int | None, waiting: Waiting) -> None:
        """Answer when the high watermark has reached ``offset``; None: now."""
        if offset is None:
            self._answers.give(waiting.future, waiting.answer)
            return
        waiting.offset = offset
        hosted.waiting.append(waiting)
        self._wake_at(waiting.deadline_ms)

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

    def _wake_at(self, deadline_ms: int) -> None:
        """Something is due then: wake the timers if they would sleep longer."""
        if deadline_ms < self._sleeping_until_ms:
            self._wake.set()

    def tick(self) -> None:
        """Run the timers that are due, as many as one turn of the event loop allows."""
        now_ms = self._clock.monotonic_ms()
        leads = self._lease.lease_valid(now_ms)
        self._begin_tick()
        for partition in sorted(self._hosted):
            hosted = self._hosted[partition]
            if not hosted.shard.loaded:
                continue
            self._flush(hosted)
            hosted.give_up_waiting(now_ms)
            if leads:
                hosted.resume_waiting_for_lease()
                self._run_timers_of(hosted, now_ms)
        if leads:
            self._end_tick(now_ms)
        self._lease_expired = not leads

    def _next_wake_ms(self, now_ms: int) -> int:
        wake_ms = now_ms + _IDLE_WAIT_MS
        for hosted in self._hosted.values():
            if not hosted.shard.loaded:
                continue
            if self._lease_expired:
                return min(wake_ms, now_ms + WAITING_CHECK_MS)
            deadline_ms = self._next_deadline_ms(hosted, now_ms)
            if deadline_ms is not None:
                wake_ms = min(wake_ms, deadline_ms)
            if hosted.waiting:
                wake_ms = min(wake_ms, now_ms + WAITING_CHECK_MS)
        return wake_ms
