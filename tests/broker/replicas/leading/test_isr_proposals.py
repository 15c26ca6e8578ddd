"""The ISR proposals of many partitions against a scripted controller, in virtual time."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace

import pytest

from pykraft.broker.metadata.cache import MetadataCache
from pykraft.broker.replicas.leading.isr_proposals import IsrProposals
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.log_store.interface import CorruptLogError, LogConfig
from pykraft.log_store.log.log import Log
from pykraft.metadata_log.controller.alter_partition import MAX_PARTITIONS_PER_REQUEST
from pykraft.metadata_log.controller.calls.requests import PartitionIsrChange, PartitionIsrResult
from pykraft.metadata_log.image import BrokerRegistration, MetadataImage, PartitionRegistration
from pykraft.metadata_log.persistent import Map
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from pykraft.runtime.tasks import TaskSupervisor
from tests.asynchronous import in_loop

TOPIC_ID = Uuid(b"i" * 16)
LAG_MS = 500
ROUND_TRIP_S = 0.1
MINUTE_S = 60


class Events:
    def log_grew(self, partition: Partition) -> None: ...
    def high_watermark_moved(self, partition: Partition) -> None: ...
    def log_start_moved(self, partition: Partition) -> None: ...
    def state_changed(self, partition: Partition) -> None: ...
    def producers_lost(self, partition: Partition) -> None: ...
    def storage_failed(self, partition: Partition, error: OSError | CorruptLogError) -> None: ...
    def replication_failed(self, partition: Partition, error: Exception) -> None: ...


class Controller:
    """Accepts every proposal unless ``answer`` returns something else: an error, or None for no answer."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.requests: list[tuple[int, list[int]]] = []
        self.in_flight = self.most_in_flight = 0
        self.answer: Callable[[PartitionIsrChange], ErrorCode | None] = lambda change: ErrorCode.NONE

    async def alter_partitions(self, changes: Sequence[PartitionIsrChange]) -> list[PartitionIsrResult]:
        self.requests.append((self.world.now_ms, [change.index for change in changes]))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(ROUND_TRIP_S)
        self.in_flight -= 1
        errors = [self.answer(change) for change in changes]
        if None in errors:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        return [self._result(change, error) for change, error in zip(changes, errors, strict=True)]

    def _result(self, change: PartitionIsrChange, error: ErrorCode | None) -> PartitionIsrResult:
        assert error is not None
        if error is not ErrorCode.NONE:
            return PartitionIsrResult(change.topic_id, change.index, error)
        return PartitionIsrResult(
            change.topic_id,
            change.index,
            leader=1,
            leader_epoch=change.leader_epoch,
            isr=tuple(member.broker_id for member in change.new_isr),
            partition_epoch=change.partition_epoch + 1,
        )

    def asked(self, index: int) -> list[int]:
        """When the ISR of partition ``index`` was proposed, in milliseconds."""
        return [at_ms for at_ms, indexes in self.requests if index in indexes]


class World:
    """Broker 1 with partitions that it leads: it alone is in sync, and broker 2 has caught up.

    It is also the clock of its own :class:`IsrProposals`.
    """

    def __init__(self, partitions: int, seed: int = 1) -> None:
        self.faults: list[BaseException] = []
        self.tasks = TaskSupervisor(self.faults.append)
        self.controller = Controller(self)
        brokers = {id: BrokerRegistration(id, 100 + id, ZERO_UUID, (), fenced=False) for id in (1, 2)}
        self.metadata = MetadataCache(1, "cluster", MetadataImage(brokers=Map(brokers)))
        self.proposals = IsrProposals(
            1,
            LAG_MS,
            self.metadata,
            SimpleNamespace(epoch=101),
            self.controller,
            self,
            random.Random(seed),
            self.tasks,
        )
        disk = MemoryDisk()
        self.partitions = []
        for index in range(partitions):
            log = Log.open(disk, f"t-{index}", LogConfig(), now_ms=0)
            partition = Partition("t", TOPIC_ID, index, 1, log, Events())
            partition.apply(PartitionRegistration((1, 2), (1,), 1, 0, 0), self.now_ms)
            self.partitions.append(partition)

    @property
    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def fetch(self, *indexes: int) -> None:
        """Broker 2 fetches at the end of these partitions (of all)."""
        for index in indexes or range(len(self.partitions)):
            self.partitions[index].handle_follower_fetch(2, 0, 102, self.now_ms, 0)
            self.proposals.maybe_propose(self.partitions[index])

    async def keep_fetching(self, duration_s: float) -> None:
        """Fetch as followers do: every partition, all the time."""
        for _ in range(int(duration_s / 0.1)):
            self.fetch()
            await asyncio.sleep(0.1)

    def isr(self, index: int) -> tuple[int, ...]:
        return self.partitions[index].isr.committed

    async def stop(self) -> None:
        await self.tasks.close()
        assert not self.faults


@asynccontextmanager
async def begun(*, partitions: int) -> AsyncIterator[World]:
    world = World(partitions)
    yield world
    await world.stop()


world = in_loop(begun, VirtualLoop)


@pytest.mark.world(partitions=40)
async def test_due_proposals_of_all_partitions_share_one_request(world: World) -> None:
    world.fetch()
    await asyncio.sleep(1)
    assert [sorted(indexes) for _, indexes in world.controller.requests] == [list(range(40))]
    assert all(world.isr(index) == (1, 2) for index in range(40))


@pytest.mark.world(partitions=20)
async def test_one_request_is_in_flight_and_proposals_due_meanwhile_are_in_the_next(world: World) -> None:
    for index in range(20):
        world.fetch(index)
        await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    assert world.controller.most_in_flight == 1
    assert len(world.controller.requests) <= 4
    assert all(world.isr(index) == (1, 2) for index in range(20))


@pytest.mark.world(partitions=2 * MAX_PARTITIONS_PER_REQUEST + 7)
async def test_request_is_bounded_and_the_rest_follows(world: World) -> None:
    world.fetch()
    await asyncio.sleep(1)
    sizes = [len(indexes) for _, indexes in world.controller.requests]
    assert sizes == [MAX_PARTITIONS_PER_REQUEST, MAX_PARTITIONS_PER_REQUEST, 7]
    assert world.controller.most_in_flight == 1
    assert all(world.isr(index) == (1, 2) for index in range(sum(sizes)))


@pytest.mark.world(partitions=2)
async def test_proposal_is_computed_when_it_is_sent(world: World) -> None:
    world.fetch(0)
    await asyncio.sleep(ROUND_TRIP_S / 2)
    world.fetch(1)
    world.partitions[1].apply(PartitionRegistration((1, 2), (1, 2), 1, 0, 1), world.now_ms)
    await asyncio.sleep(1)
    assert world.controller.asked(1) == [], "the metadata log was read first"


@pytest.mark.world(partitions=3)
async def test_refused_partition_does_not_affect_the_others(world: World) -> None:
    world.controller.answer = lambda change: (
        ErrorCode.INELIGIBLE_REPLICA if change.index == 1 else ErrorCode.NONE
    )
    world.fetch()
    await asyncio.sleep(0.2)
    assert [world.isr(index) for index in range(3)] == [(1, 2), (1,), (1, 2)]
    assert not world.partitions[1].isr.maybe_added, "the proposal is known not to have been applied"
    world.controller.answer = lambda change: ErrorCode.NONE
    await asyncio.sleep(1)
    assert world.isr(1) == (1, 2)
    assert len(world.controller.asked(0)) == len(world.controller.asked(2)) == 1


@pytest.mark.parametrize(
    "error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_TOPIC_ID]
)
@pytest.mark.world(partitions=100)
async def test_refused_partition_is_proposed_ever_more_rarely(world: World, error: ErrorCode) -> None:
    world.controller.answer = lambda change: error
    await world.keep_fetching(2 * MINUTE_S)
    may_be_applied = error is not ErrorCode.INELIGIBLE_REPLICA
    assert (2 in world.partitions[0].isr.maximal) is may_be_applied
    asked_ms = world.controller.asked(0)
    assert 10 <= len(asked_ms) <= 25
    gaps = [later - earlier for earlier, later in pairwise(asked_ms)]
    assert gaps[0] < 1000 and min(gaps[6:]) >= 5000
    assert world.controller.most_in_flight == 1
    world.controller.answer = lambda change: ErrorCode.NONE
    await world.keep_fetching(11)
    assert all(world.isr(index) == (1, 2) for index in range(100))


@pytest.mark.parametrize(
    "error",
    [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NEW_LEADER_ELECTED],
)
@pytest.mark.world(partitions=2)
async def test_leader_with_old_metadata_proposes_again_only_after_it_has_read_more(
    world: World, error: ErrorCode
) -> None:
    world.controller.answer = lambda change: error
    await world.keep_fetching(MINUTE_S)
    assert len(world.controller.requests) == 1
    assert 2 in world.partitions[0].isr.maximal, "it may be in the ISR by now"
    world.controller.answer = lambda change: ErrorCode.NONE
    world.partitions[0].apply(PartitionRegistration((1, 2), (1,), 1, 0, 1), world.now_ms)
    await world.keep_fetching(1)
    assert (len(world.controller.asked(0)), world.isr(0)) == (2, (1, 2))
    assert len(world.controller.asked(1)) == 1


@pytest.mark.world(partitions=100)
async def test_silent_controller_is_asked_ever_more_rarely_whatever_becomes_due(world: World) -> None:
    world.controller.answer = lambda change: None
    await world.keep_fetching(MINUTE_S)
    at_ms = [at_ms for at_ms, _ in world.controller.requests]
    assert 25 <= len(at_ms) <= 65
    gaps = [later - earlier for earlier, later in pairwise(at_ms)]
    assert gaps[0] < 200 and min(gaps[7:]) >= 1000
    assert len(set(gaps[7:])) > 10, "jitter"
    assert world.controller.most_in_flight == 1
    assert all(2 in partition.isr.maximal for partition in world.partitions)
    world.controller.answer = lambda change: ErrorCode.NONE
    await world.keep_fetching(3)
    assert all(world.isr(index) == (1, 2) for index in range(100))
    requests = len(world.controller.requests)
    world.partitions[0].apply(PartitionRegistration((1, 2), (1,), 1, 1, 9), world.now_ms)
    world.fetch(0)
    await asyncio.sleep(0.01)
    assert len(world.controller.requests) == requests + 1, "an answer ends the pauses"


def test_brokers_that_failed_together_do_not_retry_together() -> None:
    def times(seed: int) -> list[int]:
        async def body() -> list[int]:
            world = World(1, seed)
            world.controller.answer = lambda change: None
            await world.keep_fetching(10)
            await world.stop()
            return [at_ms for at_ms, _ in world.controller.requests]

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(body())

    first, second = times(1), times(2)
    assert not set(first[4:]) & set(second[4:])


@pytest.mark.world(partitions=2)
async def test_partition_that_is_no_longer_led_is_not_proposed(world: World) -> None:
    world.controller.answer = lambda change: ErrorCode.INELIGIBLE_REPLICA
    world.fetch()
    await asyncio.sleep(0.2)
    world.partitions[0].apply(PartitionRegistration((1, 2), (1, 2), 2, 1, 1), world.now_ms)
    world.controller.answer = lambda change: ErrorCode.NONE
    await asyncio.sleep(2)
    assert len(world.controller.asked(0)) == 1
    assert world.isr(1) == (1, 2)
