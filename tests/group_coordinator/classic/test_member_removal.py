"""Members of groups of the consumer protocol removed by an admin client, by either id."""

import pytest

from pykraft.group_coordinator.classic.sync import handle_leave_group
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tests.group_coordinator import tools
from tests.group_coordinator.coordinators import Coordinator
from tests.group_coordinator.requests import leave_group
from tests.narrowing import as_type, present


@pytest.fixture
def lab() -> tools.ShardLab:
    """Group ``g`` with a dynamic member, a static one, and a static one that is away."""
    made = tools.ShardLab({"t": 4})
    made.heartbeat("dynamic", 0)
    made.heartbeat("static", 0, instance_id="i")
    made.heartbeat("away", 0, instance_id="j")
    made.heartbeat("away", -2, instance_id="j")
    return made


def remove(lab: tools.ShardLab, *identities: MemberIdentity, version: int = 5) -> list[int]:
    request = leave_group(*identities)
    outcome = lab.apply(lambda state: handle_leave_group(state, request, lab.call(version)))
    response = as_type(outcome.result.response, LeaveGroupResponse)
    assert response.error_code == 0
    assert [one.member_id for one in response.members] == [one.member_id for one in identities]
    return [int(one.error_code) for one in response.members]


def members(lab: tools.ShardLab) -> set[str]:
    group = lab.shard.state.consumer_group("g")
    return set(group.members) if group is not None else set()


def test_single_member_is_removed_by_its_id_and_the_others_get_its_partitions(lab: tools.ShardLab) -> None:
    epoch = lab.group.epoch
    assert remove(lab, MemberIdentity(member_id="dynamic")) == [0]
    assert members(lab) == {"static", "away"}
    assert lab.group.epoch == epoch + 1
    lab.fail_over()
    assert members(lab) == {"static", "away"}, "it is in the log"


def test_static_members_are_removed_by_instance_id_present_or_absent(lab: tools.ShardLab) -> None:
    named = MemberIdentity(member_id="static", group_instance_id="i")
    assert remove(lab, named, MemberIdentity(group_instance_id="j")) == [0, 0]
    assert members(lab) == {"dynamic"}


def test_all_are_removed_at_once_and_the_group_is_left_empty(lab: tools.ShardLab) -> None:
    epoch = lab.group.epoch
    all_members = [
        MemberIdentity(member_id="dynamic"),
        MemberIdentity(group_instance_id="i"),
        MemberIdentity(group_instance_id="j"),
        MemberIdentity(member_id="dynamic"),
    ]
    assert remove(lab, *all_members) == [0, 0, 0, 0]
    assert members(lab) == set()
    assert lab.group.epoch == epoch + 1, "the epoch increases once for all of them"
    assert not lab.pass_time(100_000), "no session of theirs is left to expire"


def test_each_removal_is_refused_separately_and_an_empty_request_changes_nothing(lab: tools.ShardLab) -> None:
    before = lab.shard.state
    assert remove(
        lab,
        MemberIdentity(member_id="nobody"),
        MemberIdentity(group_instance_id="nobody"),
        MemberIdentity(member_id="dynamic", group_instance_id="i"),
    ) == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID]
    assert remove(lab) == []
    assert lab.shard.state is before
    assert remove(lab, MemberIdentity(member_id="nobody"), MemberIdentity(member_id="static")) == [25, 0]
    assert members(lab) == {"dynamic", "away"}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_versions_name_one_member(lab: tools.ShardLab, version: int) -> None:
    request = LeaveGroupRequest(group_id="g", member_id="dynamic")
    outcome = lab.apply(lambda state: handle_leave_group(state, request, lab.call(version)))
    assert as_type(outcome.result.response, LeaveGroupResponse).error_code == 0
    assert members(lab) == {"static", "away"}
    again = lab.apply(lambda state: handle_leave_group(state, request, lab.call(version)))
    assert as_type(again.result.response, LeaveGroupResponse).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_removed_member_learns_it_at_its_next_heartbeat() -> None:
    w = Coordinator()
    await w.lead()
    epoch = (await w.beat("m", 0)).member_epoch
    assert (await w.leave("m")).members[0].error_code == 0
    assert (await w.beat("m", epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    await w.service.stop()


@pytest.mark.parametrize(
    ("names", "regex", "assigned"),
    [([], "t.*", 4), ([], None, 0), ([], "", 0), (None, "", 0), (None, "t", 4), (["t"], "u", 4)],
)
def test_first_heartbeat_may_leave_names_or_regex_empty(
    names: list[str] | None, regex: str | None, assigned: int
) -> None:
    """Java's subscribe(Pattern) sends an empty list of names with its expression."""
    lab = tools.ShardLab({"t": 4})
    joined = lab.heartbeat("m", 0, subscribed_topic_names=names, subscribed_topic_regex=regex)
    assert joined.error_code == 0
    lab.resolve()
    joined = lab.heartbeat("m", 0, subscribed_topic_names=names, subscribed_topic_regex=regex)
    partitions = [
        index for topic in present(joined.assignment).topic_partitions for index in topic.partitions
    ]
    assert len(partitions) == assigned
