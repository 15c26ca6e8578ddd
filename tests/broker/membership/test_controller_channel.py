"""Calls to the active controller: which node is asked, how often, and what the caller gets."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from pykraft.broker.membership.alter_partition import ControllerReports
from pykraft.broker.membership.controller_channel import CATCH_UP_MS
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.controller.calls.requests import IsrMember, LostReplica, PartitionIsrChange
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.runtime.address import Address
from pykraft.runtime.rpc import RpcFailure
from tests.broker.answers import refused
from tests.broker.lifecycle_world import ONE, TWO, World

CALLER = RequestContext(principal="p", client_id="c", client_address="a", listener="l")


def allocate(world: World, timeout_ms: int) -> Coroutine[Any, Any, pb.AllocateProducerIdsResponse]:
    request = pb.AllocateProducerIdsRequest(broker_id=7, broker_epoch=10)
    parse = pb.AllocateProducerIdsResponse.FromString
    return world.channel.call("AllocateProducerIds", request, parse, timeout_ms)


async def test_call_follows_the_controller_through_an_election(world: World) -> None:
    controllers = world.controllers
    controllers.scripts[ONE]["AllocateProducerIds"] = lambda request: pb.AllocateProducerIdsResponse(
        error_code=ErrorCode.NOT_CONTROLLER
    )
    controllers.scripts[TWO] = {
        "AllocateProducerIds": lambda request: pb.AllocateProducerIdsResponse(start=5, length=1000)
    }
    call = asyncio.ensure_future(allocate(world, 10_000))
    await asyncio.sleep(0.3)
    controllers.leader = None
    await asyncio.sleep(1)
    controllers.leader = TWO
    await asyncio.sleep(0.1)
    assert call.done() and call.result().start == 5


async def test_refusal_is_raised_with_the_controllers_code_and_message(world: World) -> None:
    world.controllers.scripts[ONE]["AllocateProducerIds"] = lambda request: pb.AllocateProducerIdsResponse(
        error_code=ErrorCode.STALE_BROKER_EPOCH, error_message="old"
    )
    with pytest.raises(KafkaError) as refusal:
        await allocate(world, 10_000)
    assert (refusal.value.code, refusal.value.message) == (ErrorCode.STALE_BROKER_EPOCH, "old")


async def test_unanswered_call_times_out_and_gives_the_reason(world: World) -> None:
    began_ms = world.clock.monotonic_ms()
    with pytest.raises(KafkaError, match="DEADLINE_EXCEEDED") as refusal:
        await allocate(world, 7000)
    assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert 7000 <= world.clock.monotonic_ms() - began_ms < 7200


async def test_forwarded_request_leaves_a_paused_controller_when_another_one_leads(world: World) -> None:
    controllers = world.controllers
    controllers.scripts = {TWO: {"Forward": lambda request: pb.ForwardResponse(body=request.body)}}
    began_ms = world.clock.monotonic_ms()
    call = asyncio.ensure_future(world.channel.forward(CALLER, 19, 7, b"body", 30_000))
    await asyncio.sleep(2.5)
    controllers.leader = TWO
    assert await call == b"body"
    assert world.clock.monotonic_ms() - began_ms < 3000


async def test_forwarded_request_keeps_its_name_over_all_attempts(world: World) -> None:
    controllers = world.controllers
    answers: list[pb.ForwardResponse | RpcFailure] = [
        pb.ForwardResponse(error_code=ErrorCode.NOT_CONTROLLER),
        RpcFailure("UNAVAILABLE"),
        pb.ForwardResponse(body=b"done"),
        pb.ForwardResponse(body=b"done"),
    ]
    controllers.scripts = {ONE: {"Forward": lambda request: answers.pop(0)}}
    for _ in range(2):
        assert await world.channel.forward(CALLER, 19, 7, b"body", 30_000) == b"done"
    requests = controllers.of("Forward")
    assert [request.attempt for request in requests] == [0, 1, 2, 0]
    names = [request.request_id for request in requests]
    assert names[0] == names[1] == names[2] != names[3]
    assert all(name.startswith(b"incarnation") for name in names), "no other process uses them"


@pytest.mark.parametrize("leader", [ONE, None], ids=["silent", "none"])
async def test_forwarded_request_gives_up_in_the_clients_own_time(
    world: World, leader: Address | None
) -> None:
    world.controllers.leader = leader
    looked_up: list[int] = []

    def own_timeout_ms() -> int:
        looked_up.append(1)
        return 2000

    began_ms = world.clock.monotonic_ms()
    with refused(ErrorCode.REQUEST_TIMED_OUT):
        await world.channel.forward(CALLER, 19, 7, b"body", 30_000, own_timeout_ms=own_timeout_ms)
    assert 2000 <= world.clock.monotonic_ms() - began_ms < 2200
    assert looked_up == [1]
    await asyncio.sleep(0.001)
    assert not world.controllers.waiting, "a controller that resumes would do it after all"


async def test_forwarded_request_is_given_up_with_its_caller(world: World) -> None:
    caller = asyncio.ensure_future(world.channel.forward(CALLER, 19, 7, b"body", 30_000))
    await asyncio.sleep(0.5)
    assert len(world.controllers.waiting) == 1
    caller.cancel()
    await asyncio.wait((caller,))
    await asyncio.sleep(0.001)
    assert not world.controllers.waiting
    await asyncio.sleep(60)
    assert len(world.controllers.of("Forward")) == 1, "and is not tried again"


async def test_forwarded_request_that_is_answered_at_once_is_not_parsed(world: World) -> None:
    def own_timeout_ms() -> int:
        raise AssertionError("decoded")

    world.controllers.scripts = {ONE: {"Forward": lambda request: pb.ForwardResponse(body=b"done")}}
    call = world.channel.forward(CALLER, 19, 7, b"body", 30_000, own_timeout_ms=own_timeout_ms)
    assert await call == b"done"


async def test_answer_waits_until_the_node_has_the_metadata_that_it_is_based_on(world: World) -> None:
    answer = pb.ForwardResponse(body=b"done", metadata_end_offset=21)
    world.controllers.scripts = {ONE: {"Forward": lambda request: answer}}
    world.metadata_end_offset = 19
    call = asyncio.ensure_future(world.channel.forward(CALLER, 20, 6, b"body", 30_000))
    await asyncio.sleep(0.1)
    assert not call.done()
    world.metadata_end_offset = 20
    await asyncio.sleep(0.1)
    assert not call.done()
    world.metadata_end_offset = 21
    await asyncio.sleep(0.005)
    assert call.done() and call.result() == b"done"


@pytest.mark.parametrize(("behind", "waited_ms"), [(1, CATCH_UP_MS), (0, 0), (-5, 0)])
async def test_node_that_is_far_behind_keeps_no_answer_back_for_long(
    world: World, behind: int, waited_ms: int
) -> None:
    world.metadata_end_offset = 100
    answer = pb.ForwardResponse(body=b"done", metadata_end_offset=100 + behind)
    world.controllers.scripts = {ONE: {"Forward": lambda request: answer}}
    began_ms = world.clock.monotonic_ms()
    assert await world.channel.forward(CALLER, 20, 6, b"body", 30_000) == b"done"
    assert waited_ms <= world.clock.monotonic_ms() - began_ms <= waited_ms + 10


async def test_controller_that_names_no_metadata_is_not_waited_for(world: World) -> None:
    """One of an earlier version."""
    world.controllers.scripts = {ONE: {"Forward": lambda request: pb.ForwardResponse(body=b"done")}}
    began_ms = world.clock.monotonic_ms()
    assert await world.channel.forward(CALLER, 20, 6, b"body", 30_000) == b"done"
    assert world.clock.monotonic_ms() - began_ms < 10


async def test_isr_proposals_travel_in_one_request_and_each_comes_back_with_its_answer(world: World) -> None:
    one, two = Uuid(b"1" * 16), Uuid(b"2" * 16)
    members = (IsrMember(7, 10), IsrMember(8, 12))
    changes = [
        PartitionIsrChange(one, 3, 4, 5, members),
        PartitionIsrChange(two, 0, 1, 1, members),
        PartitionIsrChange(one, 0, 2, 2, (IsrMember(7, 10),)),
    ]
    await world.driver.register()

    def alter(request: pb.AlterPartitionRequest) -> pb.AlterPartitionResponse:
        taken = pb.AlterPartitionPartitionResult(
            index=3, leader=7, leader_epoch=4, isr=[7, 8], partition_epoch=6
        )
        refused = pb.AlterPartitionPartitionResult(index=0, error_code=ErrorCode.INELIGIBLE_REPLICA)
        return pb.AlterPartitionResponse(
            topics=[
                pb.AlterPartitionTopicResult(topic_id=two, partitions=[refused]),
                pb.AlterPartitionTopicResult(topic_id=one, partitions=[taken]),
            ]
        )

    world.controllers.scripts[ONE]["AlterPartition"] = alter
    port = ControllerReports(7, world.lifecycle, world.channel)
    taken, refused, forgotten = await port.alter_partitions(changes)
    (request,) = world.controllers.of("AlterPartition")
    assert (request.broker_id, request.broker_epoch) == (7, 10)
    assert [(topic.topic_id, [it.index for it in topic.partitions]) for topic in request.topics] == [
        (one, [3, 0]),
        (two, [0]),
    ]
    sent = request.topics[0].partitions[0]
    assert (sent.index, sent.leader_epoch, sent.partition_epoch) == (3, 4, 5)
    assert [(m.broker_id, m.broker_epoch) for m in sent.new_isr] == [(7, 10), (8, 12)]
    assert taken.error is ErrorCode.NONE
    assert (taken.leader, taken.leader_epoch, taken.isr, taken.partition_epoch) == (7, 4, (7, 8), 6)
    assert refused.error is ErrorCode.INELIGIBLE_REPLICA
    assert forgotten.error is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_report_of_lost_replicas_carries_their_leader_epochs(world: World) -> None:
    one = Uuid(b"1" * 16)
    await world.driver.register()
    world.controllers.scripts[ONE]["ReportLostReplicas"] = lambda _request: pb.ReportLostReplicasResponse(
        partitions=[
            pb.LostReplicaResult(topic_id=one, index=3, partition_epoch=9),
            pb.LostReplicaResult(topic_id=one, index=0, error_code=ErrorCode.FENCED_LEADER_EPOCH),
        ]
    )
    port = ControllerReports(7, world.lifecycle, world.channel)
    taken, refused = await port.report_lost_replicas([LostReplica(one, 3, 4), LostReplica(one, 0, 0)])
    (request,) = world.controllers.of("ReportLostReplicas")
    assert (request.broker_id, request.broker_epoch) == (7, 10)
    sent = [(lost.topic_id, lost.index, lost.leader_epoch) for lost in request.partitions]
    assert sent == [(one, 3, 4), (one, 0, 0)]
    assert (taken.error, taken.partition_epoch) == (ErrorCode.NONE, 9)
    assert refused.error is ErrorCode.FENCED_LEADER_EPOCH


async def test_refused_calls_are_retried_ever_more_rarely_until_another_node_leads(world: World) -> None:
    def refuse(request: pb.AllocateProducerIdsRequest) -> pb.AllocateProducerIdsResponse:
        return pb.AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)

    world.controllers.scripts[ONE]["AllocateProducerIds"] = refuse
    world.controllers.scripts[TWO] = {
        "AllocateProducerIds": lambda request: pb.AllocateProducerIdsResponse(start=5, length=1)
    }
    call = asyncio.ensure_future(allocate(world, 60_000))
    await asyncio.sleep(20)
    asked_ms = [at_ms for at_ms, _, method, _ in world.controllers.seen if method == "AllocateProducerIds"]
    assert 20 <= len(asked_ms) <= 45, "once a second or less often, after a few quick attempts"
    world.controllers.leader = TWO
    await asyncio.sleep(0.1)
    assert call.done(), "another node that leads is asked at once"
    assert (await call).start == 5
