"""A group member: what it owns and when, what it reads and commits, in both protocols.

It is long because most tests run for every kind of member (classic range, cooperative, KIP-848).
"""

import asyncio
from collections.abc import Collection
from typing import TypeVar, Unpack

import pytest

from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.errors import CommitRefusedError, CommitUnknownError, OffsetOutOfRangeError
from pykraft.kafka_client.group.member import GroupConfig, GroupMember, OffsetAndMetadata
from pykraft.kafka_client.group.ownership import Ownership
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.messages.offsets import OffsetCommitRequest
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from tests.asynchronous import in_loop
from tests.kafka_client.group_world import (
    HEARTBEAT_MS,
    SESSION_MS,
    GroupWorld,
    Kind,
    MemberSettings,
    running_group,
)
from tests.kafka_client.scripted import ScriptedCluster
from tests.kafka_client.virtual_cluster import run_virtual
from tests.narrowing import present

KINDS: dict[str, Kind] = {
    "consumer": ("consumer", None),
    "range": ("classic", "range"),
    "cooperative": ("classic", "cooperative-sticky"),
}
every_kind = pytest.mark.parametrize("kind", [pytest.param(kind, id=name) for name, kind in KINDS.items()])
incremental = pytest.mark.parametrize(
    "kind", [pytest.param(KINDS[name], id=name) for name in ("consumer", "cooperative")]
)
T0 = TopicPartition("t", 0)
T = TypeVar("T")
CONSUMER: Kind = ("consumer", None)
LEASE_S = SESSION_MS * 0.9 / 1000


world = in_loop(running_group, VirtualLoop)


async def stable(
    world: GroupWorld, kind: Kind, count: int = 2, **settings: Unpack[MemberSettings]
) -> list[GroupMember]:
    """Members that share the topic."""
    members = [world.join(*kind, **settings) for _ in range(count)]
    await world.until(world.is_shared)
    return members


@every_kind
async def test_a_member_alone_owns_everything(world: GroupWorld, kind: Kind) -> None:
    (member,) = await stable(world, kind, 1)
    seat = world.seats[member]
    assert seat.events == [("assigned", (0, 1, 2, 3, 4, 5))]
    sent_ms, member_id, epoch = seat.heartbeats[-1]
    assert (member_id, epoch) == (member.identity.member_id, member.identity.member_epoch)
    assert sent_ms <= world.network.now_ms()


@incremental
async def test_a_newcomer_gets_what_the_other_revoked_and_nothing_else_moves(
    world: GroupWorld, kind: Kind
) -> None:
    (first,) = await stable(world, kind, 1)
    second = world.join(*kind)
    await world.until(world.is_shared)
    (_, given) = world.seats[first].events[1]
    assert [what for what, _ in world.seats[first].events] == ["assigned", "revoked"]
    assert world.seats[second].events == [("assigned", given)]


async def test_an_eager_member_revokes_everything_for_a_newcomer(world: GroupWorld) -> None:
    (first,) = await stable(world, KINDS["range"], 1)
    world.join(*KINDS["range"])
    await world.until(world.is_shared)
    assert world.seats[first].events[1] == ("revoked", (0, 1, 2, 3, 4, 5))
    assert len(world.seats[first].events) == 3


@every_kind
async def test_partitions_of_a_member_that_leaves_are_assigned_to_the_other_at_once(
    world: GroupWorld, kind: Kind
) -> None:
    leaving, staying = await stable(world, kind)
    seat = world.seats[leaving]
    await world.leave(leaving)
    assert seat.events[-1][0] == "revoked"
    assert leaving.owned == frozenset()
    took_s = await world.until(world.is_shared)
    assert took_s <= 3 * HEARTBEAT_MS / 1000
    assert len(staying.owned) == 6


@every_kind
@pytest.mark.parametrize("fault", ["lost", "unanswered"])
async def test_without_answers_a_member_stops_believing_before_the_others_get_its_partitions(
    world: GroupWorld, kind: Kind, fault: str
) -> None:
    cut, staying = await stable(world, kind)
    await asyncio.sleep(5)
    mine = cut.identity.member_id
    world.fault = lambda _, request: fault if getattr(request, "member_id", "") == mine else None
    seat = world.seats[cut]
    await world.until(lambda: seat.events[-1][0] == "lost", 20)
    assert world.loop.time() == pytest.approx(seat.heartbeats[-1][0] / 1000 + LEASE_S, abs=0.051)
    if fault == "lost":
        await world.until(lambda: len(staying.owned) == 6, 20)
    world.fault = lambda _, request: None
    await world.until(world.is_shared)


@every_kind
async def test_the_lease_runs_from_when_a_request_was_sent_not_from_its_answer(
    world: GroupWorld, kind: Kind
) -> None:
    (member,) = await stable(world, kind, 1)
    arrivals: list[float] = []

    def slow_once(broker_id: int, request: Message) -> str:
        if getattr(request, "member_id", "") != member.identity.member_id or len(arrivals) > 1:
            return "lost"
        arrivals.append(world.loop.time())
        return "slow"

    world.fault = slow_once
    await world.until(lambda: world.seats[member].events[-1][0] == "lost", 20)
    assert len(arrivals) == 2
    assert world.loop.time() <= arrivals[1] + LEASE_S + 0.051


@every_kind
async def test_partitions_lost_in_a_lapse_are_owned_again_if_the_coordinator_has_not_noticed(
    world: GroupWorld, kind: Kind
) -> None:
    """The session runs from the last request that reached the coordinator, the lease from the last answer."""
    first, _ = await stable(world, kind)
    seat, held = world.seats[first], first.owned
    mine = first.identity.member_id
    world.fault = lambda _, request: "unanswered" if getattr(request, "member_id", "") == mine else None
    await world.until(lambda: seat.events[-1][0] == "lost", 20)
    world.fault = lambda _, request: None
    await world.until(lambda: first.owned == held, 20)
    assert [what for what, _ in seat.events[-2:]] == ["lost", "assigned"]


@every_kind
async def test_a_moved_coordinator_costs_nothing(world: GroupWorld, kind: Kind) -> None:
    members = await stable(world, kind)
    events = [len(world.seats[member].events) for member in members]
    for broker_id in (2, 3, 1):
        world.move_coordinator(broker_id)
        await asyncio.sleep(7)
    assert [len(world.seats[member].events) for member in members] == events
    assert world.is_shared()
    assert all(world.seats[m].heartbeats[-1][0] >= world.network.now_ms() - 2_000 for m in members)


@every_kind
async def test_a_member_that_the_coordinator_removed_loses_everything_and_joins_again(
    world: GroupWorld, kind: Kind
) -> None:
    """Its coordinator removed it, for example after a long silence."""
    (member,) = await stable(world, kind, 1)
    old = member.identity
    world.writer.logs.clear()
    world.writer.watermarks.clear()
    world.move_coordinator(2)
    seat = world.seats[member]
    await world.until(lambda: seat.events[-1][0] == "assigned" and len(seat.events) == 3)
    assert seat.events[1] == ("lost", (0, 1, 2, 3, 4, 5))
    if kind[0] == "consumer":
        assert member.identity.member_id == old.member_id
    else:
        assert member.identity.member_id != old.member_id


async def test_a_partition_stays_the_members_until_the_application_has_released_it(world: GroupWorld) -> None:
    (first,) = await stable(world, CONSUMER, 1)
    seat = world.seats[first]
    seat.while_revoking = lambda: asyncio.sleep(7)
    second = world.join(*CONSUMER)
    await asyncio.sleep(5)
    assert len(first.owned) == 6, "heartbeats continue meanwhile and extend the lease"
    assert second.owned == frozenset()
    await world.until(world.is_shared)
    assert [what for what, _ in seat.events] == ["assigned", "revoked"]


async def test_an_assignment_that_went_to_a_request_given_up_long_ago_is_told_again(
    world: GroupWorld,
) -> None:
    """The coordinator tells of it once, in the answer to a request that it gets late."""
    (first,) = await stable(world, CONSUMER, 1)
    given_up: list[Message] = []

    def lose_one(broker_id: int, request: Message) -> str | None:
        if given_up or getattr(request, "member_id", None) in (None, first.identity.member_id):
            return None
        given_up.append(request)
        return "lost"

    world.fault = lose_one
    await asyncio.sleep(HEARTBEAT_MS / 2000)  # so that the members do not send at the same times
    second = world.join(*CONSUMER, metadata_max_age_ms=5_000)
    await world.until(lambda: world.seats[first].events[-1][0] == "revoked", 20)
    await asyncio.sleep(0.1)  # the coordinator knows
    await world._serve(world.coordinator, given_up[0], 1)
    await asyncio.sleep(3)
    assert second.owned == frozenset()
    await world.until(world.is_shared, 4)


async def test_an_application_that_does_not_release_in_time_loses_everything(world: GroupWorld) -> None:
    """The coordinator waits for ``max.poll.interval.ms`` and then removes the member."""
    (first,) = await stable(world, CONSUMER, 1)
    seat = world.seats[first]
    seat.while_revoking = lambda: asyncio.sleep(40)
    world.join(*CONSUMER)
    assert await world.until(lambda: seat.events[-1][0] == "lost") < 10
    await world.until(world.is_shared)


@every_kind
async def test_a_static_member_finds_its_partitions_again_and_the_other_notices_nothing(
    world: GroupWorld, kind: Kind
) -> None:
    first = world.join(*kind, group_instance_id="one")
    second = world.join(*kind, group_instance_id="two")
    await world.until(world.is_shared)
    held, events = first.owned, len(world.seats[second].events)
    await world.leave(first)
    await asyncio.sleep(1)
    again = world.join(*kind, group_instance_id="one")
    await world.until(world.is_shared)
    assert again.owned == held
    assert len(world.seats[second].events) == events


@every_kind
async def test_a_second_process_of_a_static_member_does_not_own_what_the_first_does(
    world: GroupWorld, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the classic protocol it takes over; in the consumer protocol it waits until the place is free."""
    first = world.join(*kind, group_instance_id="one")
    await world.until(world.is_shared)
    seat = world.seats[first]
    second = world.join(*kind, group_instance_id="one")
    if kind[0] == "classic":
        # The first process learns it at its next heartbeat: KIP-345 has no way to tell it earlier.
        monkeypatch.setattr(world, "check", lambda: None)
        await world.until(lambda: first.fatal is not None)
        assert present(first.fatal).code is ErrorCode.FENCED_INSTANCE_ID
        assert seat.events[-1][0] == "lost"
    else:
        await asyncio.sleep(5)
        assert second.owned == frozenset() and second.fatal is None
        world.abandon(first)
    await world.until(lambda: len(second.owned) == 6)


async def test_members_that_cannot_agree_on_an_assignor_get_an_error(world: GroupWorld) -> None:
    await stable(world, KINDS["range"], 1)
    other = world.join(*KINDS["cooperative"])
    await world.until(lambda: other.fatal is not None)
    with pytest.raises(KafkaError) as caught:
        await other.poll(100)
    assert caught.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("kind", [KINDS["range"], KINDS["cooperative"]], ids=["range", "cooperative"])
async def test_the_leader_of_a_classic_group_notices_more_partitions(
    world: GroupWorld, scripted: ScriptedCluster, kind: Kind
) -> None:
    await stable(world, kind, metadata_max_age_ms=3_000)
    scripted.leaders["t"] |= {6: (1, 0), 7: (1, 0)}
    world.values |= {6: [], 7: []}
    await world.until(world.is_shared)


async def test_partitions_that_were_lost_during_a_rebalance_that_moves_them_find_an_owner(
    world: GroupWorld,
) -> None:
    """The leader expects a member to revoke partitions that the member has already lost."""
    kind = KINDS["cooperative"]
    (member,) = await stable(world, kind, 1)
    silent = world.join(*kind, topics=("other",))
    await world.until(lambda: world.seats[silent].heartbeats != [], 20)
    await world.until(lambda: world.seats[silent].heartbeats[-1][0] + 50 > world.network.now_ms(), 20)
    world.abandon(silent)  # the rebalance waits until its session ends
    world.join(*kind)
    await world.until(lambda: world.seats[member].events[-1][0] == "lost", 20)
    await world.until(world.is_shared)


@every_kind
async def test_an_unsubscribed_topic_is_revoked(world: GroupWorld, kind: Kind) -> None:
    (member,) = await stable(world, kind, 1)
    member.subscribe(["nothing"])
    await world.until(lambda: not member.owned, 10)
    member.subscribe(["t"])
    await world.until(world.is_shared, 10)
    assert [what for what, _ in world.seats[member].events] == ["assigned", "revoked", "assigned"]


async def read(member: GroupMember, count: int, timeout_s: float = 20) -> dict[int, list[str]]:
    """Poll until ``count`` values have been read in all; the values by partition."""
    found: dict[int, list[str]] = {}
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    while sum(len(values) for values in found.values()) < count:
        assert loop.time() < end, found
        for where, polled in (await member.poll(500)).items():
            found.setdefault(where.partition, []).extend(present(r.value).decode() for r in polled.records)
    return found


@every_kind
async def test_a_member_continues_where_the_group_committed(world: GroupWorld, kind: Kind) -> None:
    world.values |= {0: [b"a", b"b", b"c"], 5: [b"x"]}
    first = world.join(*kind)
    assert await read(first, 4) == {0: ["a", "b", "c"], 5: ["x"]}
    await first.commit({T0: OffsetAndMetadata(2, 0, "tag")})
    assert (await first.committed([T0]))[T0].offset == 2
    assert (await first.committed([T0]))[T0].metadata == "tag"
    await world.leave(first)
    second = world.join(*kind)
    assert await read(second, 2) == {0: ["c"], 5: ["x"]}
    second.seek(T0, 1)
    assert await read(second, 2) == {0: ["b", "c"]}
    with pytest.raises(KafkaError, match="not owned"):
        second.seek(TopicPartition("t", 9), 0)


@every_kind
async def test_a_lost_position_costs_other_partitions_no_record(world: GroupWorld, kind: Kind) -> None:
    world.values |= {partition: [b"a", b"b"] for partition in range(6)}
    (member,) = await stable(world, kind, 1)
    await read(member, 12)
    member.seek(TopicPartition("t", 3), 9)
    found: dict[int, int] = {}
    lost = 0
    for turn in range(12):
        for values in world.values.values():
            values.append(b"%d" % turn)
        try:
            polled = await member.poll(100)
        except OffsetOutOfRangeError:
            lost += 1
            continue
        for where, one in polled.items():
            if where.partition != 3:
                assert one.records[0].offset == found.get(where.partition, 2)
                found[where.partition] = one.next_offset
    assert lost == 1
    assert set(found) == {0, 1, 2, 4, 5}


@every_kind
async def test_a_committed_offset_outside_the_log_is_not_asked_for_again(
    world: GroupWorld, kind: Kind
) -> None:
    world.values |= {0: [b"a", b"b"]}
    (member,) = await stable(world, kind, 1)
    await member.commit({T0: OffsetAndMetadata(9)})
    with pytest.raises(OffsetOutOfRangeError):
        await read(member, 1)
    assert await read(member, 2) == {0: ["a", "b"]}


@every_kind
@pytest.mark.world(partitions=2)
async def test_records_of_a_partition_revoked_and_assigned_again_during_a_poll_are_not_skipped(
    world: GroupWorld, kind: Kind
) -> None:
    (member,) = await stable(world, kind, 1)
    await member.poll(0)  # finds where to begin
    world.values[0] += [b"a", b"b"]
    world.fetch_takes_ms[1] = 900  # asked after the other one, which has answered by then
    polling = asyncio.ensure_future(member.poll(0))
    await asyncio.sleep(0.1)
    member.subscribe(["nothing"])
    await world.until(lambda: not member.owned, 0.5)
    assert await polling == {}
    member.subscribe(["t"])
    await world.until(world.is_shared, 10)
    assert await read(member, 2) == {0: ["a", "b"]}


@every_kind
async def test_nothing_is_read_from_partitions_that_are_being_revoked(world: GroupWorld, kind: Kind) -> None:
    (first,) = await stable(world, kind, 1)
    seat = world.seats[first]
    polled_while_revoking = []

    async def poll() -> None:
        world.values[0].append(b"late")
        world.values[5].append(b"late")
        polled_while_revoking.append(await first.poll(1_000))

    seat.while_revoking = poll
    world.join(*kind)
    await world.until(lambda: bool(polled_while_revoking))
    await world.until(world.is_shared)
    given = next(partitions for what, partitions in seat.events if what == "revoked")
    assert not {where.partition for where in polled_while_revoking[0]} & set(given)


@every_kind
async def test_a_commit_of_a_fenced_member_is_refused(world: GroupWorld, kind: Kind) -> None:
    cut, staying = await stable(world, kind)
    mine = cut.identity.member_id
    world.fault = lambda _, request: "lost" if getattr(request, "member_id", "") == mine else None
    await world.until(lambda: len(staying.owned) == 6, 20)
    world.fault = lambda _, request: (
        "lost"
        if getattr(request, "member_id", "") == mine and not isinstance(request, OffsetCommitRequest)
        else None
    )
    with pytest.raises(CommitRefusedError) as caught:
        await cut.commit({T0: OffsetAndMetadata(7)}, 5_000)
    assert T0 not in await staying.committed([T0])
    notified = caught.value.code
    assert notified in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH)


@every_kind
@pytest.mark.parametrize("fault", ["lost", "unanswered", "broken"])
async def test_a_commit_without_an_answer_is_not_sent_again(
    world: GroupWorld, scripted: ScriptedCluster, kind: Kind, fault: str
) -> None:
    """It may still be carried out, perhaps after a later one."""
    (member,) = await stable(world, kind, 1)
    world.fault = lambda _, request: fault if request.API_KEY == ApiKey.OFFSET_COMMIT else None
    with pytest.raises(CommitUnknownError):
        await member.commit({T0: OffsetAndMetadata(7)}, 30_000)
    world.fault = lambda _, request: None
    committed = await member.committed([T0])
    assert (T0 in committed) == (fault != "lost")
    assert len(scripted.requests(ApiKey.OFFSET_COMMIT)) == 1


@every_kind
async def test_a_commit_finds_a_coordinator_that_has_moved(world: GroupWorld, kind: Kind) -> None:
    (member,) = await stable(world, kind, 1)
    await member.commit({T0: OffsetAndMetadata(1)})
    world.move_coordinator(3)
    await member.commit({T0: OffsetAndMetadata(2)})
    assert (await member.committed([T0]))[T0].offset == 2


def test_an_answer_that_arrives_after_the_lease_extends_nothing() -> None:
    """The coordinator may have removed the member, and let it in again, in between."""

    async def main() -> None:
        network = AsyncioNetwork()
        ownership = Ownership(network, Quiet(), 1_000)
        await network.sleep(5_000)
        assert not ownership.renew(4_000, "m", 1)
        assert not ownership.take({T0: ZERO_UUID})
        assert ownership.renew(4_001, "m", 1)
        assert ownership.take({T0: ZERO_UUID})
        await network.sleep(1)
        assert T0 not in ownership.held()

    run_virtual(main())


class ContradictingSettings(MemberSettings, total=False):
    assignor: str


class Quiet:
    def assigned(self, partitions: Collection[TopicPartition]) -> None: ...

    async def revoked(self, partitions: Collection[TopicPartition]) -> None: ...

    def lost(self, partitions: Collection[TopicPartition]) -> None: ...

    def heartbeat(self, sent_ms: int, member_id: str, member_epoch: int) -> None: ...


@pytest.mark.parametrize(
    "settings",
    [{"assignor": "uniform"}, {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 3_000}],
)
def test_contradicting_settings_are_refused(settings: ContradictingSettings) -> None:
    with pytest.raises(ValueError, match=r"assignor|heartbeat"):
        GroupConfig("g", ("t",), "classic", **settings)
