"""What a controller registers with the active one, and at which levels it refuses to run."""

import asyncio
from dataclasses import replace

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.codec import encode_record
from pykraft.metadata_log.controller import driver as controller_driver
from pykraft.metadata_log.controller.calls.requests import RegisterControllerRequest
from pykraft.metadata_log.features import SUPPORTED_RANGES
from pykraft.metadata_log.records import Endpoint, FeatureLevelRecord, RegisterControllerRecord
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from tests.metadata_log.driver_world import NODE, World, running_world
from tests.waits import settle


async def test_active_controller_registers_its_own_supported_levels(world: World) -> None:
    own = RegisterControllerRecord(NODE, SUPPORTED_RANGES)
    assert dict(world.driver.committed_image.controllers) == {NODE: own}
    world.quorum.elect(2, 2)
    world.quorum.commit()
    assert dict(world.standby.committed_image.controllers) == {
        NODE: own,
        2: RegisterControllerRecord(2, SUPPORTED_RANGES),
    }
    offset = world.standby.committed_image.offset
    world.quorum.elect(NODE, 3)
    world.quorum.commit()
    assert world.driver.committed_image.offset == offset + 1, "only the change of leaders is new"


async def test_controller_with_new_listeners_registers_again(world: World) -> None:
    endpoint = Endpoint("KAFKA", "host", 9094)
    world.restart_standby(endpoints=(endpoint,))
    world.quorum.elect(2, 2)
    world.quorum.commit()
    assert world.standby.committed_image.controllers[2].endpoints == (endpoint,)
    request = RegisterControllerRequest(
        "c", NODE, SUPPORTED_RANGES, endpoints=(replace(endpoint, port=9095),)
    )
    offsets = []
    for _ in range(2):
        announcing = asyncio.ensure_future(world.standby.register_controller(request))
        await settle()
        world.quorum.commit()
        await announcing
        offsets.append(world.standby.committed_image.offset)
    assert world.standby.committed_image.controllers[NODE].endpoints == request.endpoints
    assert offsets[0] == offsets[1], "registered twice, written once"


@pytest.mark.loop(new=VirtualLoop)
async def test_standby_registers_with_the_active_controller_until_the_log_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller_driver, "REGISTRATION_CHECK_MS", 1)
    attempts: list[int] = []

    async with running_world() as world:

        async def register() -> None:
            attempts.append(len(attempts))
            if len(attempts) == 1:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no leader yet")
            request = RegisterControllerRequest("c", 2, SUPPORTED_RANGES)
            announcing = asyncio.ensure_future(world.driver.register_controller(request))
            await settle()
            world.quorum.commit()
            await announcing

        world.restart_standby(register)
        await world.standby.start()
        async with asyncio.timeout(10):
            while 2 not in world.standby.committed_image.controllers:
                await asyncio.sleep(0.001)
        done = len(attempts)
        await asyncio.sleep(0.02)
        assert done == len(attempts) == 2
        await world.standby.stop()
        assert world.fatal == []


@pytest.mark.world(session_timeout_ms=9000)
async def test_active_controller_logs_which_session_timeouts_differ(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for controller_id, timeout_ms in ((2, 9000), (3, 60_000), (4, 0)):
        request = RegisterControllerRequest("c", controller_id, SUPPORTED_RANGES, timeout_ms)
        await world.finish(world.driver.register_controller(request))
    notified = [it.getMessage() for it in caplog.records if "broker.session.timeout.ms" in it.getMessage()]
    assert len(notified) == 1
    assert notified[0].startswith("controller 3 is configured with broker.session.timeout.ms=60000")


@pytest.mark.loop(new=VirtualLoop)
async def test_controller_registers_once_even_if_the_log_has_its_levels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its session timeout may have changed."""
    monkeypatch.setattr(controller_driver, "REGISTRATION_CHECK_MS", 1)

    async with running_world() as world:
        attempts: list[int] = []

        async def register() -> None:
            attempts.append(len(attempts))

        await world.finish(
            world.driver.register_controller(RegisterControllerRequest("c", 2, SUPPORTED_RANGES))
        )
        world.restart_standby(register)
        await world.standby.start()
        async with asyncio.timeout(10):
            while not attempts:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert len(attempts) == 1
        await world.standby.stop()


@pytest.mark.loop(new=VirtualLoop)
async def test_controller_that_is_refused_because_it_is_too_old_halts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller_driver, "REGISTRATION_CHECK_MS", 1)

    async with running_world() as world:

        async def register() -> None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the cluster runs metadata.version at level 31")

        world.restart_standby(register)
        await world.standby.start()
        async with asyncio.timeout(10):
            while not world.fatal:
                await asyncio.sleep(0.001)
        assert "level 31" in str(world.fatal[0])
        await world.standby.stop()


async def test_controller_that_cannot_run_the_clusters_levels_halts_before_it_decides_anything(
    world: World,
) -> None:
    world.quorum.propose(1, [encode_record(FeatureLevelRecord("metadata.version", 31))])
    world.quorum.commit()
    world.quorum.elect(2, 2)
    assert not world.standby.active
    assert "metadata.version at level 31; this software supports 7 to 30" in str(world.fatal[0])
