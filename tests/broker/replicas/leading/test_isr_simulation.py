"""The ISR proposals of a broker in virtual time, by seed: answers that are late, refusals and silence.

The controller accepts, refuses for any reason or does not answer, and the metadata log changes partitions
between a proposal and its answer. One bounded request is in flight at a time; a proposal is of the newest
state that its leader knows; whoever was refused pauses ever longer, and so does the broker after silence;
a member that may have been added counts; each answer reaches its partition; when all is well again, so is
each ISR.
"""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from pykraft.broker.replicas.leading import isr_proposals
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.controller.calls.requests import PartitionIsrChange, PartitionIsrResult
from pykraft.metadata_log.image import PartitionRegistration
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from tests.broker.replicas.leading.test_isr_proposals import Controller, World

PARTITIONS = 20
LIMIT = 6
NEWS = ErrorCode.INVALID_UPDATE_VERSION
REFUSALS = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_TOPIC_ID, NEWS)


class Capricious(Controller):
    """Also checks each request."""

    def __init__(self, world: World, rng: Random) -> None:
        super().__init__(world)
        self.rng = rng
        self.is_calm = False
        self.silent_times = 0
        self.silent_ms = -10_000
        #: By partition: when it may be proposed again, and who waits for the metadata log.
        self.not_before_ms: dict[int, int] = {}
        self.waits_for_news: dict[int, int] = {}

    async def alter_partitions(self, changes: Sequence[PartitionIsrChange]) -> list[PartitionIsrResult]:
        self.check(changes)
        self.in_flight += 1
        await asyncio.sleep(self.rng.choice((0.001, 0.1, 1.0)))
        self.in_flight -= 1
        now_ms = self.world.now_ms
        if not self.is_calm and self.rng.random() < 0.3:
            self.silent_times += 1
            self.silent_ms = now_ms
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        self.silent_times = 0
        return [self.decide(change) for change in changes]

    def check(self, changes: Sequence[PartitionIsrChange]) -> None:
        now_ms = self.world.now_ms
        assert self.in_flight == 0, "two requests are in flight"
        assert 0 < len(changes) <= LIMIT, f"{len(changes)} partitions in one request"
        if self.silent_times:
            pause_ms = min(2_000, 50 << (self.silent_times - 1)) // 2
            assert now_ms - self.silent_ms >= pause_ms, "asked again at once after silence"
        for change in changes:
            isr = self.world.partitions[change.index].isr
            assert change.partition_epoch == isr.partition_epoch, "a proposal of an earlier state"
            assert now_ms >= self.not_before_ms.get(change.index, 0), "a refusal is not followed by a pause"
            seen = self.waits_for_news.pop(change.index, -1)
            assert isr.partition_epoch > seen, "proposed again before there are news"

    def decide(self, change: PartitionIsrChange) -> PartitionIsrResult:
        partition = self.world.partitions[change.index]
        error = ErrorCode.NONE
        if not self.is_calm and self.rng.random() < 0.6:
            error = self.rng.choice(REFUSALS)
        epoch = change.partition_epoch
        is_current = partition.isr.partition_epoch == epoch
        loop = asyncio.get_running_loop()
        if error is NEWS:
            self.waits_for_news[change.index] = epoch
        elif error is ErrorCode.NONE:
            loop.call_soon(lambda: loop.call_soon(self.check_accepted, change))
        elif is_current:
            pause_ms = min(10_000, 500 << partition.isr_refusals) // 2
            self.not_before_ms[change.index] = self.world.now_ms + pause_ms
            if error is not ErrorCode.INELIGIBLE_REPLICA:
                loop.call_soon(lambda: loop.call_soon(self.check_unknown, change))
        return self._result(change, error)

    def check_accepted(self, change: PartitionIsrChange) -> None:
        partition = self.world.partitions[change.index]
        if partition.isr.partition_epoch <= change.partition_epoch:
            self.world.faults.append(AssertionError(f"{partition} does not know that it was accepted"))

    def check_unknown(self, change: PartitionIsrChange) -> None:
        isr = self.world.partitions[change.index].isr
        members = {member.broker_id for member in change.new_isr}
        if isr.partition_epoch == change.partition_epoch and not members <= isr.maximal:
            self.world.faults.append(AssertionError("a member that may have been added does not count"))


async def read_metadata(world: World, controller: Capricious, rng: Random) -> None:
    """The metadata log brings changes: of partitions that wait for them, and of any others."""
    while True:
        await asyncio.sleep(rng.random() * 0.3)
        waiting = sorted(controller.waits_for_news)
        indexes = rng.sample(waiting, 1) if waiting and rng.random() < 0.5 else []
        if not controller.is_calm:
            indexes.append(rng.randrange(PARTITIONS))
        for index in indexes:
            partition = world.partitions[index]
            epoch = partition.isr.partition_epoch + 1
            isr = (1, 2) if rng.random() < 0.3 else (1,)
            partition.apply(PartitionRegistration((1, 2), isr, 1, 0, epoch), world.now_ms)


async def simulate(seed: int) -> None:
    rng = Random(seed)
    world = World(PARTITIONS, seed)
    controller = Capricious(world, rng)
    world.controller = controller
    world.proposals._controller = controller
    reading = asyncio.ensure_future(read_metadata(world, controller, rng))
    await world.keep_fetching(40)
    controller.is_calm = True
    await world.keep_fetching(25)
    assert not world.faults, world.faults[0]
    assert all(world.isr(index) == (1, 2) for index in range(PARTITIONS)), "a follower never joins"
    reading.cancel()
    await world.stop()


@pytest.mark.parametrize("seed", range(12))
def test_proposals_are_of_the_newest_state_paced_and_answered_each(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isr_proposals, "MAX_PARTITIONS_PER_REQUEST", LIMIT)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(simulate(seed))
