"""What is under way at a transaction coordinator when something else happens, in virtual time."""

import asyncio
from collections.abc import Sequence

import pytest

from pykraft.coordinator.writer import BatchBody
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
)
from pykraft.transaction_coordinator.requests.init_producer_id import handle_init_producer_id
from tests.transaction_coordinator.service_world import NAME, Log, World
from tests.waits import settle

DAY_S = 86_400


async def open_transactions(world: World, *names: str) -> dict[str, InitProducerIdResponse]:
    producers = {}
    for name in names:
        producers[name] = await world.begin(name=name)
        assert await world.add(producers[name], name=name) == 0
    return producers


async def test_all_decisions_that_become_committed_together_get_their_markers(world: World) -> None:
    producers = await open_transactions(world, "a", "b", "c")
    world.writer.hold = True
    ending = []
    for name, producer in producers.items():
        ending.append(asyncio.ensure_future(world.end(producer, name=name)))
        await settle()  # each in a batch of its own
    assert not world.leaders.written
    world.writer.hold = False
    world.replicas_catch_up()
    assert await asyncio.gather(*ending) == [0, 0, 0]
    await settle()
    assert sorted(value.transactional_id for value, _ in world.leaders.written) == ["a", "b", "c"]
    assert not world.service._runtime._hosted[0].completing, "nothing is kept of what is complete"


async def test_of_two_ends_that_arrive_together_the_first_decides(world: World) -> None:
    (producer,) = (await open_transactions(world, NAME)).values()
    ends = [world.end(producer, committed=committed) for committed in (False, True, False)]
    codes = await asyncio.gather(*ends)
    assert codes[0] == 0 and codes[1] == ErrorCode.INVALID_TXN_STATE
    assert codes[2] == ErrorCode.CONCURRENT_TRANSACTIONS
    await settle()
    assert await world.state() == "CompleteAbort"
    assert len(world.leaders.written) == 1


async def test_two_producers_that_begin_together_are_told_apart(world: World) -> None:
    first, second = await asyncio.gather(world.begin(), world.begin())
    assert first.producer_id == second.producer_id
    assert (first.producer_epoch, second.producer_epoch) == (0, 1)
    assert await world.add(first) == ErrorCode.PRODUCER_FENCED
    assert await world.add(second) == 0


async def test_what_is_decided_and_not_yet_written_when_the_leadership_ends_has_not_happened(
    world: World,
) -> None:
    beginning = asyncio.ensure_future(world.begin())
    await asyncio.sleep(0)
    hosted = world.service._runtime._hosted[0]
    assert hosted.shard.has_staged and not world.writer.logs.get(0)
    world.service.on_resigned(0)
    with pytest.raises(KafkaError) as refused:
        await asyncio.wait_for(beginning, 1)
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    await settle()
    assert not world.writer.logs.get(0), "its successor writes there"
    await world.lead(4)
    assert await world.state() == ""


async def test_readers_that_wait_for_the_lease_are_all_answered_when_it_is_renewed(world: World) -> None:
    await world.begin()
    world.expire_lease()
    reading = [asyncio.ensure_future(world.state()) for _ in range(3)]
    await asyncio.sleep(2)
    assert not any(one.done() for one in reading)
    world.regain_lease()
    assert await asyncio.wait_for(asyncio.gather(*reading), 1) == ["Empty"] * 3


async def test_reader_that_waits_for_the_lease_is_sent_away_when_the_leadership_ends(world: World) -> None:
    await world.begin()
    world.expire_lease()
    request = ListTransactionsRequest()
    reading = asyncio.ensure_future(world.service.list_transactions(request, 0))
    await asyncio.sleep(1)
    assert not reading.done()
    world.service.on_resigned(0)
    answer = await asyncio.wait_for(reading, 1)
    assert answer.transaction_states == [], "those of this partition are listed by their new coordinator"


async def test_decision_that_could_not_be_written_is_carried_out_once_when_it_is_repeated(
    world: World,
) -> None:
    (producer,) = (await open_transactions(world, NAME)).values()
    world.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert await world.end(producer) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await settle()
    assert await world.state() == "Ongoing" and not world.leaders.written
    world.writer.refuse = None
    assert await world.end(producer) == 0
    await settle()
    assert len(world.leaders.written) == 1
    assert await world.state() == "CompleteCommit"


async def test_none_of_many_waits_longer_than_the_first_when_replicas_are_gone(world: World) -> None:
    world.writer.hold = True
    waiting = [asyncio.ensure_future(world.begin(name=f"id-{number}")) for number in range(20)]
    await asyncio.sleep(29)
    assert not any(one.done() for one in waiting)
    await asyncio.sleep(2)
    answers = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 0.1)
    assert all(isinstance(one, KafkaError) for one in answers)


@pytest.mark.world(leads=False)
async def test_coordinator_that_stops_sends_everybody_away(world: World) -> None:
    for partition in range(3):
        world.service.on_elected(partition, 1)
    await settle()
    world.writer.hold = True

    async def begin(partition: int) -> object:
        """As :meth:`World.begin`, of an id of this partition."""
        return await world.service._runtime.decide(
            partition,
            lambda state, call: handle_init_producer_id(
                state, InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=1_000), call
            ),
            world.service._runtime.call(4),
        )

    waiting = [asyncio.ensure_future(begin(partition)) for partition in (0, 1, 2) for _ in range(2)]
    await settle()
    await world.service.stop()
    answers = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 1)
    assert [getattr(one, "code", None) for one in answers] == [ErrorCode.NOT_COORDINATOR] * 6


async def test_load_goes_on_when_its_log_can_be_read_again(world: World) -> None:
    class BadLog(Log):
        failures = 3

        async def read(self, partition: int, start_offset: int) -> tuple[Sequence[BatchBody], int]:
            if start_offset and self.failures:
                self.failures -= 1
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
            return await super().read(partition, start_offset)

    names = [f"id-{number}" for number in range(5)]
    await open_transactions(world, *names)
    bad = BadLog(logs=world.writer.logs, watermarks=world.writer.watermarks, read_slice=2)
    await world.service.stop()
    world.writer = bad
    world.service = world.make_service()
    await world.lead(4)
    with pytest.raises(KafkaError) as refused:
        await world.begin()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await asyncio.sleep(3)
    assert {await world.state(name) for name in names} == {"Ongoing"}
    assert bad.failures == 0


async def test_load_for_an_epoch_that_is_over_begins_nothing(world: World) -> None:
    (producer,) = (await open_transactions(world, NAME)).values()
    world.leaders.open.clear()
    assert await world.end(producer) == 0
    await world.service.stop()
    world.service = world.make_service()
    world.leaders.open.set()
    gate = world.writer.read_gate = asyncio.Event()
    await world.lead(4)
    world.service.on_elected(0, 6)
    await settle()
    gate.set()
    await settle()
    assert [epoch for _, epoch in world.leaders.written] == [6]
    assert await world.state() == "CompleteCommit"


async def test_all_ids_that_nobody_uses_are_forgotten_and_no_other(world: World) -> None:
    unused = [f"id-{number:03}" for number in range(250)]
    for name in [*unused, "used", "open"]:
        await world.begin(name=name)
    await asyncio.sleep(6 * DAY_S)
    await world.begin(name="used")
    producer = await world.begin(name="open", timeout_ms=900_000)
    assert await world.add(producer, name="open") == 0
    await asyncio.sleep(DAY_S + 2 * 3_600)
    listed = await world.service.list_transactions(ListTransactionsRequest(), 0)
    assert [one.transactional_id for one in listed.transaction_states] == ["open", "used"]


async def test_each_transaction_that_is_open_for_too_long_is_aborted_in_its_time(world: World) -> None:
    """The timer begins again after each walk, also after one that has found something."""
    for number in range(4):
        producer = await world.begin(timeout_ms=5_000, name=f"id-{number}")
        assert await world.add(producer, name=f"id-{number}") == 0
        await asyncio.sleep(20)
        assert await world.state(f"id-{number}") == "CompleteAbort"
