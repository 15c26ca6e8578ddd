"""A decision that takes many turns: nothing else is decided meanwhile, and it counts whole or not at all.

The slices are made small, so that a topic of some partitions takes many.
"""

import asyncio
import sys

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.codec import decode_record
from pykraft.metadata_log.controller import driver, elections
from pykraft.metadata_log.controller.calls.request_parts import PART_COST
from pykraft.metadata_log.controller.calls.requests import LostReplica, ReportLostReplicasRequest
from pykraft.metadata_log.controller.driver import ITEMS_AT_ONCE
from pykraft.metadata_log.records import PartitionRecord, RegisterBrokerRecord, TopicRecord
from pykraft.quorum.listener import CommittedBatch
from tests.metadata_log.controller.test_controller_driver import with_a_broker
from tests.metadata_log.driver_world import NODE, World, registration
from tests.narrowing import as_type, present
from tests.waits import settle, until_now

MANY = PART_COST + 20


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elections, "_NEW_AT_ONCE", 50)
    monkeypatch.setattr(driver, "RECORDS_AT_ONCE", 10)
    monkeypatch.setattr(sys.modules["pykraft.metadata_log.replay"], "RECORDS_AT_ONCE", 10)


def create(world: World, *names: str, partitions: int = MANY) -> asyncio.Task[CreateTopicsResponse]:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return start(world, CreateTopicsRequest(topics=topics))


def start(world: World, request: CreateTopicsRequest) -> asyncio.Task[CreateTopicsResponse]:
    async def answer() -> CreateTopicsResponse:
        return as_type(await world.driver.answer(RequestContext(), request, 30_000), CreateTopicsResponse)

    return asyncio.ensure_future(answer())


async def until_deciding(world: World, slices: int = 20) -> None:
    """So many slices of the one decision have run: it is being made, encoded, or replayed."""
    await until_now(world.driver._deciding.locked)
    for _ in range(slices):
        await asyncio.sleep(0)
    assert world.driver._deciding.locked()


def kinds(batches: list[CommittedBatch]) -> list[str]:
    """What each batch begins with."""
    names = []
    for batch in batches:
        match decode_record(batch.values[0]) if batch.values else None:
            case TopicRecord(name=name):
                names.append(name)
            case RegisterBrokerRecord(broker_id=broker_id):
                names.append(f"broker {broker_id}")
            case PartitionRecord(partition_id=index):
                names.append(f"from {index}")
            case other:
                names.append(type(other).__name__)
    return names


@pytest.mark.parametrize("partitions", [PART_COST - 20, MANY], ids=["short", "long"])
async def test_nothing_is_decided_between_slices_and_a_broker_waits_for_one_client_only(
    world: World, partitions: int
) -> None:
    await with_a_broker(world)
    before = len(world.quorum.batches)
    tasks = [create(world, name, partitions=partitions) for name in ("t", "u", "v")]
    await until_deciding(world)
    broker = asyncio.ensure_future(world.driver.register_broker(registration(2)))
    await world.finish(asyncio.wait([*tasks, broker]))
    assert kinds(world.quorum.batches[before:]) == ["t", "broker 2", "u", "v"]
    for task in tasks:
        assert [topic.num_partitions for topic in task.result().topics] == [partitions]
    assert len(present(world.driver.image.topic("v")).partitions) == partitions


async def test_broker_waits_for_one_client_only_before_each_part_of_its_request(world: World) -> None:
    await with_a_broker(world)
    before = len(world.quorum.batches)
    clients = [create(world, f"t{number}") for number in range(20)]
    await until_deciding(world)
    parts = 4
    lost = tuple(LostReplica(Uuid(b"x" * 16), index, None) for index in range(parts * ITEMS_AT_ONCE))
    epoch = world.driver.image.brokers[1].epoch
    request = ReportLostReplicasRequest(1, epoch, lost)
    broker = asyncio.ensure_future(world.driver.report_lost_replicas(request))
    appended: list[int] = []
    broker.add_done_callback(lambda _: appended.append(len(world.quorum.batches) - before))
    await world.finish(asyncio.wait([*clients, broker]))
    assert appended[0] <= parts + 2, "topics of clients"


async def test_topic_grows_in_one_batch(world: World) -> None:
    await with_a_broker(world)
    await world.finish(world.create("t", partitions=3))
    before = len(world.quorum.batches)
    wanted = CreatePartitionsTopic(name="t", count=3 + MANY, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted])
    answer = await world.finish(world.driver.answer(RequestContext(), request, 30_000))
    assert [topic.error_code for topic in as_type(answer, CreatePartitionsResponse).results] == [0]
    assert kinds(world.quorum.batches[before:]) == ["from 3"]
    assert len(present(world.driver.committed_image.topic("t")).partitions) == 3 + MANY


@pytest.mark.parametrize("slices", [20, 80, 130])
@pytest.mark.parametrize("leader_id", [NODE, 2])
async def test_decision_ends_with_the_epoch_it_began_in_and_appends_nothing(
    world: World, leader_id: int, slices: int
) -> None:
    """Also if this node leads the next one: what it has prepared would not fit the log."""
    await with_a_broker(world)
    task = create(world, "t")
    await until_deciding(world, slices)
    world.quorum.elect(leader_id, 2)
    after = len(world.quorum.batches)
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        await task
    assert len(world.quorum.batches) == after and not world.fatal
    assert not world.driver.image.topic_ids and not world.driver._deciding.locked()


@pytest.mark.parametrize("slices", [20, 80, 130])
async def test_decision_fits_the_log_though_the_quorum_has_appended_meanwhile(
    world: World, slices: int
) -> None:
    await with_a_broker(world)
    task = create(world, "t")
    await until_deciding(world, slices)
    offset = world.quorum.log_end_offset
    world.quorum.batches.append(CommittedBatch(offset, offset, 1, 0, ()))
    world.quorum.commit()
    answer = await world.finish(asyncio.wait_for(task, 60))
    assert [topic.error_code for topic in answer.topics] == [0]
    assert world.driver.image.offset == offset + 1 + MANY
    await world.register(2)


async def test_answer_that_rests_on_a_batch_in_pieces_waits_for_the_last(world: World) -> None:
    await with_a_broker(world)
    first, before = create(world, "t"), len(world.quorum.batches)
    await until_now(lambda: len(world.quorum.batches) > before)
    pieces = world.quorum.commit_in_pieces()
    next(pieces)
    second = create(world, "t", partitions=1)
    await settle()
    assert not first.done() and not second.done() and not world.driver.committed_image.topic_ids
    for _ in pieces:
        await settle()
    codes = [one.error_code for task in (first, second) for one in (await task).topics]
    assert codes == [0, ErrorCode.TOPIC_ALREADY_EXISTS]


async def test_caller_that_goes_away_leaves_nothing_behind(world: World) -> None:
    await with_a_broker(world)
    task, before = create(world, "t"), len(world.quorum.batches)
    await until_deciding(world)
    task.cancel()
    await world.register(2)
    assert kinds(world.quorum.batches[before:]) == ["broker 2"]


async def test_topic_whose_last_assignment_is_wrong_leaves_no_record(world: World) -> None:
    await with_a_broker(world)

    def topic(name: str, last: int) -> CreatableTopic:
        brokers = [1] * 29 + [last]
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=[broker_id])
            for index, broker_id in enumerate(brokers)
        ]
        return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)

    task = start(world, CreateTopicsRequest(topics=[topic("t", 1), topic("bad", 9), topic("u", 1)]))
    answer = await world.finish(asyncio.wait_for(task, 60))
    codes = {one.name: one.error_code for one in answer.topics}
    assert codes == {"t": 0, "bad": ErrorCode.INVALID_REPLICA_ASSIGNMENT, "u": 0}
    (batch,) = (batch for batch in world.quorum.batches if len(batch.values) > 30)
    assert len(batch.values) == 2 * 31
