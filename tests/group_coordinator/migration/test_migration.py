"""Groups that change their protocol while they run: upgrade, members of both kinds, downgrade (G5)."""

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import MemberIdentity
from tests.asynchronous import in_loop
from tests.group_coordinator.fleet import (
    CONSUMER_SESSION_MS,
    REBALANCE_MS,
    SESSION_MS,
    Fleet,
    assignment,
    owned_by,
    running_fleet,
    subscription,
)
from tests.waits import settle

fleet = in_loop(running_fleet)
COOPERATIVE = {"cooperative-sticky": subscription()}


async def test_a_fleet_is_upgraded_and_downgraded_member_by_member(fleet: Fleet) -> None:
    leader, other = await fleet.pair()
    assert await fleet.heartbeat(leader, 2) == 0

    first = await fleet.beat("new")
    assert (first.error_code, first.member_epoch, owned_by(first)) == (0, 3, set()), "all are still held"
    assert await fleet.group_type() == "consumer"
    assert await fleet.described() == {
        leader: (2, 0, {0, 1}),
        other: (2, 0, {2, 3}),
        "new": (3, 1, set()),
    }

    for member in (leader, other):
        assert await fleet.heartbeat(member, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    # Eager members have revoked everything when they join.
    joined = await fleet.rejoin(leader)
    assert (joined.error_code, joined.generation_id, joined.leader, joined.members) == (0, 3, "", [])
    assert await fleet.assigned(leader, 3) == {0}
    joined = await fleet.rejoin(other)
    assert await fleet.assigned(other, joined.generation_id) == {2, 3}
    assert owned_by(await fleet.beat("new", 3, set())) == {1}
    assert await fleet.heartbeat(leader, 3) == 0

    # The fleet is upgraded one by one: a member leaves and comes back with the other protocol.
    await fleet.leave(MemberIdentity(member_id=leader))
    second = await fleet.beat("second")
    await fleet.leave(MemberIdentity(member_id=other))
    assert await fleet.group_type() == "consumer"
    third = await fleet.beat("third")
    assert second.error_code == third.error_code == 0
    assert all(kind == 1 for _, kind, _ in (await fleet.described()).values())

    # And back: two are replaced by classic members, then the last one leaves.
    await fleet.beat("new", -1)
    back = (await fleet.join(version=3)).member_id
    await fleet.beat("second", -1)
    assert await fleet.group_type() == "consumer"
    await fleet.beat("third", -1)
    assert await fleet.group_type() == "classic"
    rejoined = await fleet.rejoin(back)
    assert (rejoined.error_code, rejoined.leader) == (0, back)
    assert [member.member_id for member in rejoined.members] == [back]


async def test_a_cooperative_member_gives_up_only_what_it_must(fleet: Fleet) -> None:
    leader, other = await fleet.pair(COOPERATIVE)
    await fleet.beat("new")
    joined = await fleet.rejoin(leader, {0, 1}, "cooperative-sticky")
    assert joined.generation_id == 2, "it has yet to revoke one, and stays at its generation"
    assert await fleet.assigned(leader, 2) == {0}
    assert await fleet.heartbeat(leader, 2) == ErrorCode.REBALANCE_IN_PROGRESS, "once it has revoked it"
    assert owned_by(await fleet.beat("new", 3, set())) is None
    joined = await fleet.rejoin(leader, {0}, "cooperative-sticky")
    assert joined.generation_id == 3
    assert await fleet.assigned(leader, 3) == {0}
    assert await fleet.heartbeat(leader, 3) == 0
    assert owned_by(await fleet.beat("new", 3, set())) == {1}
    assert await fleet.commit_as(other, 2) == 0, "who has not heard of it yet may commit"


async def test_a_classic_member_is_told_when_the_partitions_that_it_waits_for_are_free(fleet: Fleet) -> None:
    leader, other = await fleet.pair()
    await fleet.beat("new")
    await fleet.rejoin(leader)
    assert await fleet.assigned(leader, 3) == {0}
    await fleet.rejoin(other)
    assert owned_by(await fleet.beat("new", 3, set())) == {1}
    await fleet.leave(MemberIdentity(member_id=other))
    again = await fleet.beat("new", 3, {1})
    assert (again.member_epoch, owned_by(again)) == (4, {1, 3})
    joined = await fleet.rejoin(leader)
    assert await fleet.assigned(leader, joined.generation_id) == {0, 2}

    # A third member takes one of each; the classic one waits for what the consumer has yet to revoke.
    late = (await fleet.join(version=3)).member_id
    joined = await fleet.rejoin(late)
    assert await fleet.assigned(late, joined.generation_id) == set()
    assert await fleet.heartbeat(late, joined.generation_id) == 0, "nothing is free"
    revoking = await fleet.beat("new", 4, {1, 3})
    kept = owned_by(revoking)
    assert kept is not None
    assert kept < {1, 3}
    await fleet.beat("new", revoking.member_epoch, kept)
    assert await fleet.heartbeat(late, joined.generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = await fleet.rejoin(late)
    assert await fleet.assigned(late, joined.generation_id) == {1, 3} - kept


async def test_members_that_wait_for_each_other_are_sent_into_the_new_rebalance(fleet: Fleet) -> None:
    leader, other = await fleet.pair()
    joining = fleet.join(leader)
    await settle()
    assert not joining.done()
    assert (await fleet.beat("new")).error_code == 0
    answer = await joining
    assert (answer.error_code, answer.member_id) == (ErrorCode.REBALANCE_IN_PROGRESS, leader)
    assert (await fleet.rejoin(leader)).generation_id == 3
    assert await fleet.heartbeat(other, 2) == ErrorCode.REBALANCE_IN_PROGRESS


async def test_an_upgrade_between_join_and_sync(fleet: Fleet) -> None:
    leader, other = await fleet.pair()
    joins = [fleet.join(leader), fleet.join(other)]
    generations = {(await join).generation_id for join in joins}
    assert generations == {3}
    waiting = fleet.sync(other, 3)
    await settle()
    # The new member has no topics of its own; the rebalance that it breaks off is repeated all the same.
    assert (await fleet.beat("new", subscribed_topic_names=[])).member_epoch == 4
    assert (await waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    handed_in = await fleet.sync(leader, 3, {leader: assignment(0, 1, 2, 3)})
    assert handed_in.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    for member, owned in ((leader, {0, 1}), (other, {2, 3})):
        joined = await fleet.rejoin(member)
        assert await fleet.assigned(member, joined.generation_id) == owned


@pytest.mark.world(initial_rebalance_delay_ms=3000)
async def test_an_upgrade_in_the_first_rebalance(fleet: Fleet) -> None:
    joining = fleet.join(version=3)
    await settle()
    assert not joining.done(), "the group waits for more members"
    assert (await fleet.beat("new")).member_epoch == 1
    answer = await joining
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    joined = await fleet.rejoin(answer.member_id)
    assert await fleet.assigned(answer.member_id, joined.generation_id) == {0, 1}


async def test_what_a_cooperative_member_still_owns_is_not_given_away_after_a_broken_off_rebalance(
    fleet: Fleet,
) -> None:
    """The coordinator has forgotten its assignment, but the member says what it owned when it joined."""
    leader, other = await fleet.pair(COOPERATIVE)
    joins = [
        fleet.join(member, protocols={"cooperative-sticky": subscription(owned=owned)})
        for member, owned in ((leader, {0, 1}), (other, {2, 3}))
    ]
    for join in joins:
        assert (await join).generation_id == 3
    third = fleet.join(version=3, protocols=COOPERATIVE)
    await settle()
    assert owned_by(await fleet.beat("new")) == set()
    assert (await third).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    held = await fleet.described()
    assert (held[leader][2], held[other][2]) == ({0, 1}, {2, 3})


@pytest.mark.parametrize(
    "config",
    [
        {"consumer_migration_policy": "disabled"},
        {"consumer_migration_policy": "downgrade"},
        {"consumer_max_size": 1},
    ],
)
async def test_a_group_that_cannot_be_upgraded_goes_on(config: dict[str, object]) -> None:
    async with running_fleet(**config) as fleet:
        leader, other = await fleet.pair()
        refused = await fleet.beat("new")
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert await fleet.group_type() == "classic"
        assert await fleet.heartbeat(leader, 2) == await fleet.heartbeat(other, 2) == 0


@pytest.mark.world(consumer_max_size=2)
async def test_a_full_group_is_upgraded_for_nobody(fleet: Fleet) -> None:
    leader, _ = await fleet.pair()
    assert (await fleet.beat("new")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert await fleet.group_type() == "classic"
    assert await fleet.heartbeat(leader, 2) == 0


async def test_groups_of_other_protocols_are_not_upgraded(fleet: Fleet) -> None:
    await fleet.first({"range": b"anything"}, protocol_type="connect")
    assert (await fleet.beat("new")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_assignments_that_cannot_be_kept_prevent_the_upgrade(fleet: Fleet) -> None:
    for protocol, handed_in in (
        ("own", assignment(0, user_data=b"mine")),
        ("range", b"\0"),
        ("range", b"\0\1\0\0"),
    ):
        member = await fleet.first({protocol: subscription()})
        await fleet.sync(member, 1, {member: handed_in})
        refused = await fleet.beat("new")
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND, handed_in
        assert await fleet.heartbeat(member, 1) == 0
        fleet.writer.logs.clear()
        await fleet.fail_over()


async def test_what_librdkafkas_sticky_assignors_write_into_assignments_is_not_needed(fleet: Fleet) -> None:
    member = await fleet.first(COOPERATIVE)
    await fleet.sync(member, 1, {member: assignment(0, 1, user_data=b"what the member had")})
    assert (await fleet.beat("new")).error_code == 0
    assert (await fleet.described())[member] == (1, 0, {0, 1})


async def test_malformed_subscriptions_prevent_the_upgrade_and_are_refused_after_it(fleet: Fleet) -> None:
    member = await fleet.first({"range": b"\0"})
    assert (await fleet.beat("new")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    await fleet.leave(member)
    assert (await fleet.beat("new")).error_code == 0
    before = fleet.writer.batches.copy()
    unreadable: list[dict[str, bytes]] = [{"range": b""}, {"range": subscription(), "sticky": b"\0\1\0"}]
    for protocols in unreadable:
        answer = await fleet.join("mine", protocols=protocols)
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert fleet.writer.batches == before


async def test_requests_of_classic_members_are_checked(fleet: Fleet) -> None:
    member = await fleet.single()
    await fleet.beat("new")
    joined = await fleet.rejoin(member)
    assert (joined.protocol_name, joined.member_id, joined.leader) == ("range", member, "")
    generation = joined.generation_id
    assert await fleet.heartbeat(member, generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert await fleet.heartbeat("nobody", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await fleet.heartbeat("new", generation) == ErrorCode.UNKNOWN_MEMBER_ID, "it is no classic one"
    assert await fleet.commit_as(member, generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert (await fleet.sync(member, generation - 1)).error_code == ErrorCode.ILLEGAL_GENERATION
    assert (await fleet.sync("new", generation)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    for fields in (
        {"protocol_type": "consumer", "protocol_name": "sticky"},
        {"protocol_type": "connect", "protocol_name": "range"},
    ):
        answer = await fleet.sync(member, generation, {}, **fields)
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    answer = await fleet.sync(member, generation, protocol_type="consumer", protocol_name="range")
    assert (answer.error_code, answer.protocol_type, answer.protocol_name) == (0, "consumer", "range")
    for refused in (
        fleet.join("other", protocol_type="connect"),
        fleet.join("other", protocols={"sticky": subscription()}),
        fleet.join("other", protocols={}),
    ):
        answer = await refused
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await fleet.join("", version=4)).error_code == ErrorCode.MEMBER_ID_REQUIRED


async def test_a_classic_member_has_its_own_session(fleet: Fleet) -> None:
    member = await fleet.single()
    await fleet.beat("new")
    await fleet.pass_time(SESSION_MS - 1)
    assert member in await fleet.described()
    await fleet.fail_over()
    await fleet.pass_time(SESSION_MS - 1)
    assert member in await fleet.described(), "a new coordinator gives it a full session"
    await fleet.rejoin(member)
    await fleet.beat("new", 2)
    await fleet.pass_time(SESSION_MS - 1)
    await fleet.sync(member, 2)
    await fleet.pass_time(SESSION_MS - 1)
    assert await fleet.heartbeat(member, 2) == 0
    await fleet.beat("new", 2)
    await fleet.pass_time(SESSION_MS)
    assert member not in await fleet.described()
    await fleet.pass_time(CONSUMER_SESSION_MS - SESSION_MS - 1)
    assert "new" in await fleet.described()


async def test_a_classic_member_that_does_not_join_in_time_is_removed(fleet: Fleet) -> None:
    member = await fleet.single()
    await fleet.beat("new")
    for _ in range(REBALANCE_MS // SESSION_MS):
        assert await fleet.heartbeat(member, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        await fleet.beat("new", 2)
        await fleet.pass_time(SESSION_MS - 1)
    assert member in await fleet.described()
    assert await fleet.heartbeat(member, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    await fleet.pass_time(REBALANCE_MS % SESSION_MS + REBALANCE_MS // SESSION_MS)
    assert member not in await fleet.described()
    assert owned_by(await fleet.beat("new", 2, set())) == {0, 1, 2, 3}


async def test_a_classic_member_that_does_not_fetch_its_assignment_in_time_is_removed(fleet: Fleet) -> None:
    member = await fleet.single()
    await fleet.beat("new")
    for syncs in (True, False):
        generation = (await fleet.rejoin(member)).generation_id
        if syncs:
            await fleet.assigned(member, generation)
        for _ in range(REBALANCE_MS // SESSION_MS + 1):
            await fleet.heartbeat(member, generation)
            await fleet.beat("new", 2)
            await fleet.pass_time(SESSION_MS - 1)
        assert (member in await fleet.described()) is syncs


@pytest.mark.parametrize("config", [{}, {"max_size": 2}])
async def test_static_members_change_their_protocol_in_place(config: dict[str, object]) -> None:
    async with running_fleet(**config) as fleet:
        leader, other = await fleet.pair(instance_ids=("a", "b"))
        upgraded = await fleet.beat("upgraded", instance_id="a")
        assert (upgraded.error_code, owned_by(upgraded)) == (0, {0, 1}), "it takes over what it had"
        assert await fleet.heartbeat(leader, 2) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await fleet.heartbeat(leader, 2, group_instance_id="a") == ErrorCode.FENCED_INSTANCE_ID
        assert await fleet.heartbeat(other, 2, group_instance_id="b") == 0, "nothing has changed for it"
        assert upgraded.member_epoch == 2

        back = await fleet.join("", version=9, group_instance_id="a")
        assert (back.error_code, back.generation_id) == (0, 2)
        assert await fleet.group_type() == "classic"
        assert await fleet.heartbeat(back.member_id, 2, group_instance_id="a") == 0
        assert await fleet.heartbeat(other, 2, group_instance_id="b") == 0, "nor now"
        answer = await fleet.sync(back.member_id, 2, group_instance_id="a")
        assert (answer.error_code, answer.assignment) == (0, assignment(0, 1))
        assert (await fleet.beat("upgraded", 2)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_static_member_with_other_topics_downgrades_into_a_rebalance(fleet: Fleet) -> None:
    _, other = await fleet.pair(instance_ids=("a", "b"))
    await fleet.beat("upgraded", instance_id="a")
    protocols = {"range": subscription("t", "u")}
    back = await fleet.join("", group_instance_id="a", protocols=protocols)
    assert back.error_code == 0
    assert await fleet.group_type() == "classic"
    assert await fleet.heartbeat(other, 2, group_instance_id="b") == ErrorCode.REBALANCE_IN_PROGRESS
    joins = [
        fleet.join(back.member_id, group_instance_id="a", protocols=protocols),
        fleet.join(other, group_instance_id="b"),
    ]
    assert {(await join).generation_id for join in joins} == {3}


async def test_a_static_downgrade_rebalances_while_somebody_waits_for_partitions(fleet: Fleet) -> None:
    """A classic group would never tell that member that they are free."""
    leader, other = await fleet.pair(COOPERATIVE)
    await fleet.beat("new", instance_id="a")
    generation = (await fleet.rejoin(leader, {0, 1}, "cooperative-sticky")).generation_id
    assert generation == 2, "it has something to revoke"
    back = await fleet.join("", group_instance_id="a", protocols=COOPERATIVE)
    assert back.error_code == 0
    assert await fleet.group_type() == "classic"
    joins = [
        fleet.join(leader, protocols=COOPERATIVE),
        fleet.join(other, protocols=COOPERATIVE),
        fleet.join(back.member_id, protocols=COOPERATIVE, group_instance_id="a"),
    ]
    assert len({(await join).generation_id for join in joins}) == 1


@pytest.mark.world(consumer_migration_policy="upgrade")
async def test_a_group_whose_downgrade_is_not_allowed_still_assigns_what_is_free(fleet: Fleet) -> None:
    leader, other = await fleet.pair()
    await fleet.beat("new")
    for member in (leader, other):
        joined = await fleet.rejoin(member)
        await fleet.assigned(member, joined.generation_id)
    await fleet.beat("new", 3, set())
    await fleet.beat("new", -1)
    assert await fleet.group_type() == "consumer"
    assert await fleet.heartbeat(leader, 3) == ErrorCode.REBALANCE_IN_PROGRESS
    owned = []
    for member in (leader, other):
        joined = await fleet.rejoin(member)
        owned.append(await fleet.assigned(member, joined.generation_id))
    assert sorted(index for one in owned for index in one) == [0, 1, 2, 3]


@pytest.mark.world(max_size=1)
async def test_a_group_that_is_too_large_for_a_classic_one_is_not_downgraded(fleet: Fleet) -> None:
    await fleet.beat("new")
    for member in ("one", "two"):
        assert (await fleet.rejoin(member)).error_code == 0
    await fleet.beat("new", -1)
    assert await fleet.group_type() == "consumer"
    await fleet.leave(MemberIdentity(member_id="two"))
    assert await fleet.group_type() == "classic", "now it is small enough"


@pytest.mark.world(max_size=2)
async def test_a_static_classic_member_downgrades_a_group_that_is_just_small_enough(fleet: Fleet) -> None:
    await fleet.pair(instance_ids=("a", "b"))
    await fleet.beat("upgraded", instance_id="a")
    back = await fleet.join("", group_instance_id="a")
    assert (back.error_code, await fleet.group_type()) == (0, "classic")


async def test_the_last_consumers_that_are_removed_together_downgrade_the_group(fleet: Fleet) -> None:
    leader, other = await fleet.pair()
    await fleet.beat("new")
    await fleet.beat("newer")
    gone = [MemberIdentity(member_id=name) for name in ("new", other, "newer")]
    assert [one.error_code for one in (await fleet.leave(*gone)).members] == [0, 0, 0]
    assert await fleet.group_type() == "classic"
    joined = await fleet.rejoin(leader)
    assert [member.member_id for member in joined.members] == [leader]
    await fleet.pass_time(REBALANCE_MS)


async def test_a_consumer_that_falls_silent_downgrades_the_group(fleet: Fleet) -> None:
    member = await fleet.single()
    await fleet.beat("new")
    generation = (await fleet.rejoin(member)).generation_id
    await fleet.assigned(member, generation)
    for _ in range(CONSUMER_SESSION_MS // SESSION_MS + 1):
        await fleet.heartbeat(member, generation)
        await fleet.pass_time(SESSION_MS - 1)
    assert await fleet.group_type() == "classic"
    await fleet.fail_over()
    assert await fleet.group_type() == "classic"
    assert (await fleet.rejoin(member)).leader == member


async def test_an_upgrade_that_cannot_be_written_has_not_happened(fleet: Fleet) -> None:
    leader, other = await fleet.pair()
    joining = fleet.join(leader)
    await settle()
    fleet.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await fleet.beat("new")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await settle()
    assert not joining.done()
    fleet.writer.refuse = None
    assert await fleet.group_type() == "classic"
    assert (await fleet.join(other)).generation_id == (await joining).generation_id == 3


async def test_a_new_coordinator_knows_the_same_group(fleet: Fleet) -> None:
    leader, other = await fleet.pair()
    await fleet.beat("new")
    await fleet.rejoin(leader)
    before = await fleet.described()
    await fleet.fail_over()
    assert await fleet.described() == before
    assert await fleet.heartbeat(other, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    await fleet.beat("new", -1)
    await fleet.fail_over()
    assert await fleet.group_type() == "classic"
    assert await fleet.heartbeat(other, 3) == ErrorCode.REBALANCE_IN_PROGRESS, "what has left is free"
    joins = [fleet.join(leader), fleet.join(other)]
    assert {(await join).generation_id for join in joins} == {4}


async def test_a_new_coordinator_ends_the_rebalance_of_a_downgrade_without_those_that_do_not_join(
    fleet: Fleet,
) -> None:
    leader, other = await fleet.pair()
    await fleet.beat("new")
    await fleet.beat("new", -1)
    await fleet.fail_over()
    join = fleet.join(other)
    await settle()
    for _ in range(REBALANCE_MS // SESSION_MS):
        await fleet.pass_time(SESSION_MS - 1)
        assert await fleet.heartbeat(leader, 3) == ErrorCode.REBALANCE_IN_PROGRESS
        assert not join.done()
    await fleet.pass_time(REBALANCE_MS)
    assert [member.member_id for member in (await join).members] == [other]
