"""No lease that a controller grants outlasts the first moment at which a successor may fence the broker."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.controller.calls.requests import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    RegisterBrokerRequest,
)
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.driver import ControllerDriver
from pykraft.metadata_log.controller.leadership import LeadershipProof
from pykraft.metadata_log.features import SUPPORTED_RANGES
from pykraft.metadata_log.loader import MetadataLoader
from pykraft.metadata_log.records import Endpoint
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.quorum.listener import CommittedBatch, LeaderAndEpoch, QuorumDescription
from tests.clocks import ManualClock
from tests.waits import settle

NODE = 1
SESSION_MS = 9000
LEASE_MS = 8100
"""A tenth is withheld for clocks that run at different rates."""


class LaggingQuorum:
    """A leader that learns of commits when the test says so, and never that it was deposed.

    Records appended before ``deposed_at_ms`` may be committed at any later time; records appended after it
    never are, because a majority is in another epoch.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.leader = LeaderAndEpoch(NODE, 1)
        self.deposed_at_ms: int | None = None
        self.batches: list[tuple[int, CommittedBatch]] = []
        self.delivered = 0

    @property
    def voters(self) -> VoterSet:
        raise AssertionError("this is not called")

    async def add_voter(self, voter: Voter, timeout_ms: int, *, ack_when_committed: bool = True) -> None:
        raise AssertionError("this is not called")

    async def remove_voter(self, key: ReplicaKey, timeout_ms: int) -> None:
        raise AssertionError("this is not called")

    def upgrade_objection(self) -> str | None:
        raise AssertionError("this is not called")

    def upgrade_kraft_version(self, epoch: int) -> None:
        raise AssertionError("this is not called")

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1][1].last_offset + 1 if self.batches else 0

    def propose(self, epoch: int, values: Sequence[bytes]) -> int:
        base = self.log_end_offset
        batch = CommittedBatch(base, base + len(values) - 1, epoch, 0, tuple(values))
        self.batches.append((self.clock.now_ms, batch))
        return batch.last_offset

    def describe(self, now_ms: int) -> QuorumDescription:
        raise AssertionError("this is not called")

    def receive_commits(self, loader: MetadataLoader) -> None:
        deposed_at_ms = self.deposed_at_ms
        known = [
            batch
            for appended_ms, batch in self.batches[self.delivered :]
            if deposed_at_ms is None or appended_ms < deposed_at_ms
        ]
        self.delivered += len(known)
        loader.handle_commit(known)


class World:
    def __init__(self, session_timeout_ms: int = SESSION_MS) -> None:
        self.clock = ManualClock(100_000)
        self.quorum = LaggingQuorum(self.clock)
        self.driver = ControllerDriver(
            node_id=NODE,
            config=ControllerConfig(session_timeout_ms=session_timeout_ms),
            cluster_id="c",
            clock=self.clock,
            rng=Random(1),
            bootstrap_features={},
            quorum=self.quorum,
        )
        self.loader = MetadataLoader(controller=self.driver)
        self.loader.handle_leader_change(self.quorum.leader)
        self.quorum.receive_commits(self.loader)
        self.broker_epoch = -1

    async def unfence(self) -> None:
        registration = RegisterBrokerRequest(
            "c", 1, Uuid(b"i" * 16), (Endpoint("P", "h", 1),), (Uuid(b"l" * 16),), SUPPORTED_RANGES
        )
        registering = asyncio.ensure_future(self.driver.register_broker(registration))
        await settle()
        self.quorum.receive_commits(self.loader)
        self.broker_epoch = (await registering).broker_epoch
        answer = await self.acknowledged(self.heartbeat())
        assert not answer.is_fenced

    def heartbeat(self, offset: int | None = None) -> asyncio.Task[BrokerHeartbeatResponse]:
        """A heartbeat of a broker that has applied up to this offset, or everything committed."""
        applied = self.driver.committed_image.offset if offset is None else offset
        request = BrokerHeartbeatRequest(1, self.broker_epoch, applied)
        return asyncio.ensure_future(self.driver.broker_heartbeat(request))

    async def acknowledged(self, task: asyncio.Task[BrokerHeartbeatResponse]) -> BrokerHeartbeatResponse:
        await settle()
        self.quorum.receive_commits(self.loader)
        await settle()
        return await task


async def test_idle_controller_proves_its_leadership_before_it_grants_a_lease() -> None:
    world = World()
    await world.unfence()
    world.clock.now_ms += 3600_000
    beat = world.heartbeat()
    await settle()
    assert not beat.done()
    assert (await world.acknowledged(beat)).lease_ms == LEASE_MS


async def test_recent_commits_prove_leadership_without_a_record_for_every_heartbeat() -> None:
    world = World()
    await world.unfence()
    appended = len(world.quorum.batches)
    for _ in range(30):
        world.clock.now_ms += 100
        answer = await world.heartbeat()
        assert answer.lease_ms > SESSION_MS // 2
    assert len(world.quorum.batches) == appended


async def test_lease_shrinks_by_the_age_of_the_proof() -> None:
    world = World()
    await world.unfence()
    world.clock.now_ms += 1234
    assert (await world.heartbeat()).lease_ms == LEASE_MS - 1234


async def test_leases_of_a_stalled_broker_end() -> None:
    """The controller's later proofs of leadership show that the broker is behind."""
    world = World()
    await world.unfence()
    await world.acknowledged(world.heartbeat())
    stuck_at = world.driver.committed_image.offset
    missed_ms: int | None = None
    leases = []
    for _ in range(60):
        world.clock.now_ms += 500
        answer = await world.acknowledged(world.heartbeat(stuck_at))
        leases.append((world.clock.now_ms, answer.lease_ms))
        if missed_ms is None and world.driver.committed_image.offset > stuck_at:
            missed_ms = world.clock.now_ms
    assert missed_ms is not None
    ends_ms = [at_ms + lease_ms for at_ms, lease_ms in leases if lease_ms]
    assert missed_ms + LEASE_MS // 2 < max(ends_ms) <= missed_ms + LEASE_MS
    assert leases[-1][1] == 0


async def test_stalled_broker_is_fenced_and_the_reason_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World(session_timeout_ms=80)
    await world.unfence()
    stuck_at = world.driver.committed_image.offset - 1
    await world.driver.start()
    async with asyncio.timeout(30):
        while not world.driver.committed_image.brokers[1].fenced:
            world.clock.now_ms += 1
            await world.acknowledged(world.heartbeat(stuck_at))
            await asyncio.sleep(0.001)
    await world.driver.stop()
    assert "broker 1 does not follow the metadata log and is fenced" in caplog.text


async def test_deposed_controller_that_does_not_know_it_grants_nothing() -> None:
    world = World()
    await world.unfence()
    world.quorum.deposed_at_ms = world.clock.now_ms + 1
    world.clock.now_ms += 10_000
    beat = world.heartbeat()
    await settle()
    world.quorum.receive_commits(world.loader)
    await settle()
    assert not beat.done()
    world.loader.handle_leader_change(LeaderAndEpoch(2, 2))
    with pytest.raises(KafkaError) as refusal:
        await beat
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER


async def test_proof_of_an_earlier_leadership_does_not_count() -> None:
    world = World()
    await world.unfence()
    world.loader.handle_leader_change(LeaderAndEpoch(2, 2))
    world.quorum.leader = LeaderAndEpoch(NODE, 3)
    world.loader.handle_leader_change(world.quorum.leader)
    beat = world.heartbeat()
    await settle()
    assert not beat.done()
    assert (await world.acknowledged(beat)).lease_ms == LEASE_MS


@pytest.mark.parametrize("seed", range(40))
async def test_no_lease_outlasts_the_first_fence_of_a_successor(seed: int) -> None:
    """Heartbeats at random times, late news of commits, and a successor at a random moment, unknown here."""
    rng = Random(seed)
    world = World()
    await world.unfence()
    granted: list[int] = []
    open_beats: list[tuple[int, asyncio.Task[BrokerHeartbeatResponse]]] = []
    successor_ms = world.clock.now_ms + rng.randrange(1, 20_000)
    world.quorum.deposed_at_ms = successor_ms
    while world.clock.now_ms < successor_ms + 30_000:
        world.clock.now_ms += rng.choice((1, 10, 100, 700, 2500))
        if rng.random() < 0.7:
            # Sent some time ago: it was in a socket buffer, perhaps while this process was paused.
            sent_ms = world.clock.now_ms - rng.choice((0, 1, 50, 1900))
            open_beats.append((sent_ms, world.heartbeat()))
            await settle()
        if rng.random() < 0.4:
            world.quorum.receive_commits(world.loader)
            await settle()
        for sent_ms, beat in open_beats:
            if beat.done():
                granted.append(sent_ms + beat.result().lease_ms)
        open_beats = [item for item in open_beats if not item[1].done()]
    world.loader.handle_leader_change(LeaderAndEpoch(2, 2))
    await asyncio.gather(*(beat for _, beat in open_beats), return_exceptions=True)
    assert granted
    assert max(granted) <= successor_ms + LEASE_MS


@pytest.mark.parametrize("broker_rate", [0.95, 1.0, 1.05])
@pytest.mark.parametrize("controller_rate", [0.95, 1.0, 1.05])
@pytest.mark.parametrize("age_ms", [0, 1000, 3000, 8000])
def test_lease_ends_before_any_successor_fences_although_clocks_are_off(
    broker_rate: float, controller_rate: float, age_ms: int
) -> None:
    """``age_ms``, the age of the proof, is in true time; so are both ends."""
    proof = LeadershipProof()
    proof.handle_append(1, 50_000)
    proof.handle_commit(1)
    lease_ms = proof.lease_ms(SESSION_MS, 50_000 + int(age_ms * controller_rate), 50_000)
    lease_ends_ms = age_ms + lease_ms / broker_rate if lease_ms else 0
    assert lease_ends_ms < SESSION_MS / 1.05
