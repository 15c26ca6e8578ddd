"""The calls of brokers to the controller, as protobuf."""

from typing import Any, TypeVar

import pytest
from google.protobuf.message import Message

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pykraft.metadata_log.controller.alter_partition import MAX_PARTITIONS_PER_REQUEST
from pykraft.metadata_log.controller.calls import rpc as controller_rpc
from pykraft.metadata_log.controller.calls.requests import BrokerHeartbeatRequest
from pykraft.metadata_log.controller.driver import ITEMS_AT_ONCE
from pykraft.metadata_log.features import SUPPORTED_RANGES
from pykraft.metadata_log.pb import controller_pb2 as pb
from tests.metadata_log.driver_world import NODE, World
from tests.narrowing import present
from tests.rpc_handlers import RpcHandlers


class ControllerHandlers(RpcHandlers):
    async def call(self, method: str, request: Message) -> bytes:
        return await self.handlers[f"/pykraft.metadata_log.Controller/{method}"](request.SerializeToString())


P = TypeVar("P", bound=Message)


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


async def test_every_call_is_encoded_as_protobuf(world: World) -> None:
    server = ControllerHandlers()
    controller_rpc.register(server, world.driver)

    async def call(method: str, request: Message, response: type[P]) -> P:
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
        response = pb.ReportLostReplicasRequest(broker_id=1, broker_epoch=epoch, partitions=[lost])
        answer: pb.ReportLostReplicasResponse = await call(
            "ReportLostReplicas", response, pb.ReportLostReplicasResponse
        )
        return answer.partitions[0]

    first, copy, second = await report(0), await report(0), await report(1)
    assert (first.index, first.error_code) == (1, 0)
    assert (copy.error_code, second.error_code) == (ErrorCode.FENCED_LEADER_EPOCH, 0)
    assert second.partition_epoch == first.partition_epoch + 1
    assert (await report(None)).error_code == 0, "a broker of an earlier version sends no epoch"

    ids = pb.AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
    block = await call("AllocateProducerIds", ids, pb.AllocateProducerIdsResponse)
    assert (block.start, block.length) == (0, 1000)


async def test_isr_changes_of_many_partitions_are_decided_in_parts_and_answered_one_by_one(
    world: World,
) -> None:
    count = MAX_PARTITIONS_PER_REQUEST
    server = ControllerHandlers()
    controller_rpc.register(server, world.driver)
    epochs = {broker_id: await world.register(broker_id) for broker_id in (1, 2)}
    for broker_id, epoch in epochs.items():
        beat = BrokerHeartbeatRequest(broker_id, epoch, world.quorum.log_end_offset)
        await world.finish(world.driver.broker_heartbeat(beat))
    await world.finish(world.create("t", partitions=2 * count + 2, replication_factor=2))
    topic = world.driver.image.topic("t")
    assert topic is not None
    led = [index for index, partition in enumerate(topic.partitions) if partition.leader == 1]

    async def leave_alone(*indexes: int) -> pb.AlterPartitionResponse:
        """Broker 1 removes broker 2 from the ISR."""
        alone = [pb.IsrMember(broker_id=1, broker_epoch=epochs[1])]
        changes = [pb.AlterPartitionPartition(index=index, new_isr=alone) for index in indexes]
        asked = pb.AlterPartitionTopic(topic_id=topic.id, partitions=changes)
        request = pb.AlterPartitionRequest(broker_id=1, broker_epoch=epochs[1], topics=[asked])
        answer = await world.finish(server.call("AlterPartition", request))
        return pb.AlterPartitionResponse.FromString(answer)

    asked = [*led[: count - 1], 9999]
    batches = len(world.quorum.batches)
    results = (await leave_alone(*asked)).topics[0].partitions
    assert len(world.quorum.batches) == batches + -(-count // ITEMS_AT_ONCE)
    assert [result.index for result in results] == asked
    assert [list(result.isr) for result in results[:-1]] == [[1]] * (count - 1)
    assert results[-1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = await leave_alone(*led[: count + 1])
    assert (refused.error_code, list(refused.topics)) == (ErrorCode.INVALID_REQUEST, [])
    assert present(world.driver.image.topic("t")).partitions[led[count]].isr == (1, 2)


async def test_directories_and_losses_of_many_replicas_are_decided_in_parts_and_answered_in_order(
    world: World,
) -> None:
    count = 3 * ITEMS_AT_ONCE - 1
    server = ControllerHandlers()
    controller_rpc.register(server, world.driver)
    epoch = await world.register()
    beat = BrokerHeartbeatRequest(1, epoch, world.quorum.log_end_offset)
    await world.finish(world.driver.broker_heartbeat(beat))
    await world.finish(world.create("t", partitions=count))
    topic = present(world.driver.image.topic("t"))
    directory = world.driver.image.brokers[1].log_dirs[0]
    indexes = [*range(count), 9999]

    places = [
        pb.ReplicaDirectory(topic_id=topic.id, index=index, directory_id=directory) for index in indexes
    ]
    assign = pb.AssignReplicasToDirsRequest(broker_id=1, broker_epoch=epoch, assignments=places)
    batches = len(world.quorum.batches)
    assigned = pb.AssignReplicasToDirsResponse.FromString(
        await world.finish(server.call("AssignReplicasToDirs", assign))
    )
    assert len(world.quorum.batches) == batches + 3
    assert list(assigned.errors) == [0] * count + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert {it.directories for it in present(world.driver.image.topic("t")).partitions} == {(directory,)}

    lost = [pb.LostReplica(topic_id=topic.id, index=index, leader_epoch=0) for index in indexes]
    report = pb.ReportLostReplicasRequest(broker_id=1, broker_epoch=epoch, partitions=lost)
    reported = pb.ReportLostReplicasResponse.FromString(
        await world.finish(server.call("ReportLostReplicas", report))
    )
    assert [result.index for result in reported.partitions] == indexes
    assert [result.error_code for result in reported.partitions] == [0] * count + [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]


ENDPOINT = pb.Endpoint(name="PLAINTEXT", host="h", port=1)
MEMBER = pb.IsrMember(broker_id=1)
MANY = 30_000


@pytest.mark.parametrize(
    ("method", "request_", "what"),
    [
        ("RegisterBroker", pb.RegisterBrokerRequest(endpoints=[ENDPOINT] * MANY), "1000 endpoints"),
        ("RegisterBroker", pb.RegisterBrokerRequest(features=[pb.Feature()] * MANY), "1000 features"),
        ("RegisterBroker", pb.RegisterBrokerRequest(log_dirs=[b"d" * 16] * MANY), "1000 log directories"),
        ("RegisterController", pb.RegisterControllerRequest(endpoints=[ENDPOINT] * MANY), "1000 endpoints"),
        ("RegisterController", pb.RegisterControllerRequest(features=[pb.Feature()] * MANY), "1000 features"),
        (
            "BrokerHeartbeat",
            pb.BrokerHeartbeatRequest(offline_log_dirs=[b"d" * 16] * MANY),
            "1000 log directories",
        ),
        (
            "BrokerHeartbeat",
            pb.BrokerHeartbeatRequest(cordoned_log_dirs=pb.LogDirs(ids=[b"d" * 16] * MANY)),
            "1000 log directories",
        ),
        ("AlterPartition", pb.AlterPartitionRequest(topics=[pb.AlterPartitionTopic()] * MANY), "500 topics"),
        (
            "AlterPartition",
            pb.AlterPartitionRequest(
                topics=[pb.AlterPartitionTopic(partitions=[pb.AlterPartitionPartition()] * MANY)]
            ),
            "500 partitions",
        ),
        (
            "AlterPartition",
            pb.AlterPartitionRequest(
                topics=[
                    pb.AlterPartitionTopic(partitions=[pb.AlterPartitionPartition(new_isr=[MEMBER] * MANY)])
                ]
            ),
            "25000 members of ISRs",
        ),
        (
            "ReportLostReplicas",
            pb.ReportLostReplicasRequest(partitions=[pb.LostReplica()] * MANY),
            "2250 lost replicas",
        ),
        (
            "AssignReplicasToDirs",
            pb.AssignReplicasToDirsRequest(assignments=[pb.ReplicaDirectory()] * MANY),
            "2250 replicas",
        ),
    ],
)
async def test_a_strangers_long_list_is_refused_before_it_is_read(
    world: World, method: str, request_: Message, what: str
) -> None:
    """Its items are not even valid: none of them has been looked at."""
    server = ControllerHandlers()
    controller_rpc.register(server, world.driver)
    if hasattr(request_, "incarnation_id"):
        request_.incarnation_id = bytes(16)
    response: Any = getattr(pb, f"{method}Response")
    answer = response.FromString(await server.call(method, request_))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message == f"more than {what} in one request"


async def test_errors_are_sent_as_codes_with_a_leader_hint(world: World) -> None:
    server = ControllerHandlers()
    controller_rpc.register(server, world.standby)
    refused = pb.RegisterBrokerResponse.FromString(await server.call("RegisterBroker", wire_registration(1)))
    assert (refused.error_code, refused.leader_id) == (ErrorCode.NOT_CONTROLLER, NODE)
    garbage = await server.handlers["/pykraft.metadata_log.Controller/Forward"](b"\xff")
    assert pb.ForwardResponse.FromString(garbage).error_code == ErrorCode.INVALID_REQUEST
    short = pb.RegisterBrokerRequest(cluster_id="c", broker_id=1, incarnation_id=b"short")
    answer = pb.RegisterBrokerResponse.FromString(await server.call("RegisterBroker", short))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
