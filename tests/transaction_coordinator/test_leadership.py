"""A transaction coordinator begins, is confirmed, is replaced, and loses touch with the controller."""

import asyncio

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import ListTransactionsRequest
from tests.transaction_coordinator.service_world import NAME, World
from tests.waits import settle


async def prepare(world: World, *names: str) -> None:
    """Transactions that are decided, and whose markers are held back."""
    world.leaders.open.clear()
    for name in names:
        producer = await world.begin(name=name)
        assert await world.add(producer, name=name) == 0
        assert await world.end(producer, name=name) == 0


@pytest.mark.parametrize("slice_records", [30, 1_000])
async def test_new_coordinator_ends_all_transactions_that_were_decided_before(
    world: World, slice_records: int
) -> None:
    names = [f"id-{number}" for number in range(250)]
    await prepare(world, "ended")
    world.leaders.open.set()
    await world.add(await world.begin(name="open"), name="open")
    await settle()
    world.leaders.written.clear()
    await prepare(world, *names)
    world.writer.read_slice = slice_records
    await world.fail_over(4)
    await asyncio.sleep(1)
    assert not world.leaders.written
    world.leaders.open.set()
    await asyncio.sleep(1)
    assert sorted(value.transactional_id for value, _ in world.leaders.written) == sorted(names)
    assert {epoch for _, epoch in world.leaders.written} == {4}
    assert {await world.state(name) for name in names} == {"CompleteCommit"}
    assert [await world.state(name) for name in ("ended", "open")] == ["CompleteCommit", "Ongoing"]


async def test_markers_wait_until_what_the_new_coordinator_has_read_is_committed(world: World) -> None:
    await prepare(world, "a", "b", "c")
    committed = len(world.writer.logs[0])
    await prepare(world, "late")
    world.writer.watermarks[0] = committed
    world.leaders.open.set()
    await world.fail_over(4)
    await asyncio.sleep(1)
    assert not world.leaders.written, "none of it is known to be committed"
    world.replicas_catch_up()
    await settle()
    assert len(world.leaders.written) == 4


async def test_leader_that_is_confirmed_goes_on_as_it_is(world: World) -> None:
    """The same epoch again, or an older one: nothing is read again, and nothing that waits is refused."""
    ending = await world.end_without_replicas()
    world.writer.read_gate = asyncio.Event()  # to read now would take for ever
    for epoch in (3, 2):
        world.service.on_elected(0, epoch)
        await settle()
        assert not ending.done() and world.service.leads(0)
    world.writer.hold = False
    world.replicas_catch_up()
    assert await ending == 0 and await world.state() == "CompleteCommit"


async def test_leader_is_confirmed_while_it_loads(world: World) -> None:
    await world.begin()
    await world.service.stop()
    world.service = world.make_service()
    world.writer.read_gate = asyncio.Event()
    before = world.writer.reads
    await world.lead(4)
    world.service.on_elected(0, 4)
    world.writer.read_gate.set()
    await settle()
    assert await world.state() == "Empty"
    assert world.writer.reads == before + 2, "a log of one slice is read once, with a look at its end"


async def test_newer_epoch_reads_everything_again_and_refuses_what_waits(world: World) -> None:
    ending = await world.end_without_replicas()
    world.service.on_elected(0, 5)
    assert await ending == ErrorCode.NOT_COORDINATOR
    await settle()
    world.writer.hold = False
    world.replicas_catch_up()
    await settle()
    assert [epoch for _, epoch in world.leaders.written] == [5]
    assert await world.state() == "CompleteCommit"


async def test_coordinator_that_resigned_coordinates_nothing(world: World) -> None:
    producer = await world.begin()
    await world.add(producer)
    world.leaders.open.clear()
    await world.end(producer)
    await settle()
    world.service.on_resigned(0)
    assert not world.service.leads(0)
    world.leaders.open.set()
    await asyncio.sleep(1)
    assert not world.leaders.written, "its successor writes them"
    with pytest.raises(KafkaError) as refused:
        await world.begin()
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    world.service.on_resigned(0)  # once more
    assert (await world.service.list_transactions(ListTransactionsRequest(), 0)).transaction_states == []


async def test_reader_waits_for_the_lease_but_not_as_long_as_for_replicas(world: World) -> None:
    await world.begin()
    world.expire_lease()
    reading = asyncio.ensure_future(world.state())
    await asyncio.sleep(4)
    assert not reading.done()
    await asyncio.sleep(2)
    assert reading.done() and await reading == "", "COORDINATOR_NOT_AVAILABLE"
    reading = asyncio.ensure_future(world.state())
    await asyncio.sleep(4)
    world.regain_lease()
    assert await reading == "Empty"


async def test_past_the_lease_only_what_has_records_is_decided(world: World) -> None:
    producer = await world.begin()
    await world.add(producer, 0)
    world.expire_lease()
    assert await world.add(producer, 1) == 0, "its record tells whether it counts"
    assert await world.add(producer, 0) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await world.end(producer) == 0
    await settle()
    assert await world.end(producer) == ErrorCode.COORDINATOR_NOT_AVAILABLE, "an error may be wrong"
    world.lease.end_ms = None  # it knows that it is fenced
    with pytest.raises(KafkaError) as refused:
        await world.begin(name="other")
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.regain_lease()
    assert await world.end(producer) == 0, "the retry"


async def test_nothing_is_aborted_or_forgotten_past_the_lease(world: World) -> None:
    producer = await world.begin(timeout_ms=5_000)
    await world.add(producer)
    world.expire_lease()
    await asyncio.sleep(60)
    records = len(world.writer.logs[0])
    world.regain_lease()
    assert await world.state() == "Ongoing"
    await asyncio.sleep(30)
    assert len(world.writer.logs[0]) > records and await world.state() == "CompleteAbort"


async def test_decision_is_not_answered_for_ever(world: World) -> None:
    world.writer.hold = True
    beginning = asyncio.ensure_future(world.begin())
    await asyncio.sleep(29)
    assert not beginning.done()
    await asyncio.sleep(2)
    with pytest.raises(KafkaError) as late:
        await beginning
    assert late.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.writer.hold = False
    world.replicas_catch_up()
    assert await world.state(NAME) == "Empty", "what was decided stands"


async def test_walk_over_transactions_ends_with_the_leadership(world: World) -> None:
    hosted = world.service._runtime._hosted[0]
    walk = hosted.walk = asyncio.get_running_loop().create_task(asyncio.sleep(3600))
    world.service.on_resigned(0)
    await settle()
    assert walk.cancelled()


async def test_records_have_the_version_of_the_finalized_feature_and_of_none_before(world: World) -> None:
    await world.begin(name="before")
    world.upgrade()
    await world.begin(name="after")
    values = [value for _, value in world.writer.logs[0] if value]
    assert [int.from_bytes(value[:2], "big") for value in (values[0], values[-1])] == [0, 1]
