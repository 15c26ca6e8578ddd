"""What a group keeps about all of its members agrees with counting them, whatever has changed."""

import random
from dataclasses import replace

import pytest

from pykraft.group_coordinator.replay import replay, replay_all
from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicMember, Tally
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup, replay_group
from pykraft.group_coordinator.state.records import (
    NO_PARTITIONS,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    GroupRecord,
    Partitions,
    TargetAssignmentMemberKey,
    TargetAssignmentMemberValue,
    TargetAssignmentMetadataKey,
    TargetAssignmentMetadataValue,
)
from pykraft.group_coordinator.state.shard_state import EMPTY_STATE
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.persistent import Map

TOPIC = Uuid(bytes(15) + b"\x01")
MEMBERS = ("a", "b", "c", "d")
PROTOCOLS = ((("range", b""),), (("range", b""), ("sticky", b"")), (("sticky", b""), ("sticky", b"x")))

seeds = pytest.mark.parametrize("seed", range(30))


def drawn_member(rng: random.Random) -> ClassicMember:
    return ClassicMember(
        member_id=rng.choice(MEMBERS),
        instance_id=rng.choice((None, None, "i", "j", "k")),
        client_id="",
        client_host="",
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        protocols=rng.choice(PROTOCOLS),
        awaiting_join=rng.random() < 0.5,
        synced=rng.random() < 0.5,
    )


def with_free_instance(group: ClassicGroup, member: ClassicMember) -> ClassicMember:
    """No two members have one instance id."""
    taken = {one.instance_id for one in group.members.values() if one.member_id != member.member_id}
    return replace(member, instance_id=None) if member.instance_id in taken else member


@seeds
def test_tally_of_a_classic_group_is_that_of_its_members(seed: int) -> None:
    rng = random.Random(seed)
    group = ClassicGroup("g")
    for _ in range(100):
        match rng.randrange(4):
            case 0:
                group = group.without_member(rng.choice(MEMBERS))
            case 1:
                group = group.with_members(
                    [replace(one, awaiting_join=rng.random() < 0.5) for one in group.members.values()]
                )
            case _:
                group = group.with_member(with_free_instance(group, drawn_member(rng)))
        members = list(group.members.values())
        assert group.tally == Tally.of(group.members)
        assert group.tally.awaiting_join == sum(one.awaiting_join for one in members)
        assert group.tally.unsynced == sum(not one.synced for one in members)
        names = [one.protocol_names for one in members]
        assert group.common_protocols == (frozenset.intersection(*names) if names else frozenset())
        for instance_id in ("i", "j", "k"):
            owners = [one.member_id for one in members if one.instance_id == instance_id]
            assert group.static_member_id(instance_id) == (owners[0] if owners else None)


def test_members_that_were_set_by_other_means_are_counted() -> None:
    group = ClassicGroup("g").with_member(drawn_member(random.Random(1)))
    emptied = replace(group, members=Map())
    assert emptied.tally == Tally.of(Map())


def drawn_partitions(rng: random.Random) -> Partitions:
    return frozenset((TOPIC, rng.randrange(6)) for _ in range(rng.randrange(4)))


def drawn_record(rng: random.Random) -> GroupRecord:
    member_id = rng.choice(MEMBERS)
    match rng.randrange(5):
        case 0:
            return GroupRecord(ConsumerGroupMemberMetadataKey("g", member_id), None)
        case 1:
            return GroupRecord(CurrentAssignmentKey("g", member_id), None)
        case _:
            assigned, revoked = drawn_partitions(rng), drawn_partitions(rng)
            value = CurrentAssignmentValue(1, 0, 0, assigned, revoked - assigned)
            return GroupRecord(CurrentAssignmentKey("g", member_id), value)


@seeds
def test_partitions_held_by_others_are_those_that_other_members_hold(seed: int) -> None:
    rng = random.Random(seed)
    group = ConsumerGroup("g")
    for _ in range(100):
        group = replay_group(group, drawn_record(rng))
        for member_id in (*MEMBERS, "nobody"):
            held = {
                one for other in group.members.values() if other.member_id != member_id for one in other.held
            }
            found = group.held_by_others(member_id)
            assert set(found) == held
            assert len(found) == len(held)
            everything = frozenset((TOPIC, index) for index in range(6))
            assert everything - found == everything - held


def test_targets_of_many_members_are_replayed_as_one_by_one() -> None:
    rng = random.Random(3)
    records: list[GroupRecord] = [
        GroupRecord(ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(2, 0)),
    ]
    for group_id in ("g", "h", "g"):
        for number in range(20):
            key = TargetAssignmentMemberKey(group_id, f"m{rng.randrange(9)}")
            target = TargetAssignmentMemberValue(drawn_partitions(rng))
            records.append(GroupRecord(key, None if number % 4 == 0 else target))
        metadata = TargetAssignmentMetadataValue(2, 5)
        records.append(GroupRecord(TargetAssignmentMetadataKey(group_id), metadata))
    one_by_one = EMPTY_STATE
    for record in records:
        one_by_one = replay(one_by_one, record)
    assert replay_all(EMPTY_STATE, records) == one_by_one
    group = one_by_one.consumer_group("g")
    assert group is not None
    assert any(target != NO_PARTITIONS for target in group.targets.values())
