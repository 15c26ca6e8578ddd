"""The service around the shards: answers at the high watermark, loading, resignation."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from pykraft.kafka_protocol.messages.offsets import (
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.persistent import Map
from tests.asynchronous import in_loop
from tests.group_coordinator import tools
from tests.group_coordinator.coordinators import (
    SHORT_METADATA,
    Coordinator,
    codes,
    running_broker,
    running_world,
)
from tests.narrowing import present
from tests.waits import settle

world = in_loop(lambda: running_broker(leads=False))
coordinator = in_loop(lambda: running_world(leads=False))


def all_requests() -> list[tuple[Message, int]]:
    return [
        (ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1), 1),
        (JoinGroupRequest(group_id="g", session_timeout_ms=10_000), 9),
        (JoinGroupRequest(group_id="g", session_timeout_ms=10_000), 0),
        (SyncGroupRequest(group_id="g"), 4),
        (HeartbeatRequest(group_id="g"), 4),
        (LeaveGroupRequest(group_id="g"), 5),
        (OffsetFetchRequest(group_id="g", topics=None), 7),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8),
        (DescribeGroupsRequest(groups=["g"]), 6),
        (ConsumerGroupDescribeRequest(group_ids=["g"]), 1),
        (DeleteGroupsRequest(groups_names=["g"]), 2),
    ]


# The errors that classic clients understand there: they are alive, and they must join again.
WHILE_LOADING = {HeartbeatRequest: ErrorCode.NONE, SyncGroupRequest: ErrorCode.REBALANCE_IN_PROGRESS}


def error_of(response: Message) -> int:
    for part in (response, *getattr(response, "groups", []), *getattr(response, "results", [])):
        if getattr(part, "error_code", 0):
            return int(part.error_code)
    return 0


@pytest.mark.parametrize(("request_", "version"), all_requests())
async def test_groups_of_other_brokers_are_refused(
    world: Coordinator, request_: Message, version: int
) -> None:
    assert error_of(await world.wire(request_, version)) == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(("request_", "version"), all_requests())
async def test_requests_are_refused_while_loading(
    world: Coordinator, request_: Message, version: int
) -> None:
    world.writer.read_gate = asyncio.Event()
    await world.lead()
    response = error_of(await world.wire(request_, version))
    assert response == WHILE_LOADING.get(type(request_), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    world.writer.read_gate.set()
    await settle()
    loaded = error_of(await world.wire(request_, version))
    assert loaded != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_answer_waits_for_the_high_watermark(world: Coordinator) -> None:
    await world.lead()
    world.writer.hold = True
    join = world.beat()
    await settle()
    assert not join.done()
    world.service.on_high_watermark(0, len(world.writer.logs[0]) - 1)
    await settle()
    assert not join.done()
    world.release()
    assert (await join).member_epoch == 2


async def test_answer_without_records_waits_for_the_records_it_is_based_on(world: Coordinator) -> None:
    await world.lead()
    world.writer.hold = True
    waiting = [world.beat(), world.beat("m", 2)]
    waiting.append(world.send(ConsumerGroupDescribeRequest(group_ids=["g"]), 1))
    waiting.append(world.send(OffsetFetchRequest(group_id="g", topics=None), 7))
    waiting.append(world.send(ListGroupsRequest(), 5))
    await settle()
    assert not any(task.done() for task in waiting), "an uncommitted epoch leaked"
    world.release()
    await asyncio.gather(*waiting)
    assert (await world.beat("m", 2)).member_epoch == 2, "nothing pending: answered at once"


async def test_resignation_fails_every_waiting_request(world: Coordinator) -> None:
    await world.lead()
    parked = world.join(group_id="c")
    world.writer.hold = True
    waiting = [world.beat(), world.commit({("t", 0): 1}, group_id="o")]
    await settle()
    world.service.on_resigned(0)
    assert (await parked).error_code == ErrorCode.NOT_COORDINATOR
    assert (await waiting[0]).error_code == ErrorCode.NOT_COORDINATOR
    assert codes(await waiting[1]) == [ErrorCode.NOT_COORDINATOR]
    assert (await world.beat("m", 2)).error_code == ErrorCode.NOT_COORDINATOR


async def test_new_leader_has_what_was_answered_and_holds_back_the_rest(world: Coordinator) -> None:
    await world.lead()
    await world.commit({("t", 0): 7})
    world.writer.hold = True
    lost = world.commit({("t", 0): 8})
    await settle()
    await world.fail_over()
    assert codes(await lost) == [ErrorCode.NOT_COORDINATOR]
    reading = asyncio.ensure_future(world.fetch())
    await settle()
    assert not reading.done(), "the tail of the log is not committed yet"
    world.release()
    assert await reading == {("t", 0): 8}


async def test_replicas_that_take_too_long_are_not_waited_for_forever(world: Coordinator) -> None:
    await world.lead()
    world.writer.hold = True
    commit = world.commit({("t", 0): 1})
    await settle()
    await world.pass_time(SHORT_METADATA.offset_commit_timeout_ms)
    assert codes(await commit) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


async def test_newer_leader_epoch_loads_again_and_an_older_one_is_ignored(world: Coordinator) -> None:
    await world.lead(5)
    world.service.on_elected(0, 4)
    await world.beat()
    world.service.on_elected(0, 6)
    assert (await world.beat("m", 2)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await settle()
    assert (await world.beat("m", 2)).member_epoch == 2
    await world.commit({("t", 0): 1}, group_id="o")
    assert [epoch for _, epoch, _ in world.writer.batches] == [5, 6]


async def test_long_log_is_loaded_slice_by_slice(world: Coordinator) -> None:
    await world.lead()
    for offset in range(50):
        await world.commit({("t", p): offset for p in range(4)})
    world.writer.read_slice = 7
    await world.service.stop()
    world.service = world.new_service()
    world.service.on_elected(0, 2)
    while (await world.beat("m", 2)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await asyncio.sleep(0)
    assert await world.fetch() == {("t", p): 49 for p in range(4)}


async def test_started_service_runs_its_timers_by_itself(world: Coordinator) -> None:
    await world.service.start()
    await world.lead()
    await world.beat()
    world.clock.now_ms += SHORT_METADATA.consumer_session_timeout_ms
    await world.beat("other", group_id="h")
    world.service.tick()
    assert (await world.beat("m", 2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_group_with_its_own_settings_keeps_them_after_a_failover(world: Coordinator) -> None:
    def configure(world: Coordinator, **settings: str) -> None:
        configs = {name.replace("_", "."): value for name, value in settings.items()}
        old = world.image
        world.image = replace(old, configs=old.configs.set((32, "g"), Map(configs)))
        delta = MetadataDelta(old, world.image, changed_configs=frozenset({(32, "g")}))
        world.service.on_metadata(delta, world.image)

    await world.lead()
    configure(world, consumer_session_timeout_ms="60000", consumer_heartbeat_interval_ms="7000")
    assert (await world.beat()).heartbeat_interval_ms == 7000
    await world.beat("other", group_id="h")
    assert (await world.beat("other", 2, group_id="h")).heartbeat_interval_ms == 1000
    for _ in range(2):
        await world.pass_time(50_000)
        assert (await world.beat("other", 2, group_id="h")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await world.beat("m", 2)).error_code == 0
        await world.fail_over()
    await world.pass_time(60_000)
    assert (await world.beat("m", 2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    configure(world, consumer_heartbeat_interval_ms="40000")
    assert (await world.beat("new")).heartbeat_interval_ms == 15_000, "the most that this broker allows"


async def test_partitions_of_the_topic_determine_the_partition_of_a_group(
    coordinator: Coordinator,
) -> None:
    """The setting applies when the topic is created; the number that it was created with counts."""
    assert coordinator.service.partition_for("group-a") == 0
    coordinator.publish(tools.make_image({"t": 4, "__consumer_offsets": 7}, 2))
    found = {coordinator.service.partition_for(f"group-{n}") for n in range(100)}
    assert found == set(range(7))


async def test_unreadable_records_do_not_keep_a_partition_from_loading(coordinator: Coordinator) -> None:
    odd: Sequence[tuple[bytes, bytes | None]] = [
        (b"", b""),
        (b"\x00", None),
        (b"\x00\x01\x7f\xff", b"\x00\x03"),
        (b"\x00\x08\x00\x01g\x00\x01m", b"\x00\x00" + b"\xff" * 20),
        (b"\x7f\xff", b"later"),
    ]
    coordinator.writer.append(0, 1, odd, 0)
    await coordinator.lead()
    assert await coordinator.commit_one(9) == 0
    coordinator.service.on_resigned(0)
    await coordinator.lead(2)
    assert await coordinator.fetch() == {("t", 0): 9}


async def test_background_failure_is_reported_to_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Coordinator()
    monkeypatch.setattr(w.writer, "read", None)
    await w.lead()
    (error,) = w.faults
    assert isinstance(error, TypeError)
    await w.service.stop()


@pytest.mark.parametrize(
    ("request_", "version", "code"),
    [
        (ConsumerGroupHeartbeatRequest(group_id="g", member_id="m"), 1, ErrorCode.INVALID_REQUEST),
        (ConsumerGroupHeartbeatRequest(group_id="", member_id="m"), 1, ErrorCode.INVALID_REQUEST),
        (JoinGroupRequest(group_id="", session_timeout_ms=10_000), 5, ErrorCode.INVALID_GROUP_ID),
        (JoinGroupRequest(group_id="g", session_timeout_ms=1), 5, ErrorCode.INVALID_SESSION_TIMEOUT),
        (SyncGroupRequest(group_id=""), 4, ErrorCode.INVALID_GROUP_ID),
        (SyncGroupRequest(group_id=""), 5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (HeartbeatRequest(group_id=""), 4, ErrorCode.INVALID_GROUP_ID),
        (LeaveGroupRequest(group_id=""), 4, ErrorCode.INVALID_GROUP_ID),
        (OffsetDeleteRequest(group_id=""), 0, ErrorCode.INVALID_GROUP_ID),
    ],
)
async def test_what_is_wrong_by_itself_is_told_by_any_broker(
    world: Coordinator, request_: Message, version: int, code: ErrorCode
) -> None:
    """As in Kafka, before it is known whether the group is coordinated here, or still loaded."""
    assert error_of(await world.wire(request_, version)) == code
    world.writer.read_gate = asyncio.Event()
    await world.lead()
    assert error_of(await world.wire(request_, version)) == code


async def test_partition_that_is_led_no_longer_is_not_read_on(world: Coordinator) -> None:
    world.writer.read_gate = asyncio.Event()
    await world.lead()
    await settle()
    load = present(world.hosted.load_task)
    world.service.on_resigned(0)
    await settle()
    assert load.cancelled()
