"""Validation does no more in one turn of the loop than the budget that all requests share."""

import asyncio
from collections import Counter
from dataclasses import dataclass

import pytest

from pykraft.broker.apis.records.produce import ProduceHandler
from pykraft.broker.replicas.leading.validation_turns import PIECE_WORK, ValidationTurns, Walkable
from pykraft.broker.replicas.ports import BrokerLease
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.turns import TURN_US, TurnBudget
from tests.broker.data_cluster import DataCluster, make_batch
from tests.broker.long_batches import BATCH_US, PIECE_US, WORK_PER_US, Gate, long_batch, produce_request
from tests.narrowing import as_type
from tests.waits import until

pytestmark = [pytest.mark.usefixtures("walked_in_python"), pytest.mark.world(topics="t")]


class WorkClock:
    """Time advances only by work; it is counted for each turn of the loop."""

    def __init__(self) -> None:
        self.now_us = 0
        self.number = 0
        self.worked_us: Counter[int] = Counter()

    def work(self, duration_us: int) -> None:
        self.now_us += duration_us
        self.worked_us[self.number] += duration_us

    def count_turns(self) -> None:
        self.number += 1
        asyncio.get_running_loop().call_soon(self.count_turns)

    @property
    def longest_us(self) -> int:
        return max(self.worked_us.values())


@pytest.fixture
def clock() -> WorkClock:
    return WorkClock()


@dataclass
class Timed:
    """Starting a batch, walking it and decompressing it take time."""

    batch: Walkable
    clock: WorkClock

    @property
    def is_done(self) -> bool:
        return self.batch.is_done

    @property
    def is_large(self) -> bool:
        return self.batch.is_large

    def advance(self, work: int) -> int:
        done = self.batch.advance(work)
        self.clock.work(BATCH_US + done // WORK_PER_US)
        return done


class TimedTurns(ValidationTurns):
    """Those of broker 1, by a clock that work advances."""

    def __init__(self, cluster: DataCluster, clock: WorkClock) -> None:
        handler = as_type(cluster.brokers[1]._hot[0], ProduceHandler)
        super().__init__(handler.validation._turns)
        handler.validation = self
        cluster.brokers[1].runtime.budget._now_us = lambda: clock.now_us
        self.clock = clock
        clock.count_turns()

    def walk_now(self, batch: Walkable, *, is_first: bool = False) -> bool:
        return super().walk_now(self._timed(batch), is_first=is_first)

    async def walk(self, batch: Walkable) -> None:
        await super().walk(self._timed(batch))

    def _timed(self, batch: Walkable) -> Timed:
        return batch if isinstance(batch, Timed) else Timed(batch, self.clock)


class TimedRows(TimedTurns):
    """Every row of a request takes time, whatever becomes of it: at once, or when the lease is looked at."""

    def __init__(self, cluster: DataCluster, clock: WorkClock) -> None:
        super().__init__(cluster, clock)
        replicas = cluster.brokers[1].replicas
        replicas.lease = TimedLease(replicas.lease, clock)

    def has_room(self) -> bool:
        has_room = super().has_room()
        if has_room:
            self.clock.work(BATCH_US)
        return has_room


@dataclass
class TimedLease:
    """In slices it is looked at for each row."""

    lease: BrokerLease
    clock: WorkClock

    @property
    def epoch(self) -> int:
        return self.lease.epoch

    @property
    def is_fenced(self) -> bool:
        self.clock.work(BATCH_US)
        return self.lease.is_fenced

    def lease_valid(self, now_ms: int) -> bool:
        return self.lease.lease_valid(now_ms)


class Work:
    """A batch whose walk takes this much work."""

    def __init__(self, clock: WorkClock, work: int, *, fails: bool = False) -> None:
        self._clock = clock
        self.left = work
        self.fails = fails
        self.is_large = False

    @property
    def is_done(self) -> bool:
        return self.left <= 0

    def advance(self, work: int) -> int:
        if self.fails:
            raise KafkaError(ErrorCode.INVALID_RECORD, "bad")
        done = min(work, self.left)
        self.left -= done
        self._clock.work(done // WORK_PER_US)
        return done


def make_budget(clock: WorkClock) -> TurnBudget:
    """Wait until the next turn has begun; turns are counted."""
    loop = asyncio.get_running_loop()
    clock.count_turns()
    budget = TurnBudget(loop.call_soon, lambda: clock.now_us)
    loop.call_soon(lambda: budget.spend(steps=budget.turn_steps))
    return budget


async def test_long_batches_wait_for_each_other_a_piece_at_a_time(clock: WorkClock) -> None:
    turns = ValidationTurns(make_budget(clock))
    batches = [Work(clock, work) for work in (40 * PIECE_WORK, 12 * PIECE_WORK, 5, 5)]
    ended: list[int] = []

    async def walk(index: int) -> None:
        await turns.walk(batches[index])
        ended.append(index)

    await asyncio.gather(*(walk(index) for index in range(4)))
    assert ended == [2, 3, 1, 0]
    assert clock.longest_us <= TURN_US + PIECE_US


async def test_first_batch_of_a_request_begins_in_the_turn_that_had_room_for_it(clock: WorkClock) -> None:
    budget = make_budget(clock)
    turns = ValidationTurns(budget)
    while budget.has_room():
        clock.work(1_000)
    short, long = Work(clock, 5), Work(clock, 2 * PIECE_WORK)
    assert turns.walk_now(short, is_first=True)
    assert not turns.walk_now(long, is_first=True) and long.left == PIECE_WORK
    assert not turns.walk_now(Work(clock, 5))


async def test_turn_does_no_more_for_validation_and_all_other_requests_together_than_its_budget(
    clock: WorkClock,
) -> None:
    budget = make_budget(clock)
    turns = ValidationTurns(budget)
    order: list[str] = []

    def commit() -> None:
        clock.work(1_000)
        order.append("commit")

    async def walk() -> None:
        await turns.walk(Work(clock, 10 * PIECE_WORK))
        order.append("batch")

    for _ in range(100):
        budget.defer(commit, lane="commits")
    await asyncio.gather(*(walk() for _ in range(5)))
    assert 40 < len(order) < 90, "neither batch waits for the whole other one"
    while budget.waiting:
        assert not turns.walk_now(Work(clock, 1)), "no request overtakes those that wait"
        await asyncio.sleep(0)
    assert order.count("commit") == 100
    assert clock.longest_us <= TURN_US + 1_000


async def test_small_batches_that_wait_are_walked_many_a_turn(clock: WorkClock) -> None:
    budget = make_budget(clock)
    turns = ValidationTurns(budget)
    tasks = [asyncio.create_task(turns.walk(Work(clock, 5))) for _ in range(40)]
    for _ in range(40 // budget.turn_steps + 3):
        await asyncio.sleep(0)
    assert all(task.done() for task in tasks)


async def test_requests_without_a_batch_that_wait_go_on_as_many_a_turn_as_there_is_room_for(
    clock: WorkClock,
) -> None:
    budget = make_budget(clock)
    turns = ValidationTurns(budget)
    resumed: Counter[int] = Counter()

    async def request() -> None:
        await turns.wait()
        resumed[clock.number] += 1

    await asyncio.gather(*(request() for _ in range(3 * budget.turn_steps)))
    assert list(resumed.values()) == [budget.turn_steps] * 3


async def test_request_that_fails_or_is_cancelled_does_not_keep_others_waiting(clock: WorkClock) -> None:
    turns = ValidationTurns(make_budget(clock))
    works = [Work(clock, 5), Work(clock, 5, fails=True), Work(clock, 5)]
    first, second, third = (asyncio.create_task(turns.walk(work)) for work in works)
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(KafkaError):
        await second
    await third
    assert works[0].left == 5


async def test_turn_validates_no_more_at_once_than_its_budget(cluster: DataCluster, clock: WorkClock) -> None:
    """Whatever the number and length of the batches: beyond the budget they wait for a later turn."""
    TimedTurns(cluster, clock)
    client = await cluster.client(1)
    batch = make_batch(*(bytes(1 + n % 2) for n in range(1000)))
    for _ in range(40):
        client.send_produce(batch, acks=1)
    client.send_produce(long_batch(), acks=1)
    offsets = [(await client.produced()).base_offset for _ in range(41)]
    assert offsets == list(range(0, 41_000, 1000))
    assert clock.longest_us <= TURN_US + PIECE_US


@pytest.mark.parametrize("partitions", [1, 40])
async def test_turn_decompresses_no_more_than_its_budget(
    cluster: DataCluster, clock: WorkClock, partitions: int
) -> None:
    TimedTurns(cluster, clock)
    bomb = make_batch(bytes(400 << 10), compression=Compression.ZSTD)
    clients = [await cluster.client(1) for _ in range(40 // partitions)]
    for client in clients:
        client.send(produce_request(bomb, partitions), 9)
    for client in clients:
        for result in (await client.receive()).responses[0].partition_responses:
            assert not result.error_code
    assert clock.longest_us <= TURN_US + PIECE_US


async def test_request_for_many_partitions_is_spread_over_turns(cluster: DataCluster) -> None:
    gate = Gate(cluster, short_at_once=False)
    client = await cluster.client(1)
    batch = make_batch(b"v")
    client.send(produce_request(batch, 1000), 9)
    await until(lambda: gate.waiting)
    assert 0 < cluster.partition(1).log.log_end_offset < 1000
    gate.is_open.set()
    results = (await client.receive()).responses[0].partition_responses
    assert [result.base_offset for result in results] == list(range(1000))


async def test_request_whose_partitions_are_all_refused_is_spread_over_turns(
    cluster: DataCluster, clock: WorkClock
) -> None:
    """None of them is walked, and a walk is what would have asked for room."""
    TimedRows(cluster, clock)
    client = await cluster.client(1)
    client.send(produce_request(b"damaged", 1000), 9)
    client.send_produce(make_batch(b"after"), acks=1)
    results = (await client.receive()).responses[0].partition_responses
    assert [result.error_code for result in results] == [ErrorCode.CORRUPT_MESSAGE] * 1000
    assert (await client.produced()).base_offset == 0
    assert clock.longest_us <= TURN_US + 2 * BATCH_US
