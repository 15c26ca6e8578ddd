"""The timers of the active controller: they fence, discount stalls, write when idle, and sweep."""

import asyncio

import pytest

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.controller import sweeps
from pykraft.metadata_log.controller.calls.requests import BrokerHeartbeatRequest
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from tests.metadata_log.driver_world import NODE, LoopClock, SuspendedClock, World
from tests.waits import settle


@pytest.mark.world(session_timeout_ms=40)
async def test_silent_broker_is_fenced_by_the_timer_of_the_active_controller(world: World) -> None:
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


@pytest.mark.parametrize("suspended_for_ms", [2000, 9000, 3600_000])
@pytest.mark.parametrize("beat_ms", [0, 250, 750, 1250])
@pytest.mark.loop(new=VirtualLoop)
async def test_no_broker_is_fenced_for_the_time_in_which_the_machine_was_suspended(
    suspended_for_ms: int, beat_ms: int
) -> None:
    """All nodes were suspended, and heartbeats continue afterwards: the next is due within two seconds."""
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
        clock.suspended_ms += suspended_for_ms * (number == 6)
        await asyncio.sleep(1.99)
        assert not world.driver.image.brokers[1].fenced
    await asyncio.sleep(9 + 9 / 8)
    assert world.driver.image.brokers[1].fenced, "it has been silent for a session"
    await world.driver.stop()
    assert world.fatal == []


@pytest.mark.parametrize(
    ("stall_ms", "run_ms"), [(1600, 1000), (1600, 100), (1200, 200), (1100, 100), (1990, 10), (2900, 500)]
)
@pytest.mark.loop(new=VirtualLoop)
async def test_repeatedly_stalled_controller_fences_dead_brokers_in_bounded_time_and_live_ones_never(
    stall_ms: int, run_ms: int
) -> None:
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
        """Sent every two seconds; a heartbeat that arrives in a stall is read after it."""
        while True:
            await beat(2)
            await asyncio.sleep(2 - loop.now_s % 2)

    await beat(1)
    silent_since_s = loop.now_s
    invalid_heartbeats = [asyncio.ensure_future(stall()), asyncio.ensure_future(live_on())]
    while not world.driver.image.brokers[1].fenced:
        await asyncio.sleep(0.01)
        assert loop.now_s - silent_since_s < 2 * 9 + 3 * (stall_ms + run_ms) / 1000 + 9 / 8
    assert loop.now_s - silent_since_s >= 9
    await asyncio.sleep(40)
    assert not world.driver.image.brokers[2].fenced
    for task in invalid_heartbeats:
        task.cancel()
    await world.driver.stop()
    assert world.fatal == []


@pytest.mark.world(max_idle_interval_ms=5)
async def test_idle_controller_writes_no_op_records_at_the_configured_interval(world: World) -> None:
    end_offset, image = world.quorum.log_end_offset, world.driver.image
    await world.driver.start()
    while world.quorum.log_end_offset < end_offset + 3:
        await asyncio.sleep(0.001)
    await world.driver.stop()
    world.quorum.commit()
    assert world.driver.committed_image.features == image.features


def many_topics(count: int, partitions: int) -> bytes:
    topics = [
        CreatableTopic(name=f"t{number}", num_partitions=partitions, replication_factor=1)
        for number in range(count)
    ]
    return CreateTopicsRequest(topics=topics).encode(7)


async def test_request_for_many_topics_takes_turns_with_others_and_is_answered_as_one(world: World) -> None:
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


async def test_request_in_parts_fails_with_the_leadership_it_began_in(world: World) -> None:
    epoch = await world.register()
    beat = BrokerHeartbeatRequest(1, epoch, world.driver.image.offset)
    await world.finish(world.driver.broker_heartbeat(beat))
    task = asyncio.ensure_future(
        world.driver.forward(RequestContext(), ApiKey.CREATE_TOPICS, 7, many_topics(20, 100), 30_000)
    )
    while not world.driver.image.topics_by_id:
        await asyncio.sleep(0)
    assert len(world.driver.image.topics_by_id) < 20
    world.quorum.elect(2, 2)
    world.quorum.elect(NODE, 3)  # the records of the first parts are reverted
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        await task
    await settle()
    world.quorum.commit()
    assert len(world.driver.image.topics_by_id) == 0


async def test_sweep_takes_turns_with_commands_and_ends_with_the_leadership(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "SLICE_CHANGES", 2)
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
    assert later == left, "a deposed controller continues"
    world.quorum.elect(NODE, 3)
    while led():
        await asyncio.sleep(0)
    world.quorum.commit()
    assert world.fatal == []


@pytest.mark.loop(new=VirtualLoop)
async def test_forwarded_request_waits_for_its_commit_as_long_as_the_client_does() -> None:
    world = World(LoopClock())
    world.quorum.elect(NODE, 1)
    epoch = await world.register()
    beat = BrokerHeartbeatRequest(1, epoch, world.driver.image.offset)
    await world.finish(world.driver.broker_heartbeat(beat))
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    body = CreateTopicsRequest(topics=[topic], timeout_ms=1500).encode(7) + b"bytes behind it"
    with pytest.raises(KafkaError, match="not committed within 1500 ms"):
        await world.driver.forward(RequestContext(), ApiKey.CREATE_TOPICS, 7, body, 30_000)
