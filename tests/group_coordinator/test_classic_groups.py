"""Classic groups by outcome, through the service on a real event loop with time set by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from pykraft.group_coordinator.config import GroupConfig
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.describe_groups import DescribeGroupsRequest
from pykraft.kafka_protocol.messages.heartbeat import HeartbeatRequest
from pykraft.kafka_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykraft.kafka_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykraft.kafka_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykraft.kafka_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
CONFIG = GroupConfig(offsets_topic_num_partitions=1, initial_rebalance_delay_ms=DELAY_MS, max_size=4)


class Classic:
    """A coordinator of group ``g`` and what clients send to it."""

    def __init__(self, tools: SimpleNamespace, config: GroupConfig = CONFIG) -> None:
        self.tools, self.config = tools, config
        self.clock, self.writer = tools.ManualClock(), tools.MemoryWriter()
        self.service = self._new_service(1)

    def _new_service(self, leader_epoch: int) -> GroupCoordinatorService:
        service = GroupCoordinatorService(self.config, self.writer, self.clock, self.tools.random(1))
        image = self.tools.make_image({"t": 4})
        service.on_metadata(MetadataDelta(EMPTY_IMAGE, image), image)
        service.on_elected(0, leader_epoch)
        return service

    async def fail_over(self) -> None:
        await self.service.stop()
        self.service = self._new_service(2)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def pass_time(self, delay_ms: int) -> None:
        self.clock.now_ms += delay_ms
        self.service.tick()
        await self.settle()

    def send(self, request: Any, version: int) -> asyncio.Task[Any]:
        ctx = RequestContext(client_id="cli", client_address="127.0.0.1")
        return asyncio.ensure_future(self.service.handle(ctx, request, version))

    def join(self, member_id: str = "", *, version: int = 5, **fields: Any) -> asyncio.Task[Any]:
        protocols = fields.pop("protocols", {"range": b"meta"})
        values: dict[str, Any] = {
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
        }
        request = JoinGroupRequest(
            group_id="g",
            member_id=member_id,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols.items()],
            **(values | fields),
        )
        return self.send(request, version)

    async def member_id(self) -> str:
        """The first of the two steps."""
        response = await self.join()
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert response.member_id.startswith("cli-")
        return str(response.member_id)

    def sync(
        self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **fields: Any
    ) -> asyncio.Task[Any]:
        given = [
            SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in (assignments or {}).items()
        ]
        request = SyncGroupRequest(
            group_id="g", member_id=member_id, generation_id=generation, assignments=given, **fields
        )
        return self.send(request, 5)

    async def heartbeat(self, member_id: str, generation: int, **fields: Any) -> int:
        request = HeartbeatRequest(group_id="g", member_id=member_id, generation_id=generation, **fields)
        return int((await self.send(request, 4)).error_code)

    async def leave(self, *identities: MemberIdentity) -> Any:
        return await self.send(LeaveGroupRequest(group_id="g", members=list(identities)), 5)

    async def commit(self, member_id: str, generation: int) -> int:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
        topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
        request = OffsetCommitRequest(
            group_id="g", member_id=member_id, generation_id_or_member_epoch=generation, topics=[topic]
        )
        return int((await self.send(request, 8)).topics[0].partitions[0].error_code)

    async def state(self) -> Any:
        return (await self.send(DescribeGroupsRequest(groups=["g"]), 5)).groups[0]

    async def stable_pair(self) -> tuple[str, str]:
        """Two members in generation 1: the leader and the other one."""
        first, second = await self.member_id(), await self.member_id()
        joins = [self.join(first), self.join(second)]
        await self.settle()
        await self.pass_time(DELAY_MS)
        await self.pass_time(DELAY_MS)
        answers = {answer.member_id: answer for answer in await asyncio.gather(*joins)}
        leader = answers[first].leader
        other = second if leader == first else first
        assert {m.member_id for m in answers[leader].members} == {first, second}
        assert answers[other].members == []
        waiting = self.sync(other, 1)
        await self.settle()
        assert not waiting.done()
        handed_in = await self.sync(leader, 1, {leader: b"L", other: b"O"})
        assert (handed_in.assignment, (await waiting).assignment) == (b"L", b"O")
        return leader, other


@pytest.fixture
def classic(tools: SimpleNamespace) -> Callable[[Callable[[Classic], Coroutine[Any, Any, None]]], None]:
    def run(scenario: Callable[[Classic], Coroutine[Any, Any, None]], config: GroupConfig = CONFIG) -> None:
        async def main() -> None:
            world = Classic(tools, config)
            await world.settle()
            try:
                await scenario(world)
            finally:
                await world.service.stop()

        asyncio.run(main())

    return run


def test_two_members_join_in_two_steps_and_get_their_assignments(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        group = await world.state()
        assert (group.group_state, group.protocol_data) == ("Stable", "range")
        assert {m.member_id: m.member_assignment for m in group.members} == {leader: b"L", other: b"O"}
        assert await world.heartbeat(leader, 1) == 0

    classic(scenario)


def test_old_client_without_a_member_id_is_let_in_at_once(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        join = world.join(version=3)
        await world.settle()
        await world.pass_time(DELAY_MS)
        response = await join
        assert (response.error_code, response.generation_id, response.leader) == (0, 1, response.member_id)

    classic(scenario)


def test_first_rebalance_waits_longer_while_new_members_come(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        first, second = await world.member_id(), await world.member_id()
        joins = [world.join(first)]
        await world.settle()
        await world.pass_time(DELAY_MS - 1)
        joins.append(world.join(second))
        await world.settle()
        await world.pass_time(1)
        assert not any(join.done() for join in joins)
        await world.pass_time(DELAY_MS)
        assert [join.result().generation_id for join in joins] == [1, 1]

    classic(scenario)


def test_leaving_member_makes_the_others_rebalance(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        answer = await world.leave(MemberIdentity(member_id=other))
        assert [m.error_code for m in answer.members] == [0]
        assert await world.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        response = await world.join(leader)
        assert (response.generation_id, len(response.members)) == (2, 1)
        assert await world.heartbeat(other, 1) == ErrorCode.UNKNOWN_MEMBER_ID

    classic(scenario)


def test_leader_that_leaves_is_replaced(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        await world.leave(MemberIdentity(member_id=leader))
        response = await world.join(other)
        assert (response.leader, response.generation_id) == (other, 2)

    classic(scenario)


def test_leader_that_dies_before_handing_in_is_given_up_on(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        rejoin_leader = world.join(leader)
        rejoin_other = world.join(other)
        await asyncio.gather(rejoin_leader, rejoin_other)
        waiting = world.sync(other, 2)
        await world.settle()
        await world.pass_time(SESSION_MS)
        assert (await waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        response = await world.join(other)
        assert (response.leader, response.generation_id) == (other, 3)

    classic(scenario)


def test_silent_member_is_removed_and_the_rest_rebalances(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        await world.pass_time(SESSION_MS - 1)
        assert await world.heartbeat(leader, 1) == 0
        await world.pass_time(1)
        assert await world.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        assert await world.heartbeat(other, 1) == ErrorCode.UNKNOWN_MEMBER_ID

    classic(scenario)


def test_member_that_does_not_rejoin_in_time_is_dropped(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        join = world.join(leader)
        await world.settle()
        for _ in range(REBALANCE_MS // 5_000):
            assert await world.heartbeat(other, 1) == ErrorCode.REBALANCE_IN_PROGRESS
            assert not join.done()
            await world.pass_time(5_000)
        assert (await join).generation_id == 2
        assert await world.heartbeat(other, 1) == ErrorCode.UNKNOWN_MEMBER_ID

    classic(scenario)


def test_member_that_never_fetches_its_assignment_is_removed(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        await asyncio.gather(world.join(leader), world.join(other))
        await world.sync(leader, 2, {leader: b"L"})
        for _ in range(REBALANCE_MS // 5_000):
            await world.heartbeat(leader, 2)
            await world.heartbeat(other, 2)
            await world.pass_time(5_000)
        assert await world.heartbeat(leader, 2) == ErrorCode.REBALANCE_IN_PROGRESS
        assert await world.heartbeat(other, 2) == ErrorCode.UNKNOWN_MEMBER_ID

    classic(scenario)


def test_generation_and_assignment_survive_a_failover(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        await world.fail_over()
        assert await world.heartbeat(leader, 1) == 0
        assert await world.heartbeat(leader, 2) == ErrorCode.ILLEGAL_GENERATION
        assert (await world.sync(other, 1)).assignment == b"O"
        assert await world.commit(other, 1) == 0
        await world.pass_time(SESSION_MS - 1)
        assert (await world.state()).group_state == "Stable"

    classic(scenario)


def test_unfinished_rebalance_is_forgotten_by_a_failover(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        await asyncio.gather(world.join(leader), world.join(other))
        waiting = world.sync(other, 2)
        await world.settle()
        await world.fail_over()
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
        assert (await world.sync(other, 2)).error_code == ErrorCode.ILLEGAL_GENERATION

    classic(scenario)


def test_repeated_join_gets_the_same_generation_again(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        await asyncio.gather(world.join(leader), world.join(other))
        again = await world.join(leader)
        assert (again.generation_id, len(again.members)) == (2, 2)
        assert (await world.join(other)).generation_id == 2

    classic(scenario)


def test_stable_follower_that_repeats_its_join_disturbs_nobody(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        assert (await world.join(other)).generation_id == 1
        assert await world.heartbeat(leader, 1) == 0

    classic(scenario)


def test_changed_subscription_rebalances(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        join = world.join(other, protocols={"range": b"other topics"})
        await world.settle()
        assert not join.done()
        assert await world.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS

    classic(scenario)


def test_protocol_is_chosen_among_common_ones_by_vote(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        ids = [await world.member_id() for _ in range(3)]
        joins = []
        for protocols in (
            {"a": b"", "b": b""},
            {"b": b"", "a": b"", "c": b""},
            {"c": b"", "b": b"", "a": b""},
        ):
            joins.append(world.join(ids[len(joins)], protocols=protocols))
        await world.settle()
        await world.pass_time(DELAY_MS)
        await world.pass_time(DELAY_MS)
        assert {(await join).protocol_name for join in joins} == {"b"}

    classic(scenario)


@pytest.mark.parametrize(
    "fields", [{"protocols": {"other": b""}}, {"protocols": {}}, {"protocol_type": "connect"}]
)
def test_member_without_a_common_protocol_is_refused(classic: Any, fields: dict[str, Any]) -> None:
    async def scenario(world: Classic) -> None:
        await world.stable_pair()
        assert (await world.join(**fields)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    classic(scenario)


@pytest.mark.parametrize(
    ("member_id", "fields", "code"),
    [
        ("", {"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ("", {"session_timeout_ms": 10**7}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ("nobody", {}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_join_that_cannot_be_is_refused(
    classic: Any, member_id: str, fields: dict[str, Any], code: ErrorCode
) -> None:
    async def scenario(world: Classic) -> None:
        assert (await world.join(member_id, **fields)).error_code == code

    classic(scenario)


def test_full_group_takes_no_more(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        for _ in range(4):
            await world.member_id()
        assert (await world.join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        await world.pass_time(SESSION_MS)
        await world.member_id()

    classic(scenario)


def test_sync_and_heartbeat_of_strangers_are_refused(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        assert await world.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
        leader, _ = await world.stable_pair()
        assert (await world.sync("nobody", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await world.sync(leader, 9)).error_code == ErrorCode.ILLEGAL_GENERATION
        refused = await world.sync(leader, 1, protocol_name="sticky")
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    classic(scenario)


def test_last_member_leaves_an_empty_group_with_its_generation(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        await world.leave(MemberIdentity(member_id=leader), MemberIdentity(member_id=other))
        assert (await world.state()).group_state == "Empty"
        await world.fail_over()
        assert (await world.state()).group_state == "Empty"
        join = world.join(await world.member_id())
        await world.settle()
        await world.pass_time(DELAY_MS)
        assert (await join).generation_id == 3

    classic(scenario)


def test_commit_needs_the_current_generation(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        assert await world.commit(leader, 1) == 0
        assert await world.commit(leader, 0) == ErrorCode.ILLEGAL_GENERATION
        assert await world.commit("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await world.commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
        await asyncio.gather(world.join(leader), world.join(other))
        assert await world.commit(leader, 2) == ErrorCode.REBALANCE_IN_PROGRESS

    classic(scenario)


# ---- static members


async def static_pair(world: Classic) -> dict[str, str]:
    """Two static members in generation 1, by instance id; i0 leads."""
    joins = [world.join(group_instance_id=f"i{i}") for i in range(2)]
    await world.settle()
    await world.pass_time(DELAY_MS)
    await world.pass_time(DELAY_MS)
    answers = await asyncio.gather(*joins)
    ids = {f"i{i}": answer.member_id for i, answer in enumerate(answers)}
    assert answers[0].leader == ids["i0"]
    syncs = [world.sync(ids["i1"], 1, group_instance_id="i1")]
    syncs.append(world.sync(ids["i0"], 1, {ids["i0"]: b"0", ids["i1"]: b"1"}, group_instance_id="i0"))
    assert [answer.assignment for answer in await asyncio.gather(*syncs)] == [b"1", b"0"]
    return ids


def test_restarted_static_member_keeps_its_assignment_without_a_rebalance(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        ids = await static_pair(world)
        answer = await world.join(group_instance_id="i1")
        assert (answer.error_code, answer.generation_id) == (0, 1)
        assert answer.member_id != ids["i1"]
        assert (await world.sync(answer.member_id, 1, group_instance_id="i1")).assignment == b"1"
        assert await world.heartbeat(ids["i0"], 1, group_instance_id="i0") == 0
        fenced = await world.heartbeat(ids["i1"], 1, group_instance_id="i1")
        assert fenced == ErrorCode.FENCED_INSTANCE_ID
        await world.fail_over()
        assert await world.heartbeat(answer.member_id, 1, group_instance_id="i1") == 0

    classic(scenario)


def test_restarted_static_leader_does_not_assign_again(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        ids = await static_pair(world)
        old = await world.join(group_instance_id="i0", version=5)
        assert (old.leader, old.members) == (ids["i0"], [])
        new = await world.join(group_instance_id="i0", version=9)
        assert (new.leader, new.skip_assignment, len(new.members)) == (new.member_id, True, 2)

    classic(scenario)


def test_static_member_leaves_by_its_instance_id(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        ids = await static_pair(world)
        answer = await world.leave(
            MemberIdentity(member_id="", group_instance_id="i1"),
            MemberIdentity(member_id="x", group_instance_id="i0"),
            MemberIdentity(member_id="", group_instance_id="nope"),
        )
        codes = [m.error_code for m in answer.members]
        assert codes == [0, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID]
        rebalancing = await world.heartbeat(ids["i0"], 1, group_instance_id="i0")
        assert rebalancing == ErrorCode.REBALANCE_IN_PROGRESS

    classic(scenario)


def test_rebalance_waits_for_an_absent_static_member_until_its_session_ends(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        ids = await static_pair(world)
        join = world.join(ids["i0"], group_instance_id="i0", session_timeout_ms=SESSION_MS)
        await world.settle()
        await world.pass_time(SESSION_MS - 1)
        assert not join.done()
        await world.pass_time(1)
        answer = await join
        assert len(answer.members) == 1, "its session had ended"

    classic(scenario)


def test_absent_static_leader_keeps_its_place_but_not_the_lead(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        long = {"session_timeout_ms": 2 * REBALANCE_MS}
        joins = [world.join(group_instance_id=f"i{i}", **long) for i in range(2)]
        await world.settle()
        await world.pass_time(DELAY_MS)
        await world.pass_time(DELAY_MS)
        leader, other = [answer.member_id for answer in await asyncio.gather(*joins)]
        await world.sync(leader, 1, group_instance_id="i0")
        await world.sync(other, 1, group_instance_id="i1")
        changed = world.join(other, group_instance_id="i1", protocols={"range": b"changed"}, **long)
        await world.settle()
        await world.pass_time(REBALANCE_MS)
        answer = await changed
        assert (answer.generation_id, answer.leader) == (2, other)
        assert {m.member_id for m in answer.members} == {leader, other}

    classic(scenario)


def test_rebalance_waits_for_a_member_that_was_given_an_id(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        newcomer = await world.member_id()
        joins = [world.join(leader), world.join(other)]
        await world.settle()
        assert not any(join.done() for join in joins)
        joins.append(world.join(newcomer))
        assert {answer.generation_id for answer in await asyncio.gather(*joins)} == {2}

    classic(scenario)


def test_member_that_never_comes_back_with_its_id_is_not_waited_for_long(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        await world.member_id()
        joins = [world.join(leader), world.join(other)]
        await world.settle()
        await world.pass_time(SESSION_MS)
        assert {answer.generation_id for answer in await asyncio.gather(*joins)} == {2}

    classic(scenario)


def test_assignment_is_not_told_before_it_is_replicated(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        await asyncio.gather(world.join(leader), world.join(other))
        world.writer.hold = True
        syncs = [world.sync(other, 2), world.sync(leader, 2, {leader: b"L2", other: b"O2"})]
        await world.settle()
        assert not any(sync.done() for sync in syncs)
        end = len(world.writer.logs[0])
        world.writer.watermarks[0] = end
        world.service.on_high_watermark(0, end)
        assert [answer.assignment for answer in await asyncio.gather(*syncs)] == [b"O2", b"L2"]

    classic(scenario)


def test_assignment_that_cannot_be_written_is_not_handed_out(classic: Any) -> None:
    async def scenario(world: Classic) -> None:
        leader, other = await world.stable_pair()
        await asyncio.gather(world.join(leader), world.join(other))
        world.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
        waiting = world.sync(other, 2)
        refused = await world.sync(leader, 2, {leader: b"L2", other: b"O2"})
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not waiting.done()
        world.writer.refuse = None
        assert (await world.sync(leader, 2, {leader: b"L2", other: b"O2"})).assignment == b"L2"
        assert (await waiting).assignment == b"O2"

    classic(scenario)
