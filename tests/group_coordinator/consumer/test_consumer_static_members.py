"""Static members of consumer groups: who may use an instance id, and what a restart costs."""

import pytest

from pykraft.group_coordinator.consumer.assignment_epochs import check_commit
from pykraft.group_coordinator.consumer.leave import remove_members
from pykraft.group_coordinator.describe import describe_consumer_group
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup, replay_group
from pykraft.group_coordinator.state.records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    GroupRecord,
)
from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupDescribeResponse,
    LeaveGroupResponse,
    MemberIdentity,
)
from tests.broker.answers import as_read
from tests.group_coordinator import tools
from tests.group_coordinator.requests import leave_group

T = tools.topic_id("t")


@pytest.fixture
def lab() -> tools.ShardLab:
    """A static member ``a`` of instance ``i`` has everything; then ``b`` of instance ``j`` joined."""
    lab = tools.ShardLab({"t": 4, "u": 2})
    lab.heartbeat("a", 0, instance_id="i")
    lab.heartbeat("b", 0, instance_id="j")
    for _ in range(2):
        for member_id in ("a", "b"):
            member = lab.group.members[member_id]
            lab.heartbeat(member_id, member.epoch, member.assigned)
    assert lab.group.state_name == "Stable"
    return lab


def refused(lab: tools.ShardLab, member_id: str, epoch: int, instance_id: str) -> ErrorCode:
    before = lab.shard.state
    with pytest.raises(KafkaError) as caught:
        lab.heartbeat(member_id, epoch, instance_id=instance_id)
    assert lab.shard.state is before
    return caught.value.code


def remove(lab: tools.ShardLab, *identities: MemberIdentity) -> list[int]:
    outcome = lab.apply(lambda state: remove_members(lab.group, leave_group(*identities), lab.call(5)))
    assert isinstance(outcome.result.response, LeaveGroupResponse)
    return [member.error_code for member in outcome.result.response.members]


def test_instance_is_taken_over_only_after_its_owner_has_left(lab: tools.ShardLab) -> None:
    assert refused(lab, "a2", 0, "i") is ErrorCode.UNRELEASED_INSTANCE_ID
    assert refused(lab, "a2", -2, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert refused(lab, "a2", -1, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert refused(lab, "a2", -2, "nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    lab.heartbeat("a", -2, instance_id="i")
    assert refused(lab, "a", 3, "i") is ErrorCode.FENCED_MEMBER_EPOCH
    assert lab.heartbeat("a2", 0, instance_id="i").error_code == 0
    for epoch in (3, -1, -2):
        assert refused(lab, "a", epoch, "i") is ErrorCode.FENCED_INSTANCE_ID


def test_member_that_has_not_seen_the_answer_to_its_join_joins_again(lab: tools.ShardLab) -> None:
    epoch, had = lab.group.epoch, lab.group.members["a"].assigned
    response = lab.heartbeat("a", 0, instance_id="i")
    assert (response.error_code, response.member_epoch, tools.assigned(response)) == (0, epoch, had)
    assert (lab.group.epoch, lab.group.members["b"].epoch) == (epoch, epoch)
    assert lab.group.state_name == "Stable"
    first = tools.ShardLab({"t": 4})
    for _ in range(2):
        assert len(tools.assigned(first.heartbeat("c", 0, instance_id="k"))) == 4
    assert refused(first, "c2", 0, "k") is ErrorCode.UNRELEASED_INSTANCE_ID


@pytest.mark.parametrize("own_instance", [None, "i"], ids=["dynamic", "static"])
def test_member_that_takes_the_place_of_another_leaves_no_partition_unassigned(
    own_instance: str | None,
) -> None:
    lab = tools.ShardLab({"t": 6})
    instances = {"a": own_instance, "b": "j", "c": None}

    def beat(member_id: str) -> None:
        member = lab.group.members[member_id]
        lab.heartbeat(member_id, member.epoch, member.assigned, instance_id=instances[member_id])

    for member_id, instance_id in instances.items():
        lab.heartbeat(member_id, 0, instance_id=instance_id)
    for member_id in ("a", "b", "c") * 4:
        beat(member_id)
    assert lab.group.state_name == "Stable"
    lab.heartbeat("b", -2, instance_id="j")
    instances["a"] = "j"
    lab.heartbeat("a", 0, instance_id="j")
    for member_id in ("a", "c") * 4:
        beat(member_id)
    assert lab.group.state_name == "Stable" and sorted(lab.group.members) == ["a", "c"]
    assert [len(lab.group.members[member_id].assigned) for member_id in ("a", "c")] == [3, 3]
    assert lab.group.static_member("i") is None


def test_restart_moves_no_epoch_and_no_partition_unless_the_subscription_is_another(
    lab: tools.ShardLab,
) -> None:
    epoch, had = lab.group.epoch, lab.group.members["a"].assigned
    lab.heartbeat("a", -2, instance_id="i")
    assert tools.assigned(lab.heartbeat("a2", 0, instance_id="i")) == had
    assert (lab.group.epoch, lab.group.members["b"].epoch) == (epoch, epoch)
    lab.heartbeat("a2", -2, instance_id="i")
    response = lab.heartbeat("a3", 0, instance_id="i", subscribed_topic_names=["u"])
    assert lab.group.epoch == epoch + 1
    assert {topic_id for topic_id, _ in tools.assigned(response)} == {tools.topic_id("u")}
    assert set(lab.group.members) == {"a3", "b"} and set(lab.group.targets) == {"a3", "b"}


def test_whoever_returns_may_commit_what_it_inherits_at_any_epoch_but_not_what_it_gets_now(
    lab: tools.ShardLab,
) -> None:
    inherited = sorted(lab.group.members["a"].assigned)
    lab.heartbeat("a", -2, instance_id="i")
    lab.heartbeat("b", -1, instance_id="j")
    lab.heartbeat("a2", 0, instance_id="i")
    member = lab.group.members["a2"]
    gained = sorted(member.assigned - set(inherited))
    assert gained and {member.assignment_epochs[one] for one in inherited} == {0}
    check_commit(member, member.epoch - 1, inherited)
    for partitions in (gained, [*inherited, gained[0]]):
        with pytest.raises(KafkaError) as stale:
            check_commit(member, member.epoch - 1, partitions)
        assert stale.value.code is ErrorCode.STALE_MEMBER_EPOCH
    with pytest.raises(KafkaError):
        check_commit(member, member.epoch + 1, inherited)


def test_admin_removes_a_static_member_by_instance_whoever_it_is_and_even_while_it_is_away(
    lab: tools.ShardLab,
) -> None:
    lab.heartbeat("a", -2, instance_id="i")
    epoch = lab.group.epoch
    assert remove(
        lab,
        MemberIdentity(member_id="", group_instance_id="i"),
        MemberIdentity(member_id="a", group_instance_id="j"),
        MemberIdentity(member_id="", group_instance_id="k"),
        MemberIdentity(member_id="b", group_instance_id=None),
        MemberIdentity(member_id="x", group_instance_id=None),
    ) == [
        0,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        0,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert lab.group.is_empty and not lab.group.static_members
    assert lab.group.epoch == epoch + 1, "once for all of them"
    before = lab.shard.state
    assert remove(lab, MemberIdentity(member_id="", group_instance_id="i")) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert lab.shard.state is before, "nobody was removed"


def test_description_has_what_a_member_holds_and_what_it_is_to_have(lab: tools.ShardLab) -> None:
    lab.heartbeat("c", 0, rack_id="r")
    member = lab.group.members["b"]
    lab.heartbeat("b", member.epoch, member.assigned)
    described = describe_consumer_group(lab.shard.state, "g", lab.topics, ("uniform", "range"), 1)
    group = as_read(ConsumerGroupDescribeResponse(groups=[at_once(described)]), 1).groups[0]
    epochs = (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name)
    assert epochs == ("Reconciling", 4, 4, "uniform")
    held = {one.member_id: one.assignment.topic_partitions[0].partitions for one in group.members[:2]}
    assert {name: len(partitions) for name, partitions in held.items()} == {"a": 2, "b": 2}
    targets = [
        sum(len(t.partitions) for t in one.target_assignment.topic_partitions) for one in group.members
    ]
    assert sorted(targets) == [1, 1, 2]
    assert [one.member_type for one in group.members] == [1, 1, 1]
    assert [(one.instance_id, one.rack_id) for one in group.members] == [
        ("i", None),
        ("j", None),
        (None, "r"),
    ]
    assert [one.member_epoch for one in group.members] == [3, 3, 4]


def written(member_id: str, instance_id: str | None) -> GroupRecord:
    value = ConsumerGroupMemberMetadataValue(instance_id, None, "c", "/h", ("t",), None, 60_000, None)
    return GroupRecord(ConsumerGroupMemberMetadataKey("g", member_id), value)


def gone(member_id: str) -> GroupRecord:
    return GroupRecord(ConsumerGroupMemberMetadataKey("g", member_id), None)


@pytest.mark.parametrize(
    ("records", "owners"),
    [
        ((written("a", "i"), written("a", "j")), {"j": "a"}),
        ((written("a", "i"), written("a", None)), {}),
        ((written("a", "i"), gone("a")), {}),
        ((written("a", "i"), written("b", "i"), gone("a")), {"i": "b"}),
        ((written("a", "i"), written("b", "i"), written("a", "j")), {"i": "b", "j": "a"}),
        ((written("a", "i"), written("b", "i"), written("a", None)), {"i": "b"}),
        ((written("a", None), written("b", "i"), written("a", "i")), {"i": "a"}),
    ],
)
def test_instance_belongs_to_the_member_that_took_it_last(
    records: tuple[GroupRecord, ...], owners: dict[str, str]
) -> None:
    group = ConsumerGroup("g")
    for record in records:
        group = replay_group(group, record)
    assert dict(group.static_members) == owners
    for instance_id, member_id in owners.items():
        assert group.static_member(instance_id) is group.members[member_id]
    assert group.static_member("nobody") is None
