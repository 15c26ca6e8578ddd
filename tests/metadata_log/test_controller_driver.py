"""The driver on a quorum that commits when told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from pykraft.jepsen_like.sim.virtual_loop import VirtualLoop
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykraft.kafka_protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.codec import encode_record
from pykraft.metadata_log.controller import driver as controller_driver
from pykraft.metadata_log.controller import rpc as controller_rpc
from pykraft.metadata_log.controller import sweeps
from pykraft.metadata_log.controller.alter_partition import MAX_PARTITIONS_PER_REQUEST
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.driver import ControllerDriver, Registrar
from pykraft.metadata_log.controller.requests import (
    BrokerHeartbeatRequest,
    RegisterBrokerRequest,
    RegisterControllerRequest,
)
from pykraft.metadata_log.features import SUPPORTED_RANGES
from pykraft.metadata_log.loader import MetadataLoader
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.metadata_log.records import Endpoint, FeatureLevelRecord, RegisterControllerRecord
from pykraft.metadata_log.snapshot import iter_snapshot_values
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.quorum.listener import CommittedBatch, LeaderAndEpoch, QuorumDescription, ReplicaProgress
from pykraft.runtime.rpc import RpcAddress, RpcHandler

NODE = 1
NOBODY = LeaderAndEpoch(None, 0)


class ManualClock:
    def __init__(self) -> None:
        self.now_ms = 50_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class ManualQuorum:
    """A log that commits on demand, and any number of drivers listening to it."""

    def __init__(self) -> None:
        self.leader = NOBODY
        self.batches: list[CommittedBatch] = []
        self.delivered = 0
        self.listeners: list[MetadataLoader] = []
        self.voters = VoterSet([Voter(ReplicaKey(NODE), RpcAddress("localhost", 9093))])

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def propose(self, epoch: int, values: Sequence[bytes]) -> int:
        if self.leader.leader_id is None or self.leader.epoch != epoch:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        base = self.end_offset
        self.batches.append(CommittedBatch(base, base + len(values) - 1, epoch, 0, tuple(values)))
        return base + len(values) - 1

    def describe(self, now_ms: int) -> QuorumDescription:
        voters = (ReplicaProgress(ReplicaKey(NODE), self.end_offset, now_ms, now_ms),)
        return QuorumDescription(self.leader.leader_id, self.leader.epoch, self.delivered, voters, ())

    def commit(self, at_most: int | None = None) -> None:
        end = len(self.batches) if at_most is None else self.delivered + at_most
        batches = self.batches[self.delivered : end]
        self.delivered += len(batches)
        for listener in self.listeners:
            listener.handle_commit(batches)

    def elect(self, node_id: int, epoch: int) -> None:
        """A new leader; what was not committed is cut off, a LeaderChange batch follows."""
        del self.batches[self.delivered :]
        self.leader = LeaderAndEpoch(node_id, epoch)
        self.batches.append(CommittedBatch(self.end_offset, self.end_offset, epoch, 0, ()))
        if node_id == NODE:
            self.commit()
        for listener in self.listeners:
            listener.handle_leader_change(self.leader)
        self.commit()


class SuspendedClock(ManualClock):
    """Goes with the loop, and by what it was suspended for, which a loop's timers do not notice."""

    def __init__(self) -> None:
        self.suspended_ms = 0

    def monotonic_ms(self) -> int:
        return 50_000 + round(asyncio.get_running_loop().time() * 1000) + self.suspended_ms


class World:
    def __init__(self, clock: ManualClock | None = None, **config: Any) -> None:
        self.clock = clock or ManualClock()
        self.quorum = ManualQuorum()
        self.fatal: list[BaseException] = []
        self.driver = self.make_driver(NODE, **config)
        self.standby = self.make_driver(2)

    def make_driver(
        self,
        node_id: int,
        register: Registrar | None = None,
        endpoints: tuple[Endpoint, ...] = (),
        **config: Any,
    ) -> ControllerDriver:
        driver = ControllerDriver(
            node_id=node_id,
            config=ControllerConfig(**config),
            cluster_id="c",
            clock=self.clock,
            rng=Random(1),
            bootstrap_features={},
            quorum=self.quorum,
            register=register,
            endpoints=endpoints,
            on_fatal=self.fatal.append,
        )
        loader = MetadataLoader(controller=driver)
        loader.handle_commit(self.quorum.batches[: self.quorum.delivered])
        self.quorum.listeners.append(loader)
        return driver

    def restart_standby(
        self, register: Registrar | None = None, endpoints: tuple[Endpoint, ...] = ()
    ) -> None:
        """With something to register."""
        self.quorum.listeners.pop()
        self.standby = self.make_driver(2, register, endpoints)

    async def finish(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Let a command run up to its commit, commit, and take its answer."""
        task = asyncio.ensure_future(work)
        await settle()
        self.quorum.commit()
        return await task

    async def register(self, broker_id: int = 1) -> int:
        return int((await self.finish(self.driver.register_broker(registration(broker_id)))).broker_epoch)

    def create(
        self, name: str, timeout_ms: int = 30_000, partitions: int = 1, replication_factor: int = 1
    ) -> Coroutine[Any, Any, bytes]:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication_factor)
        body = CreateTopicsRequest(topics=[topic]).encode(7)
        return self.driver.forward(RequestContext(), ApiKey.CREATE_TOPICS, 7, body, timeout_ms)


def registration(broker_id: int, incarnation: int = 1) -> RegisterBrokerRequest:
    return RegisterBrokerRequest(
        "c",
        broker_id,
        Uuid(bytes([incarnation]) * 16),
        (Endpoint("PLAINTEXT", "h", 1),),
        (Uuid(bytes([100 + broker_id]) * 16),),
        SUPPORTED_RANGES,
    )


async def settle() -> None:
    """Give every ready task its turn."""
    for _ in range(5):
        await asyncio.sleep(0)


def run(scenario: Callable[[World], Coroutine[Any, Any, None]], **config: Any) -> None:
    async def main() -> None:
        world = World(**config)
        world.quorum.elect(NODE, 1)
        await scenario(world)
        assert world.driver.committed_image == world.standby.committed_image

    asyncio.run(asyncio.wait_for(main(), 20))


def error_code_of(body: bytes) -> int:
    return CreateTopicsResponse.decode(body, 7).topics[0].error_code


def test_new_leader_writes_the_first_features_and_is_active() -> None:
    async def scenario(world: World) -> None:
        assert world.driver.active
        assert dict(world.driver.committed_image.features) == {"metadata.version": 30}

    run(scenario)


def test_answer_is_held_until_its_records_are_committed() -> None:
    async def scenario(world: World) -> None:
        task = asyncio.ensure_future(world.driver.register_broker(registration(1)))
        await settle()
        assert not task.done()
        assert 1 in world.driver.image.brokers
        assert 1 not in world.driver.committed_image.brokers
        world.quorum.commit()
        assert (await task).broker_epoch == world.quorum.end_offset - 1

    run(scenario)


def test_answer_without_records_waits_for_what_it_was_decided_on() -> None:
    async def scenario(world: World) -> None:
        epoch = await world.register()
        offset = world.driver.image.offset
        await world.finish(world.driver.broker_heartbeat(BrokerHeartbeatRequest(1, epoch, offset)))
        first = asyncio.ensure_future(world.create("t"))
        await settle()
        second = asyncio.ensure_future(world.create("t"))
        await settle()
        assert not second.done()
        world.quorum.commit()
        assert error_code_of(await first) == ErrorCode.NONE
        assert error_code_of(await second) == ErrorCode.TOPIC_ALREADY_EXISTS

    run(scenario)


def test_refusal_waits_for_what_it_was_decided_on() -> None:
    async def scenario(world: World) -> None:
        first = asyncio.ensure_future(world.driver.register_broker(registration(1)))
        await settle()
        second = asyncio.ensure_future(world.driver.register_broker(registration(1, incarnation=2)))
        await settle()
        assert not second.done()
        world.quorum.commit()
        await first
        with pytest.raises(KafkaError, match="DUPLICATE_BROKER_REGISTRATION"):
            await second

    run(scenario)


def test_answer_without_records_is_immediate_when_nothing_is_pending() -> None:
    async def scenario(world: World) -> None:
        assert error_code_of(await world.create("bad name")) == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(scenario)


def test_lost_leadership_fails_what_is_in_flight_and_reverts_it() -> None:
    async def scenario(world: World) -> None:
        before = world.driver.committed_image
        task = asyncio.ensure_future(world.driver.register_broker(registration(1)))
        await settle()
        world.quorum.elect(2, 2)
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await task
        assert not world.driver.active
        assert world.driver.image.brokers == before.brokers
        assert world.standby.active
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await world.driver.register_broker(registration(1))

    run(scenario)


def test_deposed_controller_refuses_before_it_has_been_told() -> None:
    async def scenario(world: World) -> None:
        world.quorum.leader = LeaderAndEpoch(2, 2)
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await world.create("bad name")

    run(scenario)


def test_batch_of_another_epoch_ends_the_reign_before_the_news_arrives() -> None:
    async def scenario(world: World) -> None:
        task = asyncio.ensure_future(world.driver.register_broker(registration(1)))
        await settle()
        del world.quorum.batches[world.quorum.delivered :]
        offset = world.quorum.end_offset
        world.quorum.batches.append(CommittedBatch(offset, offset, 2, 0, ()))
        world.quorum.commit()
        assert not world.driver.active
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await task

    run(scenario)


@pytest.mark.parametrize("slice_batches", [1, 2, 3])
def test_control_batch_between_batches_of_a_reign_moves_the_offset_and_nothing_else(
    slice_batches: int,
) -> None:
    """A change of the voter set, say: the quorum appends it, the controller hears of it when it commits."""

    async def scenario(world: World) -> None:
        first = asyncio.ensure_future(world.driver.register_broker(registration(1)))
        await settle()
        offset = world.quorum.end_offset
        world.quorum.batches.append(CommittedBatch(offset, offset, 1, 0, ()))
        second = asyncio.ensure_future(world.driver.register_broker(registration(2)))
        await settle()
        while world.quorum.delivered < len(world.quorum.batches):
            world.quorum.commit(slice_batches)
            assert world.driver.committed_image == world.standby.committed_image
            await settle()
        assert ((await first).broker_epoch, (await second).broker_epoch) == (offset - 1, offset + 1)
        assert world.driver.active and world.driver.image.offset == offset + 1
        world.quorum.elect(2, 2)
        assert sorted(world.driver.image.brokers) == [1, 2]

    run(scenario)


def test_re_elected_controller_takes_over_without_loading() -> None:
    async def scenario(world: World) -> None:
        await world.register()
        before = world.driver.committed_image.brokers
        world.quorum.elect(2, 2)
        world.quorum.elect(NODE, 3)
        assert world.driver.active
        assert world.driver.image.brokers == before
        assert await world.register(2) == world.quorum.end_offset - 1

    run(scenario)


def test_controller_that_was_given_a_snapshot_decides_on_it() -> None:
    async def scenario(world: World) -> None:
        await world.register()
        late = world.make_driver(2)
        loader = world.quorum.listeners.pop()
        loader.begin_snapshot(SnapshotId(world.quorum.end_offset, 1), 0)
        for values in iter_snapshot_values(world.driver.committed_image):
            loader.handle_snapshot_values(values)
        loader.finish_snapshot()
        assert late.committed_image == late.image == world.driver.committed_image
        world.quorum.listeners[1] = loader
        world.standby = late
        world.quorum.elect(2, 2)
        assert late.active and 1 in late.image.brokers

    run(scenario)


def test_commit_that_takes_too_long_is_a_timeout_and_not_a_loss() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
            await world.driver.register_broker(registration(1))
        world.quorum.commit()
        assert 1 in world.driver.committed_image.brokers

    run(scenario, request_timeout_ms=20)


def test_a_bug_in_a_command_is_fatal() -> None:
    async def scenario(world: World) -> None:
        broken: Any = None
        with pytest.raises(AttributeError):
            await world.driver.alter_partition(broken)
        assert len(world.fatal) == 1

    run(scenario)


def test_malformed_and_unserved_requests_are_refused() -> None:
    async def scenario(world: World) -> None:
        forward = world.driver.forward
        with pytest.raises(KafkaError, match="INVALID_REQUEST"):
            await forward(RequestContext(), ApiKey.CREATE_TOPICS, 7, b"\x05", 1000)
        for api_key, version in ((ApiKey.PRODUCE, 9), (ApiKey.CREATE_TOPICS, 99), (-5, 0)):
            with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
                await forward(RequestContext(), api_key, version, b"", 1000)

    run(scenario)


def test_quorum_describes_itself() -> None:
    async def scenario(world: World) -> None:
        partition = DescribeQuorumRequestPartitionData(partition_index=0)
        other = DescribeQuorumRequestTopicData(topic_name="t", partitions=[partition])
        asked = DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
        body = DescribeQuorumRequest(topics=[asked, other]).encode(2)
        answer = await world.driver.forward(RequestContext(), ApiKey.DESCRIBE_QUORUM, 2, body, 1000)
        response = DescribeQuorumResponse.decode(answer, 2)
        found = response.topics[0].partitions[0]
        assert (found.error_code, found.leader_id, found.leader_epoch) == (0, NODE, 1)
        assert [voter.replica_id for voter in found.current_voters] == [NODE]
        assert response.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert response.nodes[0].listeners[0].port == 9093

    run(scenario)


def test_silent_broker_is_fenced_by_the_timer_of_the_active_controller() -> None:
    async def scenario(world: World) -> None:
        epoch = await world.register()
        offset = world.driver.image.offset
        await world.finish(world.driver.broker_heartbeat(BrokerHeartbeatRequest(1, epoch, offset)))
        assert not world.driver.image.brokers[1].fenced
        await world.driver.start()
        while not world.driver.image.brokers[1].fenced:
            world.clock.now_ms += 1
            await asyncio.sleep(0.001)
        world.quorum.commit()
        await world.driver.stop()
        assert world.driver.committed_image.brokers[1].fenced
        assert world.fatal == []

    run(scenario, session_timeout_ms=40)


@pytest.mark.parametrize("asleep_ms", [2000, 9000, 3600_000])
@pytest.mark.parametrize("beat_ms", [0, 250, 750, 1250])
def test_nobody_is_fenced_for_the_time_in_which_the_machine_was_suspended(
    asleep_ms: int, beat_ms: int
) -> None:
    """Everybody slept, and heartbeats go on as if nothing had been: the next is due in up to two seconds."""

    async def scenario() -> None:
        clock = SuspendedClock()
        world = World(clock, session_timeout_ms=9000)
        world.quorum.elect(NODE, 1)
        epoch = await world.register()
        await world.driver.start()

        async def beat() -> None:
            offset = world.driver.committed_image.offset
            await world.finish(world.driver.broker_heartbeat(BrokerHeartbeatRequest(1, epoch, offset)))

        await asyncio.sleep(beat_ms / 1000)
        for number in range(12):
            await beat()
            await asyncio.sleep(0.01)
            clock.suspended_ms += asleep_ms * (number == 6)
            await asyncio.sleep(1.99)
            assert not world.driver.image.brokers[1].fenced
        await asyncio.sleep(9 + 9 / 8)
        assert world.driver.image.brokers[1].fenced, "it has been silent for a session"
        await world.driver.stop()
        assert world.fatal == []

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scenario())


class LoopClock(ManualClock):
    """A loop's own time: its process notices that it stood still only by that."""

    def __init__(self) -> None: ...

    def monotonic_ms(self) -> int:
        return 50_000 + round(asyncio.get_running_loop().time() * 1000)


@pytest.mark.parametrize(
    ("stall_ms", "run_ms"), [(1600, 1000), (1600, 100), (1200, 200), (1100, 100), (1990, 10), (2900, 500)]
)
def test_controller_that_stalls_again_and_again_fences_the_dead_in_bounded_time_and_the_living_never(
    stall_ms: int, run_ms: int
) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        world = World(LoopClock(), session_timeout_ms=9000)
        world.quorum.elect(NODE, 1)
        epochs = {broker_id: await world.register(broker_id) for broker_id in (1, 2)}
        await world.driver.start()

        async def beat(broker_id: int) -> None:
            offset = world.driver.committed_image.offset
            request = BrokerHeartbeatRequest(broker_id, epochs[broker_id], offset)
            await world.finish(world.driver.broker_heartbeat(request))

        async def stall() -> None:
            while True:
                await asyncio.sleep(run_ms / 1000)
                loop.now_s += stall_ms / 1000

        async def live_on() -> None:
            """Sent every two seconds; what arrives in a stall is read behind it."""
            while True:
                await beat(2)
                await asyncio.sleep(2 - loop.now_s % 2)

        await beat(1)
        silent_since_s = loop.now_s
        nuisances = [asyncio.ensure_future(stall()), asyncio.ensure_future(live_on())]
        while not world.driver.image.brokers[1].fenced:
            await asyncio.sleep(0.01)
            assert loop.now_s - silent_since_s < 2 * 9 + 3 * (stall_ms + run_ms) / 1000 + 9 / 8
        assert loop.now_s - silent_since_s >= 9
        await asyncio.sleep(40)
        assert not world.driver.image.brokers[2].fenced
        for nuisance in nuisances:
            nuisance.cancel()
        await world.driver.stop()
        assert world.fatal == []

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scenario())


def test_idle_controller_writes_what_changes_nothing_at_the_interval_it_is_given() -> None:
    async def scenario(world: World) -> None:
        end_offset, image = world.quorum.end_offset, world.driver.image
        await world.driver.start()
        while world.quorum.end_offset < end_offset + 3:
            await asyncio.sleep(0.001)
        await world.driver.stop()
        world.quorum.commit()
        assert world.driver.committed_image.features == image.features

    run(scenario, max_idle_interval_ms=5)


def many_topics(count: int, partitions: int) -> bytes:
    topics = [
        CreatableTopic(name=f"t{number}", num_partitions=partitions, replication_factor=1)
        for number in range(count)
    ]
    return CreateTopicsRequest(topics=topics).encode(7)


def test_request_for_many_topics_takes_turns_with_others_and_is_answered_as_one() -> None:
    async def scenario(world: World) -> None:
        epoch = await world.register()
        beat = BrokerHeartbeatRequest(1, epoch, world.driver.image.offset)
        await world.finish(world.driver.broker_heartbeat(beat))
        body, before = many_topics(20, 100), len(world.quorum.batches)
        task = asyncio.ensure_future(
            world.driver.forward(RequestContext(), ApiKey.CREATE_TOPICS, 7, body, 30_000)
        )
        seen = []
        while len(world.driver.image.topics_by_id) < 20:
            await asyncio.sleep(0)
            seen.append(len(world.driver.image.topics_by_id))
        assert len(set(seen)) > 3, "many topics were created in one turn"
        await settle()
        assert not task.done(), "answered before the commit"
        world.quorum.commit()
        answer = CreateTopicsResponse.decode(await task, 7)
        assert [topic.name for topic in answer.topics] == [f"t{number}" for number in range(20)]
        assert max(len(batch.values) for batch in world.quorum.batches[before:]) <= 500

    run(scenario)


def test_request_in_parts_fails_with_the_reign_it_began_in() -> None:
    async def scenario(world: World) -> None:
        epoch = await world.register()
        beat = BrokerHeartbeatRequest(1, epoch, world.driver.image.offset)
        await world.finish(world.driver.broker_heartbeat(beat))
        task = asyncio.ensure_future(
            world.driver.forward(RequestContext(), ApiKey.CREATE_TOPICS, 7, many_topics(20, 100), 30_000)
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert 0 < len(world.driver.image.topics_by_id) < 20
        world.quorum.elect(2, 2)
        world.quorum.elect(NODE, 3)  # what the first parts appended is gone
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await task
        await settle()
        world.quorum.commit()
        assert len(world.driver.image.topics_by_id) == 0

    run(scenario)


def test_sweep_takes_turns_with_commands_and_ends_with_the_leadership(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeps, "SLICE_CHANGES", 2)

    async def scenario(world: World) -> None:
        for broker_id in (1, 2):
            epoch = await world.register(broker_id)
            beat = BrokerHeartbeatRequest(broker_id, epoch, world.driver.image.offset)
            await world.finish(world.driver.broker_heartbeat(beat))
        await world.finish(world.create("t", partitions=40, replication_factor=2))
        victim = world.driver.image.brokers[1]
        want_fence = BrokerHeartbeatRequest(1, victim.epoch, world.driver.image.offset, want_fence=True)

        def led() -> int:
            topic = world.driver.image.topic("t")
            assert topic is not None
            return sum(partition.leader == 1 for partition in topic.partitions)

        before = led()
        answer = asyncio.ensure_future(world.driver.broker_heartbeat(want_fence))
        await asyncio.sleep(0)
        world.quorum.commit()
        assert (await answer).is_fenced
        turns = [led()]
        while turns[-1] > before // 2:
            await asyncio.sleep(0)
            turns.append(led())
        assert len(turns) > 5, "many partitions moved in one turn"
        world.quorum.elect(2, 2)
        left = sum(batch.epoch == 1 for batch in world.quorum.batches)
        for _ in range(50):
            await asyncio.sleep(0)
        later = sum(batch.epoch == 1 for batch in world.quorum.batches)
        assert later == left, "a deposed controller goes on"
        world.quorum.elect(NODE, 3)
        while led():
            await asyncio.sleep(0)
        world.quorum.commit()
        assert world.fatal == []

    run(scenario)


class HandlerTable:
    """The server's side of the port: calls a handler by its method name."""

    def __init__(self) -> None:
        self.handlers: dict[str, RpcHandler] = {}

    def register(self, method: str, handler: RpcHandler) -> None:
        self.handlers[method] = handler

    async def start(self) -> int:
        return 0

    async def stop(self, grace_ms: int) -> None: ...

    def call(self, method: str, request: Any) -> Any:
        return self.handlers[f"/pykraft.metadata_log.Controller/{method}"](request.SerializeToString())


def wire_registration(broker_id: int) -> pb.RegisterBrokerRequest:
    return pb.RegisterBrokerRequest(
        cluster_id="c",
        broker_id=broker_id,
        incarnation_id=bytes([broker_id]) * 16,
        endpoints=[pb.Endpoint(name="PLAINTEXT", host="h", port=1, security_protocol="PLAINTEXT")],
        log_dirs=[bytes([100 + broker_id]) * 16],
        features=[
            pb.Feature(name=f.name, min_level=f.min_level, max_level=f.max_level) for f in SUPPORTED_RANGES
        ],
        rack="r1",
    )


def test_every_call_travels_in_protobuf() -> None:
    async def scenario(world: World) -> None:
        server = HandlerTable()
        controller_rpc.register(server, world.driver)

        async def call(method: str, request: Any, response: Any) -> Any:
            return response.FromString(await world.finish(server.call(method, request)))

        registered = await call("RegisterBroker", wire_registration(1), pb.RegisterBrokerResponse)
        assert (registered.error_code, registered.leader_id, registered.leader_epoch) == (0, NODE, 1)
        epoch = registered.broker_epoch
        assert world.driver.image.brokers[1].rack == "r1"

        beat = pb.BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=epoch)
        answer = await call("BrokerHeartbeat", beat, pb.BrokerHeartbeatResponse)
        assert (answer.is_caught_up, answer.is_fenced, answer.should_shut_down) == (True, False, False)

        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        body = CreateTopicsRequest(topics=[topic]).encode(7)
        forward = pb.ForwardRequest(api_key=19, api_version=7, body=body, timeout_ms=1000)
        created = await call("Forward", forward, pb.ForwardResponse)
        topic_id = CreateTopicsResponse.decode(created.body, 7).topics[0].topic_id

        change = pb.AlterPartitionPartition(index=1, new_isr=[pb.IsrMember(broker_id=1, broker_epoch=epoch)])
        alter = pb.AlterPartitionRequest(
            broker_id=1,
            broker_epoch=epoch,
            topics=[pb.AlterPartitionTopic(topic_id=topic_id, partitions=[change])],
        )
        altered = await call("AlterPartition", alter, pb.AlterPartitionResponse)
        result = altered.topics[0].partitions[0]
        assert (result.index, result.error_code, list(result.isr), result.leader) == (1, 0, [1], 1)

        async def report(leader_epoch: int | None) -> pb.LostReplicaResult:
            lost = pb.LostReplica(topic_id=topic_id, index=1, leader_epoch=leader_epoch)
            told = pb.ReportLostReplicasRequest(broker_id=1, broker_epoch=epoch, partitions=[lost])
            answer = await call("ReportLostReplicas", told, pb.ReportLostReplicasResponse)
            return answer.partitions[0]

        first, copy, second = await report(0), await report(0), await report(1)
        assert (first.index, first.error_code) == (1, 0)
        assert (copy.error_code, second.error_code) == (ErrorCode.FENCED_LEADER_EPOCH, 0)
        assert second.partition_epoch == first.partition_epoch + 1
        assert (await report(None)).error_code == 0, "a broker of an earlier version says no epoch"

        ids = pb.AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
        block = await call("AllocateProducerIds", ids, pb.AllocateProducerIdsResponse)
        assert (block.start, block.length) == (0, 1000)

    run(scenario)


def test_isr_changes_of_many_partitions_make_one_batch_and_are_answered_one_by_one() -> None:
    count = MAX_PARTITIONS_PER_REQUEST

    async def scenario(world: World) -> None:
        server = HandlerTable()
        controller_rpc.register(server, world.driver)
        epochs = {broker_id: await world.register(broker_id) for broker_id in (1, 2)}
        for broker_id, epoch in epochs.items():
            beat = BrokerHeartbeatRequest(broker_id, epoch, world.quorum.end_offset)
            await world.finish(world.driver.broker_heartbeat(beat))
        await world.finish(world.create("t", partitions=2 * count + 2, replication_factor=2))
        topic = world.driver.image.topic("t")
        assert topic is not None
        led = [index for index, partition in enumerate(topic.partitions) if partition.leader == 1]

        async def leave_alone(*indexes: int) -> pb.AlterPartitionResponse:
            """Broker 1 takes broker 2 out of the ISR."""
            alone = [pb.IsrMember(broker_id=1, broker_epoch=epochs[1])]
            changes = [pb.AlterPartitionPartition(index=index, new_isr=alone) for index in indexes]
            asked = pb.AlterPartitionTopic(topic_id=topic.id, partitions=changes)
            request = pb.AlterPartitionRequest(broker_id=1, broker_epoch=epochs[1], topics=[asked])
            answer = await world.finish(server.call("AlterPartition", request))
            return pb.AlterPartitionResponse.FromString(answer)

        asked = [*led[: count - 1], 9999]
        batches = len(world.quorum.batches)
        results = (await leave_alone(*asked)).topics[0].partitions
        assert len(world.quorum.batches) == batches + 1
        assert [result.index for result in results] == asked
        assert [list(result.isr) for result in results[:-1]] == [[1]] * (count - 1)
        assert results[-1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refused = await leave_alone(*led[: count + 1])
        assert (refused.error_code, list(refused.topics)) == (ErrorCode.INVALID_REQUEST, [])
        assert world.driver.image.topic("t").partitions[led[count]].isr == (1, 2)

    run(scenario)


def test_errors_travel_as_codes_with_a_leader_hint() -> None:
    async def scenario(world: World) -> None:
        server = HandlerTable()
        controller_rpc.register(server, world.standby)
        refused = pb.RegisterBrokerResponse.FromString(
            await server.call("RegisterBroker", wire_registration(1))
        )
        assert (refused.error_code, refused.leader_id) == (ErrorCode.NOT_CONTROLLER, NODE)
        garbage = await server.handlers["/pykraft.metadata_log.Controller/Forward"](b"\xff")
        assert pb.ForwardResponse.FromString(garbage).error_code == ErrorCode.INVALID_REQUEST
        short = pb.RegisterBrokerRequest(cluster_id="c", broker_id=1, incarnation_id=b"short")
        answer = pb.RegisterBrokerResponse.FromString(await server.call("RegisterBroker", short))
        assert answer.error_code == ErrorCode.INVALID_REQUEST

    run(scenario)


# --- feature levels of controllers -------------------------------------------------------------------------


def test_active_controller_says_itself_which_levels_it_can_run() -> None:
    async def scenario(world: World) -> None:
        own = RegisterControllerRecord(NODE, SUPPORTED_RANGES)
        assert dict(world.driver.committed_image.controllers) == {NODE: own}
        world.quorum.elect(2, 2)
        world.quorum.commit()
        assert dict(world.standby.committed_image.controllers) == {
            NODE: own,
            2: RegisterControllerRecord(2, SUPPORTED_RANGES),
        }
        offset = world.standby.committed_image.offset
        world.quorum.elect(NODE, 3)
        world.quorum.commit()
        assert world.driver.committed_image.offset == offset + 1, "only the change of leaders is new"

    run(scenario)


def test_controller_that_listens_elsewhere_says_so_anew() -> None:
    async def scenario(world: World) -> None:
        endpoint = Endpoint("KAFKA", "host", 9094)
        world.restart_standby(endpoints=(endpoint,))
        world.quorum.elect(2, 2)
        world.quorum.commit()
        assert world.standby.committed_image.controllers[2].endpoints == (endpoint,)
        request = RegisterControllerRequest(
            "c", NODE, SUPPORTED_RANGES, endpoints=(replace(endpoint, port=9095),)
        )
        offsets = []
        for _ in range(2):
            telling = asyncio.ensure_future(world.standby.register_controller(request))
            await settle()
            world.quorum.commit()
            await telling
            offsets.append(world.standby.committed_image.offset)
        assert world.standby.committed_image.controllers[NODE].endpoints == request.endpoints
        assert offsets[0] == offsets[1], "said twice, written once"

    run(scenario)


def test_standby_tells_the_active_controller_until_the_log_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_driver, "REGISTRATION_CHECK_MS", 1)
    attempts: list[int] = []

    async def scenario(world: World) -> None:
        async def register() -> None:
            attempts.append(len(attempts))
            if len(attempts) == 1:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no leader yet")
            request = RegisterControllerRequest("c", 2, SUPPORTED_RANGES)
            telling = asyncio.ensure_future(world.driver.register_controller(request))
            await settle()
            world.quorum.commit()
            await telling

        world.restart_standby(register)
        await world.standby.start()
        async with asyncio.timeout(10):
            while 2 not in world.standby.committed_image.controllers:
                await asyncio.sleep(0.001)
        done = len(attempts)
        await asyncio.sleep(0.02)
        assert done == len(attempts) == 2
        await world.standby.stop()
        assert world.fatal == []

    run(scenario)


def test_active_controller_says_whose_session_timeout_differs(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        for controller_id, timeout_ms in ((2, 9000), (3, 60_000), (4, 0)):
            request = RegisterControllerRequest("c", controller_id, SUPPORTED_RANGES, timeout_ms)
            await world.finish(world.driver.register_controller(request))

    run(scenario, session_timeout_ms=9000)
    told = [it.getMessage() for it in caplog.records if "broker.session.timeout.ms" in it.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("controller 3 is configured with broker.session.timeout.ms=60000")


def test_controller_registers_once_even_if_the_log_knows_its_levels_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its session timeout may be another than before."""
    monkeypatch.setattr(controller_driver, "REGISTRATION_CHECK_MS", 1)

    async def scenario(world: World) -> None:
        attempts = []

        async def register() -> None:
            attempts.append(len(attempts))

        await world.finish(
            world.driver.register_controller(RegisterControllerRequest("c", 2, SUPPORTED_RANGES))
        )
        world.restart_standby(register)
        await world.standby.start()
        async with asyncio.timeout(10):
            while not attempts:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert len(attempts) == 1
        await world.standby.stop()

    run(scenario)


def test_controller_that_is_refused_because_it_is_too_old_halts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_driver, "REGISTRATION_CHECK_MS", 1)

    async def scenario(world: World) -> None:
        async def register() -> None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the cluster runs metadata.version at level 31")

        world.restart_standby(register)
        await world.standby.start()
        async with asyncio.timeout(10):
            while not world.fatal:
                await asyncio.sleep(0.001)
        assert "level 31" in str(world.fatal[0])
        await world.standby.stop()

    run(scenario)


def test_controller_that_cannot_run_the_clusters_levels_halts_before_it_decides_anything() -> None:
    async def scenario(world: World) -> None:
        world.quorum.propose(1, [encode_record(FeatureLevelRecord("metadata.version", 31))])
        world.quorum.commit()
        world.quorum.elect(2, 2)
        assert not world.standby.active
        assert "metadata.version at level 31; this software supports 7 to 30" in str(world.fatal[0])

    run(scenario)
