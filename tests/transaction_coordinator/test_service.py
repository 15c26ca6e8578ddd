"""The transaction coordinator as brokers use it: when answers and markers are due, in virtual time."""

import asyncio

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE
from pykraft.runtime.paced import paced
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from pykraft.runtime.turns import TURN_US, TurnBudget
from pykraft.transaction_coordinator.requests.list_transactions import MAX_STATES
from pykraft.transaction_coordinator.service import TransactionCoordinatorService
from tests.broker.answers import as_read
from tests.broker.slices import turns_of
from tests.group_coordinator.tools import make_image
from tests.transaction_coordinator.service_world import NAME, World
from tests.waits import settle

DAY_MS = 86_400_000


async def test_a_transaction_is_complete_once_its_markers_are_written(world: World) -> None:
    producer = await world.begin()
    assert (producer.producer_id, producer.producer_epoch) == (1_000, 0)
    assert [await world.add(producer, 0), await world.add(producer, 1)] == [0, 0]
    world.leaders.open.clear()
    assert await world.end(producer) == 0
    assert await world.state() == "PrepareCommit"
    assert await world.add(producer) == ErrorCode.CONCURRENT_TRANSACTIONS
    world.leaders.open.set()
    await settle()
    assert await world.state() == "CompleteCommit"
    ((prepared, epoch),) = world.leaders.written
    assert (prepared.partitions, epoch) == (frozenset({("t", 0), ("t", 1)}), 3)
    assert await world.add(producer) == 0


async def test_neither_answer_nor_marker_leaves_before_the_decision_is_committed(world: World) -> None:
    ending = await world.end_without_replicas()
    assert not ending.done() and not world.leaders.written
    world.writer.hold = False
    world.replicas_catch_up()
    assert await ending == 0
    await settle()
    assert len(world.leaders.written) == 1
    assert await world.state() == "CompleteCommit"


async def test_a_decision_that_is_lost_with_the_leadership_writes_no_marker(world: World) -> None:
    ending = await world.end_without_replicas()
    del world.writer.logs[0][-1]  # the next leader does not have it
    await world.fail_over(4)
    assert await ending == ErrorCode.NOT_COORDINATOR
    world.writer.hold = False
    assert await world.state() == "Ongoing"
    assert not world.leaders.written


async def test_a_new_coordinator_writes_the_markers_that_it_finds_due(world: World) -> None:
    producer = await world.begin()
    await world.add(producer)
    world.leaders.open.clear()
    assert await world.end(producer, committed=False) == 0
    await world.fail_over(4)
    world.leaders.open.set()
    await settle()
    assert await world.state() == "CompleteAbort"
    assert [epoch for _, epoch in world.leaders.written] == [4]


async def test_a_coordinator_that_was_replaced_leaves_the_transaction_to_its_successor(world: World) -> None:
    producer = await world.begin()
    await world.add(producer)
    world.leaders.refuses = True
    assert await world.end(producer) == 0
    await settle()
    assert await world.state() == "PrepareCommit"


async def test_completion_is_written_again_until_it_can_be(world: World) -> None:
    producer = await world.begin()
    await world.add(producer)
    world.leaders.open.clear()
    await world.end(producer)
    world.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    world.leaders.open.set()
    await asyncio.sleep(1)
    assert await world.state() == "PrepareCommit"
    world.writer.refuse = None
    await asyncio.sleep(1)
    assert await world.state() == "CompleteCommit"
    assert len(world.leaders.written) == 1


async def test_a_transaction_that_is_open_for_too_long_is_aborted(world: World) -> None:
    producer = await world.begin(timeout_ms=5_000)
    await world.add(producer)
    await asyncio.sleep(4)
    assert await world.state() == "Ongoing"
    await asyncio.sleep(12)
    assert await world.state() == "CompleteAbort"
    assert await world.end(producer) == ErrorCode.PRODUCER_FENCED


async def test_an_id_that_nobody_uses_is_forgotten(world: World) -> None:
    await world.begin()
    await asyncio.sleep(6 * DAY_MS / 1000)
    assert await world.state() == "Empty"
    await asyncio.sleep(DAY_MS / 1000 + 3_700)
    assert await world.state() == ""
    await world.fail_over(4)
    listed = await world.service.list_transactions(ListTransactionsRequest(), 0)
    assert listed.transaction_states == []


async def test_a_second_producer_fences_the_first(world: World) -> None:
    old = await world.begin()
    await world.add(old)
    assert (await world.begin()).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    await settle()
    new = await world.begin()
    assert (new.producer_id, new.producer_epoch) == (old.producer_id, 2)
    assert await world.end(old) == ErrorCode.PRODUCER_FENCED
    ((prepared, _),) = world.leaders.written
    assert (prepared.producer_epoch, prepared.state.label) == (1, "PrepareAbort")


@pytest.mark.world(leads=False)
async def test_requests_of_a_broker_that_does_not_lead_or_still_loads(world: World) -> None:
    with pytest.raises(KafkaError) as refused:
        await world.begin()
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    world.writer.read_gate = asyncio.Event()
    await world.lead()
    with pytest.raises(KafkaError) as refused:
        await world.begin()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.writer.read_gate.set()
    await settle()
    assert (await world.begin()).error_code == 0


async def test_without_a_new_producer_id_nothing_changes(world: World) -> None:
    world.ids.refuse = ErrorCode.REQUEST_TIMED_OUT
    with pytest.raises(KafkaError):
        await world.begin()
    assert world.writer.logs.get(0, []) == []
    world.ids.refuse = None
    assert (await world.begin()).producer_epoch == 0


async def test_requests_with_very_many_ids_leave_turns_to_others(world: World) -> None:
    producer = await world.begin()
    await world.add(producer, 0)
    names = [f"id-{number}" for number in range(5_000)]
    described = world.service.describe_transactions(
        DescribeTransactionsRequest(transactional_ids=[*names, NAME]), 0
    )
    assert (await turns_of(described))[1] >= 20
    asked = [
        AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            verify_only=True,
            topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        for name in [*names, NAME]
    ]
    added, turns = await turns_of(
        world.service.add_partitions(AddPartitionsToTxnRequest(transactions=asked), 5)
    )
    assert turns >= 20
    results = added.results_by_transaction
    assert [one.transactional_id for one in results] == [*names, NAME]
    codes = {one.topic_results[0].results_by_partition[0].partition_error_code for one in results}
    assert codes == {ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING}


async def test_transaction_that_cannot_be_aborted_keeps_no_other_open(world: World) -> None:
    names = [f"id-{number}" for number in range(20)]
    too_large = "a" * 3_000  # the walk comes to it first: of the same deadline, by name
    for name in [too_large, *names]:
        producer = await world.begin(timeout_ms=5_000, name=name)
        assert await world.add(producer, name=name) == 0
    world.writer.max_bytes = 2_000  # max.message.bytes was lowered
    await asyncio.sleep(20)
    assert {await world.state(name) for name in names} == {"CompleteAbort"}
    assert await world.state(too_large) == "Ongoing"
    world.writer.max_bytes = 1_000_000
    await asyncio.sleep(20)
    assert await world.state(too_large) == "CompleteAbort"


async def test_record_of_an_open_transaction_leaves_room_for_that_of_its_end(world: World) -> None:
    """Otherwise nobody could ever end it, and readers of its partitions would wait for ever."""
    producer = await world.begin(timeout_ms=5_000)
    for max_bytes in range(100, 300):
        world.writer.max_bytes = max_bytes
        try:
            await world.add(producer)
        except KafkaError as error:
            assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        if await world.state() == "Ongoing":
            break
    assert await world.state() == "Ongoing"
    world.upgrade()
    await asyncio.sleep(20)
    assert await world.state() == "CompleteAbort"


PARTITIONS = 6_000


class BusyWorld(World):
    """Each look at the clock shows half of a turn more."""

    now_us = 0

    def make_service(self) -> TransactionCoordinatorService:
        self.turns = TurnBudget(asyncio.get_running_loop().call_soon, self._look)
        service = super().make_service()
        image = make_image({"t": PARTITIONS, "__transaction_state": 1})
        service.on_metadata(MetadataDelta(EMPTY_IMAGE, image), image)
        return service

    def _look(self) -> int:
        self.now_us += TURN_US // 2
        return self.now_us


@pytest.mark.parametrize("beyond", [0, 1])
@pytest.mark.loop(new=VirtualLoop)
async def test_partitions_of_one_transaction_are_looked_up_over_several_turns_and_added_together(
    beyond: int,
) -> None:
    world = BusyWorld()
    await world.lead()
    producer = await world.begin()
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=NAME,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(range(PARTITIONS + beyond)))],
    )
    sizes = set()

    def look(turn: int = 0) -> None:
        (state,) = world.service.states()
        sizes.add(len(state.transactions[NAME].partitions))

    added, turns = await turns_of(world.service.add_partitions(request, 3), look)
    look()
    assert turns > PARTITIONS // 500
    (topic,) = added.results_by_topic_v3_and_below
    codes = [one.partition_error_code for one in topic.results_by_partition]
    if beyond:
        expected = [ErrorCode.OPERATION_NOT_ATTEMPTED] * PARTITIONS
        assert codes == [*expected, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert sizes == {0}
    else:
        assert codes == [ErrorCode.NONE] * PARTITIONS
        assert sizes == {0, PARTITIONS}, "all of them or none"
    await world.service.stop()


async def test_transaction_that_is_named_twice_is_described_twice(world: World) -> None:
    producer = await world.begin()
    await world.add(producer)
    names = [NAME, "none", NAME, ""]
    response = await world.service.describe_transactions(
        DescribeTransactionsRequest(transactional_ids=[*names]), 0
    )
    described = as_read(response, 0).transaction_states
    assert [one.transactional_id for one in described] == names
    assert [one.error_code for one in described] == [
        ErrorCode.NONE,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [len(one.topics) for one in described] == [1, 0, 1, 0]


async def test_more_names_of_states_than_there_are_is_refused(world: World) -> None:
    names = [f"state-{number}" for number in range(MAX_STATES)]
    response = await world.service.list_transactions(ListTransactionsRequest(state_filters=names), 0)
    assert response.unknown_state_filters == names
    with pytest.raises(KafkaError) as refused:
        await world.service.list_transactions(ListTransactionsRequest(state_filters=[*names, "Empty"]), 0)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("found", [False, True])
async def test_walk_over_very_many_ids_leaves_turns_to_others(found: bool) -> None:
    async def walk() -> list[int]:
        steps = (number if found else None for number in range(2_600))
        return [one async for one in paced(steps)]

    walked, turns = await turns_of(walk())
    assert turns > 5
    assert walked == (list(range(2_600)) if found else [])
