"""What a hostile or unlucky world does to the coordinator as a service: leases, stalls, floods, odd logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pykraft.group_coordinator.config import GroupConfig
from pykraft.group_coordinator.group import ConsumerGroup
from pykraft.group_coordinator.member import ConsumerMember
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.group_coordinator.subscription import MAX_REMEMBERED, TopicsView
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykraft.kafka_protocol.messages.heartbeat import HeartbeatRequest
from pykraft.kafka_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykraft.kafka_protocol.messages.leave_group import LeaveGroupRequest
from pykraft.kafka_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykraft.kafka_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from pykraft.kafka_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.kafka_protocol.schema import Message
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage

CONFIG = GroupConfig(
    offsets_topic_num_partitions=1, initial_rebalance_delay_ms=0, consumer_session_timeout_ms=45_000
)


class Lease:
    """The broker's standing with the controller, as a test wants it."""

    def __init__(self) -> None:
        self.valid = True

    def lease_valid(self, now_ms: int) -> bool:
        return self.valid

    def lapsed_ms(self, now_ms: int) -> int | None:
        return 0 if self.valid else None


class World:
    """One coordinator that leads partition 0 of a log in memory."""

    def __init__(self, tools: SimpleNamespace) -> None:
        self.tools = tools
        self.clock, self.writer, self.lease = tools.ManualClock(), tools.MemoryWriter(), Lease()
        self.faults: list[tuple[str, BaseException]] = []
        self.client_id = "cli"
        self.service = GroupCoordinatorService(
            CONFIG,
            self.writer,
            self.clock,
            tools.random(1),
            lease=self.lease,
            on_fault=lambda what, error: self.faults.append((what, error)),
        )
        self.image = EMPTY_IMAGE
        self.publish(tools.make_image({"t": 4}))

    def publish(self, image: MetadataImage, **changes: Any) -> None:
        delta = MetadataDelta(self.image, image, **changes)
        self.image = image
        self.service.on_metadata(delta, image)

    def delete_topic(self, name: str, sizes_after: dict[str, int]) -> None:
        topic = self.image.topic(name)
        assert topic is not None
        image = self.tools.make_image(sizes_after, self.image.offset + 1)
        self.publish(image, deleted_topics={topic.id: topic})

    async def settle(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)

    async def lead(self, epoch: int = 1) -> None:
        self.service.on_elected(0, epoch)
        await self.settle()

    def pass_time(self, delay_ms: int) -> None:
        self.clock.now_ms += delay_ms
        self.service.tick()

    def send(self, request: Message, version: int) -> asyncio.Task[Any]:
        ctx = RequestContext(client_id=self.client_id, client_address="127.0.0.1")
        return asyncio.ensure_future(self.service.handle(ctx, request, version))

    def beat(self, member_id: str, epoch: int, **fields: Any) -> asyncio.Task[Any]:
        joining = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
        values = ({} if epoch else joining) | {"group_id": "g"} | fields
        request = ConsumerGroupHeartbeatRequest(member_id=member_id, member_epoch=epoch, **values)
        return self.send(request, 1)

    def join(self, member_id: str = "", version: int = 3, **fields: Any) -> asyncio.Task[Any]:
        values: dict[str, Any] = {
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"")],
        }
        return self.send(JoinGroupRequest(member_id=member_id, **(values | fields)), version)

    def sync(self, member_id: str, generation: int, **assignments: bytes) -> asyncio.Task[Any]:
        given = [
            SyncGroupRequestAssignment(member_id=name.replace("_", "-"), assignment=assignment)
            for name, assignment in assignments.items()
        ]
        request = SyncGroupRequest(
            group_id="g", member_id=member_id, generation_id=generation, assignments=given
        )
        return self.send(request, 3)

    def heartbeat(self, member_id: str, generation: int) -> asyncio.Task[Any]:
        return self.send(HeartbeatRequest(group_id="g", member_id=member_id, generation_id=generation), 3)

    async def commit(self, offset: int, **fields: Any) -> int:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
        request = OffsetCommitRequest(**({"group_id": "g", "topics": topics} | fields))
        answer = await self.send(request, 8)
        return int(answer.topics[0].partitions[0].error_code)

    async def fetch(self) -> tuple[int, dict[int, int]]:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        (group,) = (await self.send(request, 8)).groups
        return group.error_code, {
            p.partition_index: p.committed_offset for t in group.topics for p in t.partitions
        }

    async def stable_pair(self) -> tuple[str, str, int]:
        """Two classic members that have their assignment: leader, other, generation."""
        first = self.join()
        await self.settle()
        self.pass_time(1)
        leader = (await first).member_id
        second = self.join()
        await self.settle()
        again = self.join(leader)
        joined = [await again, await second]
        members = sorted(answer.member_id for answer in joined)
        generation = joined[0].generation_id
        leader = joined[0].leader
        (other,) = [name for name in members if name != leader]
        waiting = self.sync(other, generation)
        assert (await self.sync(leader, generation)).error_code == 0
        assert (await waiting).error_code == 0
        return leader, other, generation


@pytest.fixture
def world(tools: SimpleNamespace) -> Callable[..., None]:
    def run(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            made = World(tools)
            try:
                await asyncio.wait_for(scenario(made), 20)
            finally:
                await made.service.stop()
            assert not made.faults, made.faults

        asyncio.run(main())

    return run


# ---- a broker that lost touch with the controller


def test_coordinator_past_its_lease_answers_nobody(world: Any) -> None:
    """Another coordinator may have given the member's partitions away, or taken newer commits."""

    async def scenario(w: World) -> None:
        await w.lead()
        joined = await w.beat("m", 0)
        assert joined.error_code == 0
        w.lease.valid = False
        refused = await w.beat("m", joined.member_epoch)
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await w.fetch())[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await w.commit(5, group_id="simple") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        w.lease.valid = True
        assert (await w.beat("m", joined.member_epoch)).error_code == 0

    world(scenario)


def test_members_refused_past_the_lease_are_not_blamed_for_their_silence(world: Any) -> None:
    async def scenario(w: World) -> None:
        await w.lead()
        joined = await w.beat("m", 0)
        w.pass_time(40_000)
        w.lease.valid = False
        refused = await w.beat("m", joined.member_epoch)
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        w.pass_time(60_000)
        w.lease.valid = True
        w.pass_time(1)
        w.pass_time(44_000)
        assert (await w.beat("m", joined.member_epoch)).error_code == 0
        w.pass_time(45_001)
        gone = await w.beat("m", joined.member_epoch)
        assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID, "the session runs again"

    world(scenario)


def test_lapse_between_two_ticks_is_noticed_by_the_refusal_alone(world: Any) -> None:
    async def scenario(w: World) -> None:
        await w.lead()
        joined = await w.beat("m", 0)
        w.lease.valid = False
        w.clock.now_ms += 40_000
        await w.beat("m", joined.member_epoch)
        w.lease.valid = True
        w.pass_time(6_000)
        assert (await w.beat("m", joined.member_epoch)).error_code == 0

    world(scenario)


def test_timers_do_not_spin_while_the_lease_has_lapsed(world: Any) -> None:
    async def scenario(w: World) -> None:
        await w.lead()
        await w.beat("m", 0)
        ticks = 0
        tick = w.service._runtime.tick

        def counted() -> None:
            nonlocal ticks
            ticks += 1
            tick()

        w.service._runtime.tick = counted  # type: ignore[method-assign]
        w.lease.valid = False
        w.clock.now_ms += 100_000
        await w.service.start()
        await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0.05)
        assert ticks <= 2

    world(scenario)


# ---- timers


def test_member_that_was_just_told_its_generation_is_not_expired_by_the_same_late_tick(world: Any) -> None:
    """The loop was held up until both the join phase and a joined member's session were over."""

    async def scenario(w: World) -> None:
        await w.lead()
        leader, absent, generation = await w.stable_pair()
        newcomer = w.join()
        await w.settle()
        w.clock.now_ms += 1_000
        for member in (leader, absent):
            beat = await w.heartbeat(member, generation)
            assert beat.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        rejoin = w.join(leader)
        await w.settle()
        assert not rejoin.done()
        w.clock.now_ms += 10_000
        w.service.tick()
        for answer in (await rejoin, await newcomer):
            assert answer.error_code == 0
            assert answer.generation_id == generation + 1
            beat = await w.heartbeat(answer.member_id, answer.generation_id)
            assert beat.error_code == 0

    world(scenario)


def test_static_member_that_gave_up_its_id_is_sent_to_join_not_fenced(world: Any) -> None:
    """librdkafka forgets its member id when its session ran out, and heartbeats once more before it joins."""

    async def scenario(w: World) -> None:
        await w.lead()
        join = w.join(version=5, group_instance_id="i")
        await w.settle()
        w.pass_time(1)
        member = (await join).member_id
        assert (await w.sync(member, 1)).error_code == 0
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="", group_instance_id="i")
        assert (await w.send(beat, 3)).error_code == unknown
        sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="", group_instance_id="i")
        assert (await w.send(sync, 3)).error_code == unknown
        lost = {"generation_id_or_member_epoch": 1, "member_id": "", "group_instance_id": "i"}
        assert await w.commit(1, **lost) == unknown
        assert (await w.join(version=5, group_instance_id="i")).error_code == 0

    world(scenario)


def test_member_that_did_not_rejoin_is_out_after_the_join_phase(world: Any) -> None:
    async def scenario(w: World) -> None:
        await w.lead()
        _, absent, generation = await w.stable_pair()
        newcomer = w.join()
        await w.settle()
        w.pass_time(10_001)
        assert (await newcomer).generation_id == generation + 1
        assert (await w.heartbeat(absent, generation)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    world(scenario)


def test_background_failure_reaches_the_owner(tools: SimpleNamespace) -> None:
    async def main() -> None:
        w = World(tools)
        w.writer.read = None
        await w.lead()
        ((what, error),) = w.faults
        assert "__consumer_offsets-0" in what
        assert isinstance(error, TypeError)
        await w.service.stop()

    asyncio.run(main())


# ---- floods and sizes


def test_repeated_joins_of_one_member_leave_one_request_waiting(world: Any) -> None:
    """A client that gives up and asks again on a new connection must not pile up requests."""

    async def scenario(w: World) -> None:
        await w.lead()
        leader, other, _ = await w.stable_pair()
        changed = [JoinGroupRequestProtocol(name="range", metadata=b"new")]
        tries = [w.join(leader, protocols=changed) for _ in range(20)]
        await w.settle()
        superseded = [task for task in tries if task.done()]
        assert len(superseded) == 19
        assert {task.result().error_code for task in superseded} == {ErrorCode.REBALANCE_IN_PROGRESS}
        assert (await w.join(other)).error_code == 0
        assert (await tries[-1]).error_code == 0

    world(scenario)


def test_repeated_syncs_of_one_member_leave_one_request_waiting(world: Any) -> None:
    async def scenario(w: World) -> None:
        await w.lead()
        leader, other, _ = await w.stable_pair()
        changed = [JoinGroupRequestProtocol(name="range", metadata=b"new")]
        rejoin = w.join(leader, protocols=changed)
        await w.settle()
        joined = [await w.join(other), await rejoin]
        leader, generation = joined[0].leader, joined[0].generation_id
        (other,) = {a.member_id for a in joined} - {leader}
        tries = [w.sync(other, generation) for _ in range(5)]
        await w.settle()
        assert [task.done() for task in tries] == [True] * 4 + [False]
        assert {task.result().error_code for task in tries[:4]} == {ErrorCode.REBALANCE_IN_PROGRESS}
        assert (await w.sync(leader, generation)).error_code == 0
        assert (await tries[-1]).error_code == 0

    world(scenario)


LONG = "x" * 33_000


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": LONG}, ErrorCode.INVALID_GROUP_ID),
        ({"group_instance_id": LONG}, ErrorCode.INVALID_REQUEST),
        ({"protocol_type": LONG}, ErrorCode.INVALID_REQUEST),
        ({"protocols": [JoinGroupRequestProtocol(name=LONG, metadata=b"")]}, ErrorCode.INVALID_REQUEST),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_join_with_a_name_no_record_can_hold_is_refused(world: Any, fields: Any, code: ErrorCode) -> None:
    async def scenario(w: World) -> None:
        await w.lead()
        join = w.join(**({"version": 9, "group_instance_id": "i"} | fields))
        await w.settle()
        w.pass_time(1)
        w.pass_time(10_001)  # a member that was let in would now be expired, and the group written
        assert (await join).error_code == code

    world(scenario)


def test_heartbeat_and_commit_with_names_no_record_can_hold_are_refused(world: Any) -> None:
    async def scenario(w: World) -> None:
        await w.lead()
        assert (await w.beat(LONG, 0)).error_code == ErrorCode.INVALID_REQUEST
        assert (await w.beat("m", 0, group_id=LONG)).error_code == ErrorCode.INVALID_REQUEST
        assert await w.commit(1, group_id=LONG) == ErrorCode.INVALID_GROUP_ID

    world(scenario)


def test_longest_client_id_still_gets_a_member_id_that_fits(world: Any) -> None:
    async def scenario(w: World) -> None:
        await w.lead()
        w.client_id = "ü" * 16_000
        join = w.join(version=3)
        await w.settle()
        w.pass_time(1)
        answer = await join
        assert answer.error_code == 0
        assert len(answer.encode(3)) > 0
        assert (await w.sync(answer.member_id, answer.generation_id)).error_code == 0

    world(scenario)


def test_zero_rebalance_timeout_does_not_spin_on_an_absent_static_member(world: Any) -> None:
    async def scenario(w: World) -> None:
        await w.lead()
        join = w.join(version=5, group_instance_id="i", rebalance_timeout_ms=0)
        await w.settle()
        w.pass_time(1)
        member = (await join).member_id
        assert (await w.sync(member, 1)).error_code == 0
        passer_by = (await w.join(version=4, rebalance_timeout_ms=0)).member_id
        joining = w.join(passer_by, version=4, rebalance_timeout_ms=0)
        await w.settle()
        leave = LeaveGroupRequest(group_id="g", member_id=passer_by)
        assert (await w.send(leave, 1)).error_code == 0
        assert (await joining).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        fired = 0
        for _ in range(50):
            before = w.service._runtime._next_wake_ms(w.clock.now_ms)
            fired += before <= w.clock.now_ms
            w.service.tick()
        assert fired <= 5

    world(scenario)


def test_endless_new_groups_and_subscriptions_do_not_pile_up_in_memory(tools: SimpleNamespace) -> None:
    """What a view of the topics remembers is bounded, even if the topics never change again."""
    view = TopicsView(tools.make_image({"t": 1}))
    for n in range(3 * MAX_REMEMBERED):
        member = ConsumerMember("m", topic_names=("t", f"t{n}"), topic_regex=f"t{n}.*")
        assert view.subscribed_ids(member) == {tools.topic_id("t")}
        assert view.metadata_hash(ConsumerGroup(f"g{n}")) == 0
    for remembered in (view._by_regex, view._by_subscription, view._hashes):
        assert 0 < len(remembered) <= MAX_REMEMBERED


# ---- metadata


def test_partitions_of_the_topic_decide_where_a_group_lives(world: Any) -> None:
    """The setting only says how the topic is made; what counts is how it was made."""

    async def scenario(w: World) -> None:
        assert w.service.partition_for("group-a") == 0
        w.publish(w.tools.make_image({"t": 4, "__consumer_offsets": 7}, 2))
        found = {w.service.partition_for(f"group-{n}") for n in range(100)}
        assert found == set(range(7))

    world(scenario)


def test_topic_deleted_and_made_anew_while_loading_starts_without_offsets(world: Any) -> None:
    async def scenario(w: World) -> None:
        await w.lead()
        assert await w.commit(100) == 0
        w.service.on_resigned(0)
        w.writer.read_gate = asyncio.Event()
        await w.lead(2)
        w.clock.now_ms += 10
        w.delete_topic("t", {})
        w.publish(w.tools.make_image({"t": 4}, w.image.offset + 1, {"t": 2}))
        w.writer.read_gate.set()
        await w.settle()
        assert await w.fetch() == (0, {})
        assert await w.commit(3) == 0
        w.pass_time(1_000)
        assert await w.fetch() == (0, {0: 3})

    world(scenario)


def test_commit_right_after_a_topic_was_made_anew_outlives_a_late_clean_up(world: Any) -> None:
    """The tombstones for the old topic could not be written at first; same millisecond throughout."""

    async def scenario(w: World) -> None:
        await w.lead()
        assert await w.commit(100) == 0
        w.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
        w.delete_topic("t", {})
        w.publish(w.tools.make_image({"t": 4}, w.image.offset + 1, {"t": 2}))
        w.writer.refuse = None
        assert await w.commit(3) == 0
        w.service.tick()
        assert await w.fetch() == (0, {0: 3})

    world(scenario)


def test_unreadable_records_do_not_keep_a_partition_from_loading(world: Any) -> None:
    async def scenario(w: World) -> None:
        odd: Sequence[tuple[bytes, bytes | None]] = [
            (b"", b""),
            (b"\x00", None),
            (b"\x00\x01\x7f\xff", b"\x00\x03"),
            (b"\x00\x08\x00\x01g\x00\x01m", b"\x00\x00" + b"\xff" * 20),
            (b"\x7f\xff", b"later"),
        ]
        w.writer.append(0, 1, odd, 0)
        await w.lead()
        assert await w.commit(9) == 0
        w.service.on_resigned(0)
        await w.lead(2)
        assert await w.fetch() == (0, {0: 9})

    world(scenario)
