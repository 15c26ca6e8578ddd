"""Commands of the controller on a quorum that commits when a test says so: which are answered, and when."""

import asyncio
from typing import cast

import pytest

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.codec import pace
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages import groups
from pykraft.kafka_protocol.messages.cluster import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from pykraft.kafka_protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.controller import driver
from pykraft.metadata_log.controller.calls.requests import BrokerHeartbeatRequest, RegisterBrokerRequest
from pykraft.metadata_log.controller.describe_quorum import build_describe_quorum_response
from pykraft.metadata_log.controller.topics.topic_names import METADATA_TOPIC_NAME
from pykraft.metadata_log.snapshot import iter_snapshot_values
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.quorum.listener import CommittedBatch, LeaderAndEpoch, QuorumDescription, ReplicaProgress
from pykraft.runtime.address import Address
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from tests.metadata_log.driver_world import (
    NODE,
    World,
    error_code_of,
    registration,
    running_world,
)
from tests.narrowing import as_type
from tests.waits import settle


async def test_new_leader_writes_the_first_features_and_is_active(world: World) -> None:
    assert world.driver.active
    assert dict(world.driver.committed_image.features) == {"metadata.version": 30}


async def test_answer_is_held_until_its_records_are_committed(world: World) -> None:
    task = asyncio.ensure_future(world.driver.register_broker(registration(1)))
    await settle()
    assert not task.done()
    assert 1 in world.driver.image.brokers
    assert 1 not in world.driver.committed_image.brokers
    world.quorum.commit()
    assert (await task).broker_epoch == world.quorum.log_end_offset - 1


async def test_answer_without_records_waits_for_what_it_was_decided_on(world: World) -> None:
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


async def test_refusal_waits_for_what_it_was_decided_on(world: World) -> None:
    first = asyncio.ensure_future(world.driver.register_broker(registration(1)))
    await settle()
    second = asyncio.ensure_future(world.driver.register_broker(registration(1, incarnation=2)))
    await settle()
    assert not second.done()
    world.quorum.commit()
    await first
    with pytest.raises(KafkaError, match="DUPLICATE_BROKER_REGISTRATION"):
        await second


async def test_answer_without_records_is_immediate_when_nothing_is_pending(world: World) -> None:
    assert error_code_of(await world.create("bad name")) == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_lost_leadership_fails_what_is_in_flight_and_reverts_it(world: World) -> None:
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


@pytest.mark.parametrize("leader_id", [2, NODE])
@pytest.mark.loop(new=VirtualLoop)
async def test_deposed_controller_refuses_before_it_is_notified(
    monkeypatch: pytest.MonkeyPatch, leader_id: int
) -> None:
    """Also if it leads again: what it knows is of its earlier epoch."""
    monkeypatch.setattr(driver, "CLAIM_MS", 1)

    async with running_world() as world:
        world.quorum.leader = LeaderAndEpoch(leader_id, 2)
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await world.create("bad name")


async def test_call_between_the_election_and_the_notification_waits_for_it(world: World) -> None:
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


@pytest.mark.parametrize("end", ["another leads", "it stops"])
async def test_call_that_waits_for_the_notification_is_refused_if_another_leads_or_this_one_stops(
    world: World, end: str
) -> None:
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


@pytest.mark.loop(new=VirtualLoop)
async def test_call_does_not_wait_for_long_for_the_notification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "CLAIM_MS", 1)

    async with running_world() as world:
        world.quorum.elect(2, 2)
        world.quorum.leader = LeaderAndEpoch(NODE, 3)
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await world.driver.register_broker(registration(1))


async def test_batch_of_another_epoch_ends_the_leadership_before_the_notification(world: World) -> None:
    task = asyncio.ensure_future(world.driver.register_broker(registration(1)))
    await settle()
    del world.quorum.batches[world.quorum.delivered :]
    offset = world.quorum.log_end_offset
    world.quorum.batches.append(CommittedBatch(offset, offset, 2, 0, ()))
    world.quorum.commit()
    assert not world.driver.active
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        await task


@pytest.mark.parametrize("slice_batches", [1, 2, 3])
async def test_control_batch_between_batches_of_a_leader_only_moves_the_offset(
    world: World, slice_batches: int
) -> None:
    """For example a change of the voters: the quorum appends it, the controller learns of its commit."""
    first = asyncio.ensure_future(world.driver.register_broker(registration(1)))
    await settle()
    offset = world.quorum.log_end_offset
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


async def test_re_elected_controller_takes_over_without_loading(world: World) -> None:
    await world.register()
    before = world.driver.committed_image.brokers
    world.quorum.elect(2, 2)
    world.quorum.elect(NODE, 3)
    assert world.driver.active
    assert world.driver.image.brokers == before
    assert await world.register(2) == world.quorum.log_end_offset - 1


async def test_controller_that_loaded_a_snapshot_decides_on_it(world: World) -> None:
    await world.register()
    late = world.make_driver(2)
    loader = world.quorum.listeners.pop()
    loader.begin_snapshot(SnapshotId(world.quorum.log_end_offset, 1), 0)
    for values in iter_snapshot_values(world.driver.committed_image):
        loader.handle_snapshot_values(values)
    loader.finish_snapshot()
    assert late.committed_image == late.image == world.driver.committed_image
    world.quorum.listeners[1] = loader
    world.standby = late
    world.quorum.elect(2, 2)
    assert late.active and 1 in late.image.brokers


def many_topics(count: int = 300, *, validate_only: bool = False) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1) for number in range(count)
    ]
    return CreateTopicsRequest(topics=topics, validate_only=validate_only)


async def with_a_broker(world: World) -> None:
    epoch = await world.register()
    while not world.driver.image.is_active(1):
        heartbeat = BrokerHeartbeatRequest(1, epoch, world.quorum.log_end_offset)
        await world.finish(world.driver.broker_heartbeat(heartbeat))


async def test_request_in_parts_ends_with_the_epoch_it_began_in(world: World) -> None:
    """In the next one, which this node leads as well, the records of the first part are lost."""
    await with_a_broker(world)
    task = asyncio.ensure_future(world.driver.answer(RequestContext(), many_topics(), 30_000))
    while "t0" not in world.driver.image.topic_ids:
        await asyncio.sleep(0)
    world.quorum.elect(NODE, 2)
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        await task
    assert not world.driver.image.topic_ids and not world.fatal


async def test_other_commands_run_between_two_parts(world: World) -> None:
    await with_a_broker(world)
    task = asyncio.ensure_future(world.driver.answer(RequestContext(), many_topics(), 30_000))
    await asyncio.sleep(0)
    other = await world.finish(world.create("t299"))
    while not task.done():
        await asyncio.sleep(0)
        world.quorum.commit()
    answer = as_type(task.result(), CreateTopicsResponse)
    errors = {topic.name: topic.error_code for topic in answer.topics if topic.error_code}
    assert error_code_of(other) == ErrorCode.NONE
    assert errors == {"t299": ErrorCode.TOPIC_ALREADY_EXISTS}


async def test_objects_of_a_large_request_and_its_answer_are_freed_over_several_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_a_broker(world)
    body = DeleteTopicsRequest(topic_names=[f"none-{number}" for number in range(300)]).encode(1)
    counted, answers = [], []
    for _ in range(2):
        task = asyncio.ensure_future(
            world.driver.forward(RequestContext(), DeleteTopicsRequest.API_KEY, 1, body, 30_000)
        )
        turns = 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
            world.quorum.commit()
        counted.append(turns)
        answers.append(task.result())
        monkeypatch.setattr(pace, "FREED_AT_ONCE", 10)
    assert counted[1] - counted[0] >= 2 * (300 // 10 - 1)
    assert answers[0] == answers[1]
    assert len(DeleteTopicsResponse.decode(answers[0], 1).responses) == 300


def test_elements_within_elements_are_let_go_in_slices_but_for_what_others_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "FREED_AT_ONCE", 10)

    def configs() -> list[CreatableTopicConfig]:
        return [CreatableTopicConfig(name=f"key-{number}") for number in range(100)]

    brokers, kept_configs, kept = [1, 2, 3], configs(), CreatableTopic(name="kept", configs=configs())
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name="t",
                configs=configs(),
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=brokers)],
            ),
            CreatableTopic(name="u", configs=kept_configs),
            kept,
        ]
    )
    assert 10 <= sum(1 for _ in request.release()) <= 20
    assert not request.topics and brokers == [1, 2, 3]
    assert kept_configs == configs() == kept.configs
    assert not list(CreateTopicsRequest(topics=(kept_topics := [kept])).release()) and kept_topics == [kept]


def test_elements_within_structs_are_let_go_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "FREED_AT_ONCE", 10)
    kept = [0, 1, 2]

    def member(partitions: list[int]) -> groups.Member:
        topics = [groups.TopicPartitions(topic_name=f"t{n}", partitions=partitions) for n in range(100)]
        return groups.Member(assignment=groups.Assignment(topic_partitions=topics))

    members = [member(kept), member([])]
    kept_assignment = members[1].assignment
    response = groups.ConsumerGroupDescribeResponse(groups=[groups.ConsumerDescribedGroup(members=members)])
    del members
    assert 10 <= sum(1 for _ in response.release()) <= 25
    assert not response.groups and kept == [0, 1, 2] and len(kept_assignment.topic_partitions) == 100


def test_elements_with_small_arrays_are_let_go_in_few_slices() -> None:
    """Each is a turn of the loop, and the answer of the controller waits for them."""
    partitions = [ReassignablePartition(partition_index=n, replicas=[1, 2, 3]) for n in range(19_000)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=partitions)])
    del partitions
    assert 19 <= sum(1 for _ in request.release()) <= 19 * 6
    assert not request.topics


async def test_request_that_only_validates_appends_nothing_in_any_part(world: World) -> None:
    await with_a_broker(world)
    before = world.driver.image
    request = many_topics(validate_only=True)
    answer = as_type(await world.driver.answer(RequestContext(), request, 30_000), CreateTopicsResponse)
    assert [topic.error_code for topic in answer.topics] == [0] * len(request.topics)
    assert world.driver.image is before


async def test_refused_excess_waits_like_any_other_refusal(world: World) -> None:
    pending = asyncio.ensure_future(world.driver.register_broker(registration(1)))
    await settle()
    task = asyncio.ensure_future(world.driver.answer(RequestContext(), many_topics(10_001), 30_000))
    for _ in range(50):
        await settle()
    assert not task.done()
    world.quorum.commit()
    with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        await task
    await pending


@pytest.mark.world(request_timeout_ms=20)
async def test_commit_that_takes_too_long_is_a_timeout_and_not_a_loss(world: World) -> None:
    with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
        await world.driver.register_broker(registration(1))
    world.quorum.commit()
    assert 1 in world.driver.committed_image.brokers


async def test_a_bug_in_a_command_is_fatal(world: World) -> None:
    broken = cast(RegisterBrokerRequest, None)
    with pytest.raises(AttributeError):
        await world.driver.register_broker(broken)
    assert len(world.fatal) == 1


async def test_malformed_and_unserved_requests_are_refused(world: World) -> None:
    forward = world.driver.forward
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        await forward(RequestContext(), ApiKey.CREATE_TOPICS, 7, b"\x05", 1000)
    for api_key, version in ((ApiKey.PRODUCE, 9), (ApiKey.CREATE_TOPICS, 99), (-5, 0)):
        with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
            await forward(RequestContext(), api_key, version, b"", 1000)


async def describe(world: World, *names: str, index: int = 0) -> DescribeQuorumResponse:
    partition = DescribeQuorumRequestPartitionData(partition_index=index)
    topics = [DescribeQuorumRequestTopicData(topic_name=name, partitions=[partition]) for name in names]
    body = DescribeQuorumRequest(topics=topics).encode(2)
    answer = await world.driver.forward(RequestContext(), ApiKey.DESCRIBE_QUORUM, 2, body, 1000)
    return DescribeQuorumResponse.decode(answer, 2)


async def test_quorum_describes_itself(world: World) -> None:
    response = await describe(world, METADATA_TOPIC_NAME)
    found = response.topics[0].partitions[0]
    assert (found.error_code, found.leader_id, found.leader_epoch) == (0, NODE, 1)
    assert [voter.replica_id for voter in found.current_voters] == [NODE]
    assert response.nodes[0].listeners[0].port == 9093


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_voters_have_directory_ids_only_if_the_log_has_them(is_dynamic: bool) -> None:
    key, observer = ReplicaKey(1, Uuid(b"d" * 16)), ReplicaKey(2, Uuid(b"e" * 16))
    voters = VoterSet([Voter(key if is_dynamic else ReplicaKey(1), Address("h", 1))])
    seen = QuorumDescription(1, 1, 5, (ReplicaProgress(key, 5, 0, 0),), (ReplicaProgress(observer, 5, 0, 0),))
    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC_NAME, partitions=[partition])
    request = DescribeQuorumRequest(topics=[topic])
    found = build_describe_quorum_response(request, seen, voters, "CONTROLLER").topics[0].partitions[0]
    expected = key.directory_id if is_dynamic else ZERO_UUID
    assert [voter.replica_directory_id for voter in found.current_voters] == [expected]
    assert [one.replica_directory_id for one in found.observers] == [observer.directory_id]


async def test_quorum_describes_its_partition_only_if_nothing_else_is_named(world: World) -> None:
    for index, names in enumerate((["t"], [METADATA_TOPIC_NAME, "t"], [METADATA_TOPIC_NAME] * 500)):
        response = await describe(world, *names, index=0 if index else 1)
        assert [topic.topic_name for topic in response.topics] == names
        errors = {partition.error_code for topic in response.topics for partition in topic.partitions}
        assert errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    other = await describe(world, METADATA_TOPIC_NAME, index=1)
    assert other.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError, match="INVALID_REQUEST: more than 1000 items"):
        await describe(world, *["t"] * 501)
