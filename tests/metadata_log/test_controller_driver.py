"""Commands of the controller on a quorum that commits when a test says so: which are answered, and when."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.controller import driver
from pykraft.metadata_log.controller.requests import AlterPartitionRequest, BrokerHeartbeatRequest
from pykraft.metadata_log.snapshot import iter_snapshot_values
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.listener import CommittedBatch, LeaderAndEpoch
from tests.metadata_log.driver_world import NODE, World, error_code_of, registration, run, settle


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


def test_deposed_controller_refuses_before_it_is_notified() -> None:
    async def scenario(world: World) -> None:
        world.quorum.leader = LeaderAndEpoch(2, 2)
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await world.create("bad name")

    run(scenario)


def test_call_between_the_election_and_the_notification_waits_for_it() -> None:
    async def scenario(world: World) -> None:
        world.quorum.elect(2, 2)
        world.quorum.leader = LeaderAndEpoch(NODE, 3)
        registering = asyncio.ensure_future(world.driver.register_broker(registration(1)))
        creating = asyncio.ensure_future(world.create("bad name"))
        await settle()
        assert not registering.done() and not creating.done() and not world.driver.active
        world.quorum.elect(NODE, 3)
        await settle()
        world.quorum.commit()
        assert (await registering).broker_epoch == world.driver.committed_image.brokers[1].epoch
        assert error_code_of(await creating) == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(scenario)


@pytest.mark.parametrize("end", ["another leads", "it stops"])
def test_call_that_waits_for_the_notification_is_refused_if_another_leads_or_this_one_stops(end: str) -> None:
    async def scenario(world: World) -> None:
        world.quorum.elect(2, 2)
        world.quorum.leader = LeaderAndEpoch(NODE, 3)
        call = asyncio.ensure_future(world.driver.register_broker(registration(1)))
        await settle()
        if end == "it stops":
            await world.driver.stop()
        else:
            world.quorum.elect(2, 4)
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await call

    run(scenario)


def test_call_does_not_wait_for_long_for_the_notification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "CLAIM_MS", 1)

    async def scenario(world: World) -> None:
        world.quorum.elect(2, 2)
        world.quorum.leader = LeaderAndEpoch(NODE, 3)
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await world.driver.register_broker(registration(1))

    run(scenario)


def test_batch_of_another_epoch_ends_the_leadership_before_the_notification() -> None:
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
def test_control_batch_between_batches_of_a_leader_only_moves_the_offset(
    slice_batches: int,
) -> None:
    """For example a change of the voters: the quorum appends it, the controller learns of its commit."""

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


def test_controller_that_loaded_a_snapshot_decides_on_it() -> None:
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
        broken = cast(AlterPartitionRequest, None)
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
