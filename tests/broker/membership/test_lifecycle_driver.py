"""Registration and heartbeats of a broker, on a network that loses and delays, in virtual time."""

import asyncio
from dataclasses import replace

import pytest

from pykraft.broker.membership.lifecycle import BrokerState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.delta import build_full_delta
from pykraft.metadata_log.image import EMPTY_IMAGE
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.runtime.address import Address
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from tests.broker.lifecycle_world import ONE, SESSION_MS, TWO, World, running_world
from tests.narrowing import as_type

# --- registration ----------------------------------------------------------------------------------------


async def test_broker_registers_with_all_its_properties(world: World) -> None:
    await world.driver.register()
    (request,) = world.controllers.of("RegisterBroker")
    assert (request.cluster_id, request.broker_id, request.incarnation_id) == ("c", 7, b"i" * 16)
    assert request.endpoints[0].host == "h" and list(request.log_dirs) == [b"d" * 16]
    assert request.features[0].max_level == 30 and not request.HasField("rack")
    assert world.lifecycle.epoch == 10 and world.lifecycle.is_fenced


@pytest.mark.parametrize(("stopped", "reported"), [(None, -1), (6, 6)])
@pytest.mark.loop(new=VirtualLoop)
async def test_broker_reports_the_epoch_at_which_its_logs_were_closed(
    stopped: int | None, reported: int
) -> None:
    async with running_world(stopped_in_order_at_epoch=stopped) as world:
        await world.start()
        beat = world.beat

        def stale(request: pb.BrokerHeartbeatRequest) -> pb.BrokerHeartbeatResponse:
            if request.broker_epoch == 10:
                return pb.BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            return as_type(beat(request), pb.BrokerHeartbeatResponse)

        world.beat = stale
        world.registered = lambda request: pb.RegisterBrokerResponse(broker_epoch=20)
        await asyncio.sleep(5)
        first, again = world.controllers.of("RegisterBroker")
        assert first.previous_broker_epoch == reported
        assert again.previous_broker_epoch == 10, "the same process: its logs are complete"


async def test_registration_waits_out_the_session_of_a_killed_predecessor(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    expires_ms = world.clock.monotonic_ms() + SESSION_MS

    def registered(request: pb.RegisterBrokerRequest) -> pb.RegisterBrokerResponse:
        if world.clock.monotonic_ms() < expires_ms:
            return pb.RegisterBrokerResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        return pb.RegisterBrokerResponse(broker_epoch=11)

    world.registered = registered
    await world.driver.register()
    assert world.lifecycle.epoch == 11
    assert world.clock.monotonic_ms() - expires_ms < 500
    logged = [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]
    assert len(logged) == 1 and logged[0].startswith(
        "waiting for the session of an earlier process to expire"
    )


@pytest.mark.parametrize("code", [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REGISTRATION])
async def test_refused_registration_is_not_tried_again(world: World, code: ErrorCode) -> None:
    world.registered = lambda request: pb.RegisterBrokerResponse(error_code=code, error_message="no")
    with pytest.raises(KafkaError) as refusal:
        await world.driver.register()
    assert refusal.value.code is code and len(world.controllers.of("RegisterBroker")) == 1


TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("answer", [None, pb.RegisterBrokerResponse(error_code=TIMED_OUT)])
@pytest.mark.parametrize("leader", [None, TWO, ONE], ids=["no leader", "silent leader", "leader"])
async def test_start_waits_for_a_controller_however_long(
    world: World,
    leader: Address | None,
    answer: pb.RegisterBrokerResponse | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A combined node that ended would take a controller with it that the others wait for."""
    world.controllers.leader, registered = leader, world.registered
    world.registered = lambda request: answer
    registering = asyncio.ensure_future(world.driver.register())
    await asyncio.sleep(600)
    assert not registering.done()
    said = [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]
    assert len(said) == 1 and "is not registered yet, and waits" in said[0]
    world.controllers.leader, world.registered = ONE, registered
    await asyncio.sleep(65)
    assert registering.done() and world.lifecycle.epoch == 10


async def test_start_gives_up_if_another_process_keeps_its_id(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The time counts from the first refusal: before it, nobody could have let the session expire."""
    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    world.registered = lambda request: pb.RegisterBrokerResponse(error_code=code)
    world.controllers.leader = None
    registering = asyncio.ensure_future(world.driver.register())
    await asyncio.sleep(100)
    world.controllers.leader = ONE
    began_ms = world.clock.monotonic_ms()
    with pytest.raises(KafkaError, match=code.name):
        await registering
    assert 60_000 <= world.clock.monotonic_ms() - began_ms < 61_000


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.REQUEST_TIMED_OUT,
        None,
    ],
    ids=lambda code: "no answer" if code is None else code.name,
)
async def test_broker_that_was_registered_once_tries_again_without_end(
    world: World, code: ErrorCode | None, caplog: pytest.LogCaptureFixture
) -> None:
    await world.start()
    beat = world.beat

    def stale(request: pb.BrokerHeartbeatRequest) -> pb.BrokerHeartbeatResponse:
        if request.broker_epoch == 10:
            return pb.BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        return as_type(beat(request), pb.BrokerHeartbeatResponse)

    world.beat = stale
    world.registered = lambda request: (
        None if code is None else pb.RegisterBrokerResponse(error_code=code, error_message="no")
    )
    await asyncio.sleep(300)
    assert world.lifecycle.is_fenced and not world.lifecycle.is_registered
    assert not world.lifecycle.lease_valid(world.clock.monotonic_ms())
    assert len([it for it in caplog.records if it.levelname == "WARNING"]) <= 1
    world.registered = lambda request: pb.RegisterBrokerResponse(broker_epoch=20)
    await asyncio.sleep(65)
    assert world.lifecycle.is_registered and world.lifecycle.epoch == 20


# --- heartbeats ------------------------------------------------------------------------------------------


async def test_broker_asks_to_be_unfenced_only_when_it_is_ready(world: World) -> None:
    await world.driver.register()
    running = asyncio.ensure_future(world.driver.run())
    await asyncio.sleep(1)
    assert not world.driver.caught_up.is_set()
    world.metadata_offset = 10
    await asyncio.sleep(1)
    assert world.driver.caught_up.is_set() and not world.driver.running.is_set()
    assert all(beat.want_fence for beat in world.controllers.of("BrokerHeartbeat"))
    world.lifecycle.set_ready()
    world.lifecycle.handle_registration_change(world.unfenced)
    await asyncio.sleep(1)
    assert world.driver.running.is_set() and not world.lifecycle.is_fenced
    running.cancel()


async def test_start_does_not_wait_for_the_next_heartbeat_to_be_due(world: World) -> None:
    began_ms = world.clock.monotonic_ms()
    await world.driver.register()
    running = asyncio.ensure_future(world.driver.run())
    await asyncio.sleep(0.002)  # the first heartbeat is answered
    world.metadata_offset = 10
    image = replace(EMPTY_IMAGE, brokers=EMPTY_IMAGE.brokers.set(7, world.unfenced))
    world.driver.publish(build_full_delta(image), image)
    await world.driver.caught_up.wait()
    world.driver.set_ready()
    await world.driver.running.wait()
    assert world.clock.monotonic_ms() - began_ms < 10  # an answer takes one; a pause would take twenty
    running.cancel()


async def test_broker_that_becomes_ready_during_a_heartbeat_sends_the_next_at_once(world: World) -> None:
    await world.driver.register()
    world.metadata_offset = 10
    world.lifecycle.handle_registration_change(world.unfenced)
    world.controllers.latency_ms = 30
    began_ms = world.clock.monotonic_ms()
    running = asyncio.ensure_future(world.driver.run())
    await asyncio.sleep(0.01)
    world.driver.set_ready()
    await world.driver.running.wait()
    assert world.clock.monotonic_ms() - began_ms == 60
    running.cancel()


async def test_lease_is_counted_from_when_the_heartbeat_was_sent(world: World) -> None:
    await world.start()
    world.controllers.latency_ms = 700
    await asyncio.sleep(10)
    sent_ms = [at for at, _, name, _ in world.controllers.seen if name == "BrokerHeartbeat"][-1]
    world.controllers.scripts.clear()
    await asyncio.sleep(0.8)
    assert world.lifecycle.lease_valid(sent_ms + SESSION_MS - 1)
    assert not world.lifecycle.lease_valid(sent_ms + SESSION_MS)


async def test_unanswered_heartbeat_is_sent_again_soon(world: World) -> None:
    await world.start()
    beat, world.beat = world.beat, lambda request: None
    await asyncio.sleep(4.2)  # one heartbeat interval, and one attempt without an answer
    world.beat = beat
    sent_ms = world.clock.monotonic_ms()
    await asyncio.sleep(2.3)
    assert world.lifecycle.lease_valid(sent_ms + SESSION_MS - 1)


async def keeps_its_lease(world: World, duration_ms: int) -> None:
    """Wait this long, and check that the lease is valid all the time."""
    for _ in range(duration_ms // 10):
        assert world.lifecycle.lease_valid(world.clock.monotonic_ms()), (
            "the lease ended before the next heartbeat"
        )
        await asyncio.sleep(0.01)


async def test_lease_that_an_answer_did_not_renew_is_requested_again_before_it_ends(world: World) -> None:
    """A new controller grants nothing before it knows that the broker follows."""

    def beat(request: pb.BrokerHeartbeatRequest) -> pb.BrokerHeartbeatResponse:
        answered = len(world.controllers.of("BrokerHeartbeat"))
        return pb.BrokerHeartbeatResponse(is_caught_up=True, lease_ms=0 if answered == grants_not else 3000)

    grants_not = -1
    await world.start()
    world.beat = beat
    await asyncio.sleep(10)
    grants_not = len(world.controllers.of("BrokerHeartbeat")) + 1
    await keeps_its_lease(world, 10_000)
    assert len(world.controllers.of("BrokerHeartbeat")) > grants_not


@pytest.mark.world(heartbeat_interval_ms=5000)
async def test_leases_of_a_broker_that_is_always_a_little_behind_do_not_lapse_between_rare_heartbeats(
    world: World,
) -> None:
    """A lease is counted from the previous heartbeat, which reported how far the broker had come."""
    asked_ms = world.clock.monotonic_ms()

    def beat(request: pb.BrokerHeartbeatRequest) -> pb.BrokerHeartbeatResponse:
        nonlocal asked_ms
        since_ms, asked_ms = world.clock.monotonic_ms() - asked_ms, world.clock.monotonic_ms()
        return pb.BrokerHeartbeatResponse(is_caught_up=True, lease_ms=max(0, 8100 - since_ms))

    world.beat = beat
    await world.start()
    began = len(world.controllers.of("BrokerHeartbeat"))
    await keeps_its_lease(world, 60_000)
    assert len(world.controllers.of("BrokerHeartbeat")) - began < 30


async def test_broker_without_a_lease_does_not_hurry_to_get_one(world: World) -> None:
    await world.start()
    world.beat = lambda request: pb.BrokerHeartbeatResponse(is_caught_up=True)
    await asyncio.sleep(SESSION_MS / 1000)
    before = len(world.controllers.of("BrokerHeartbeat"))
    await asyncio.sleep(5)
    assert 40 <= len(world.controllers.of("BrokerHeartbeat")) - before <= 51


async def test_paused_controller_is_left_as_soon_as_another_one_leads(world: World) -> None:
    await world.start()
    world.controllers.scripts[TWO] = world.controllers.scripts.pop(ONE)
    await asyncio.sleep(2)
    world.controllers.leader = TWO
    await asyncio.sleep(0.5)
    assert world.controllers.seen[-1][1] == TWO


async def test_fenced_broker_serves_no_client_until_it_is_unfenced_again(world: World) -> None:
    await world.start()
    beat, world.beat = (
        world.beat,
        lambda request: pb.BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True),
    )
    await asyncio.sleep(2.1)
    assert world.lifecycle.is_fenced
    assert not world.lifecycle.lease_valid(world.clock.monotonic_ms())
    assert world.lifecycle.epoch == 10
    world.beat = beat
    await asyncio.sleep(0.1)
    assert not world.lifecycle.is_fenced and world.lifecycle.state is BrokerState.RUNNING
    assert len(world.controllers.of("RegisterBroker")) == 1


async def test_stale_epoch_fences_at_once_and_registers_again(world: World) -> None:
    await world.start()
    beat = world.beat
    others_session_ends_ms = world.clock.monotonic_ms() + SESSION_MS

    def stale(request: pb.BrokerHeartbeatRequest) -> pb.BrokerHeartbeatResponse:
        if request.broker_epoch == 10:
            return pb.BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        return as_type(beat(request), pb.BrokerHeartbeatResponse)

    def registered(request: pb.RegisterBrokerRequest) -> pb.RegisterBrokerResponse:
        if world.clock.monotonic_ms() < others_session_ends_ms:
            return pb.RegisterBrokerResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        return pb.RegisterBrokerResponse(broker_epoch=20)

    world.beat, world.registered = stale, registered
    await asyncio.sleep(2.5)
    assert world.lifecycle.is_fenced
    assert not world.lifecycle.lease_valid(world.clock.monotonic_ms())
    world.metadata_offset = 20
    world.lifecycle.handle_registration_change(replace(world.unfenced, epoch=20))
    await asyncio.sleep(SESSION_MS / 1000)
    assert world.lifecycle.epoch == 20 and not world.lifecycle.is_fenced


@pytest.mark.world(heartbeat_interval_ms=10000)
async def test_cordoned_directories_are_told_once_they_are_known_and_at_once_when_they_change(
    world: World,
) -> None:
    await world.start()
    beats = world.controllers.of("BrokerHeartbeat")
    assert not beats[0].HasField("cordoned_log_dirs"), "its properties may not be applied yet"
    assert beats[-1].HasField("cordoned_log_dirs") and not beats[-1].cordoned_log_dirs.ids
    await asyncio.sleep(1)
    seen = len(world.controllers.seen)
    world.cordoned = (Uuid(b"d" * 16),)
    world.driver.handle_cordoned_log_dirs()
    await asyncio.sleep(0.01)
    (beat,) = (request for *_, request in world.controllers.seen[seen:])
    assert list(beat.cordoned_log_dirs.ids) == [b"d" * 16]
