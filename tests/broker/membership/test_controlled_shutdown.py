"""A controlled shutdown: what the broker asks for before it stops, and how long it waits."""

import asyncio

from pykraft.broker.membership.lifecycle import BrokerState
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.image import BrokerRegistration
from pykraft.metadata_log.pb import controller_pb2 as pb
from tests.broker.lifecycle_world import World


async def shut_down(world: World, timeout_ms: int) -> int:
    """How long it took."""
    began_ms = world.clock.monotonic_ms()
    await world.driver.shut_down(timeout_ms)
    return world.clock.monotonic_ms() - began_ms


async def test_controlled_shutdown_ends_when_the_controller_allows_it(world: World) -> None:
    running = await world.start()
    leads_until_ms = world.clock.monotonic_ms() + 300

    def beat(request: pb.BrokerHeartbeatRequest) -> pb.BrokerHeartbeatResponse:
        done = request.want_shut_down and world.clock.monotonic_ms() >= leads_until_ms
        return pb.BrokerHeartbeatResponse(is_caught_up=True, is_fenced=done, should_shut_down=done)

    world.beat = beat
    assert 300 <= await shut_down(world, 15_000) < 500
    assert world.lifecycle.state is BrokerState.SHUTTING_DOWN and world.lifecycle.is_fenced
    await running


async def test_broker_that_never_served_also_leaves_in_order(world: World) -> None:
    await world.driver.register()
    running = asyncio.ensure_future(world.driver.run())
    await asyncio.sleep(0.1)

    def beat(request: pb.BrokerHeartbeatRequest) -> pb.BrokerHeartbeatResponse:
        return pb.BrokerHeartbeatResponse(is_fenced=True, should_shut_down=request.want_shut_down)

    world.beat = beat
    assert await shut_down(world, 2000) < 100
    await running


async def test_broker_whose_id_was_taken_has_nothing_to_hand_over(world: World) -> None:
    running = await world.start()
    world.beat = lambda request: pb.BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    assert await shut_down(world, 15_000) < 100
    await running
    assert not world.lifecycle.is_registered and len(world.controllers.of("RegisterBroker")) == 1


async def test_controlled_shutdown_without_a_controller_takes_no_longer_than_allowed(world: World) -> None:
    await world.start()
    world.controllers.leader = None
    assert await shut_down(world, 2_000) <= 2_001


async def test_last_broker_without_a_quorum_does_not_wait_for_the_whole_timeout(world: World) -> None:
    await world.start()
    world.controllers.leader = None
    assert await shut_down(world, 15_000) <= 5_001


async def test_controlled_shutdown_goes_on_while_a_controller_answers(world: World) -> None:
    await world.start()
    world.beat = lambda request: pb.BrokerHeartbeatResponse(is_caught_up=True)
    assert 15_000 <= await shut_down(world, 15_000) <= 15_001


async def test_while_another_broker_leaves_reports_come_often(world: World) -> None:
    def registered(
        broker_id: int, *, fenced: bool = False, in_controlled_shutdown: bool = False
    ) -> BrokerRegistration:
        return BrokerRegistration(
            broker_id, 1, Uuid(b"i" * 16), (), fenced=fenced, in_controlled_shutdown=in_controlled_shutdown
        )

    await world.start()
    leaving = {7: registered(7), 8: registered(8, in_controlled_shutdown=True)}

    async def beats_in(duration_ms: int) -> int:
        before = len(world.controllers.of("BrokerHeartbeat"))
        await asyncio.sleep(duration_ms / 1000)
        return len(world.controllers.of("BrokerHeartbeat")) - before

    world.driver.handle_brokers({7: registered(7)})
    assert await beats_in(4000) <= 3
    world.driver.handle_brokers(leaving)
    assert await beats_in(1000) >= 8
    world.driver.handle_brokers({7: registered(7), 8: registered(8, fenced=True)})
    await asyncio.sleep(0.2)
    assert await beats_in(4000) <= 3
    world.driver.handle_brokers({7: registered(7, in_controlled_shutdown=True)})
    assert await beats_in(4000) <= 3, "its own shutdown does not count"
