"""The driver on a quorum that commits when told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

import pytest

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
from pykraft.metadata_log import controller_rpc
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.requests import (
    BrokerHeartbeatRequest,
    RegisterBrokerRequest,
)
from pykraft.metadata_log.controller_driver import ControllerDriver
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.metadata_log.records import Endpoint
from pykraft.quorum.listener import CommittedBatch, LeaderAndEpoch, QuorumDescription, ReplicaProgress
from pykraft.quorum.voters import ReplicaKey
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
        self.listeners: list[ControllerDriver] = []

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def propose(self, epoch: int, values: Sequence[bytes]) -> int:
        if self.leader != LeaderAndEpoch(NODE, epoch):
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        base = self.end_offset
        self.batches.append(CommittedBatch(base, base + len(values) - 1, epoch, 0, tuple(values)))
        return base + len(values) - 1

    def describe(self, now_ms: int) -> QuorumDescription:
        voters = (ReplicaProgress(ReplicaKey(NODE), self.end_offset, now_ms, now_ms),)
        return QuorumDescription(self.leader.leader_id, self.leader.epoch, self.delivered, voters, ())

    def commit(self) -> None:
        batches = self.batches[self.delivered :]
        self.delivered = len(self.batches)
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


class World:
    def __init__(self, **config: Any) -> None:
        self.clock = ManualClock()
        self.quorum = ManualQuorum()
        self.fatal: list[BaseException] = []
        self.driver = self.make_driver(NODE, **config)
        self.standby = self.make_driver(2)

    def make_driver(self, node_id: int, **config: Any) -> ControllerDriver:
        driver = ControllerDriver(
            node_id=node_id,
            config=ControllerConfig(**config),
            cluster_id="c",
            clock=self.clock,
            rng=Random(1),
            bootstrap_features={},
            voter_endpoints={NODE: RpcAddress("localhost", 9093)},
            on_fatal=self.fatal.append,
        )
        driver.attach(self.quorum)
        self.quorum.listeners.append(driver)
        return driver

    async def finish(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Let a command run up to its commit, commit, and take its answer."""
        task = asyncio.ensure_future(work)
        await settle()
        self.quorum.commit()
        return await task

    async def register(self, broker_id: int = 1) -> int:
        return int((await self.finish(self.driver.register_broker(registration(broker_id)))).broker_epoch)

    def create(self, name: str, timeout_ms: int = 30_000) -> Coroutine[Any, Any, bytes]:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        body = CreateTopicsRequest(topics=[topic]).encode(7)
        return self.driver.forward(RequestContext(), ApiKey.CREATE_TOPICS, 7, body, timeout_ms)


def registration(broker_id: int, incarnation: int = 1) -> RegisterBrokerRequest:
    return RegisterBrokerRequest(
        "c",
        broker_id,
        Uuid(bytes([incarnation]) * 16),
        (Endpoint("PLAINTEXT", "h", 1),),
        (Uuid(bytes([100 + broker_id]) * 16),),
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

        ids = pb.AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
        block = await call("AllocateProducerIds", ids, pb.AllocateProducerIdsResponse)
        assert (block.start, block.length) == (0, 1000)

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
