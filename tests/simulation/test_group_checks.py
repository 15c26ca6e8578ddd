"""The checks of groups find errors, and accept correct states."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pykraft.coordinator.writer import BatchBody
from pykraft.group_coordinator.shard import GroupShard
from pykraft.group_coordinator.state.codec import encode_record
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.member import ConsumerMember, MemberState
from pykraft.group_coordinator.state.records import (
    ClassicMemberValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from pykraft.jepsen_like.simulation.cluster.checks.group_checks import (
    GroupChecks,
    check_group,
    check_replay,
    check_stable_group,
    check_targets,
)
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.markers import EndOfTransaction
from pykraft.kafka_protocol.record_codec import Record
from pykraft.metadata_log.image import MetadataImage, PartitionRegistration, TopicImage
from pykraft.metadata_log.persistent import Map
from tests.group_coordinator import tools
from tests.narrowing import present

T = Uuid(b"t" * 16)
U = Uuid(b"u" * 16)
P0, P1 = (T, 0), (T, 1)


class Written:
    """The log of a shard that appends no records of its own; all of it is committed."""

    def __init__(self, *records: GroupRecord) -> None:
        self.log = [Record(offset, 0, *encode_record(one)) for offset, one in enumerate(records)]

    def append(self, partition: int, leader_epoch: int, records: BatchBuilder, now_ms: int) -> int:
        raise AssertionError("nothing is written here")

    def end_transaction(self, partition: int, leader_epoch: int, end: EndOfTransaction, now_ms: int) -> int:
        raise AssertionError("no transaction ends here")

    def max_batch_bytes(self, partition: int) -> int:
        return 0

    def high_watermark(self, partition: int) -> int:
        return len(self.log)

    async def read(self, partition: int, start_offset: int) -> tuple[Sequence[BatchBody], int]:
        raise AssertionError("nothing is read here")

    def load(self, shard: GroupShard) -> None:
        tools.load(shard, [(present(one.key), one.value) for one in self.log], GroupConfig())


def shard_of(*records: GroupRecord) -> tuple[GroupShard, list[Record]]:
    writer = Written(*records)
    shard = GroupShard(0, 1, writer)
    writer.load(shard)
    return shard, writer.log


def group_at(epoch: int) -> GroupRecord:
    return GroupRecord(ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(epoch))


def member_at(epoch: int) -> GroupRecord:
    value = CurrentAssignmentValue(epoch, epoch - 1, 0, frozenset({P0}), frozenset(), {P0: 1})
    return GroupRecord(CurrentAssignmentKey("g", "m1"), value)


def commit_of(offset: int) -> GroupRecord:
    return GroupRecord(OffsetCommitKey("g", "t", 0), OffsetCommitValue(offset, 0, "", 0))


def classic_at(generation: int, assignment: bytes = b"a") -> GroupRecord:
    member = ClassicMemberValue("m1", None, "", "", 1_000, 1_000, b"", assignment)
    value = GroupMetadataValue("consumer", generation, "range", "m1", 0, (member,))
    return GroupRecord(GroupMetadataKey("c"), value)


def group(
    *members: ConsumerMember, targets: dict[str, frozenset[tuple[Uuid, int]]] | None = None
) -> ConsumerGroup:
    return ConsumerGroup(
        "g",
        epoch=3,
        assignment_epoch=3,
        members=Map({member.member_id: member for member in members}),
        targets=Map(targets or {member.member_id: member.assigned for member in members}),
    )


def member(member_id: str, *assigned: tuple[Uuid, int], epoch: int = 3) -> ConsumerMember:
    return ConsumerMember(member_id, topic_names=("t",), epoch=epoch, assigned=frozenset(assigned))


def image() -> MetadataImage:
    registration = PartitionRegistration((1,), (1,), 1, 0, 0)
    topics = [TopicImage("t", T, (registration,) * 2), TopicImage("u", U, (registration,))]
    return MetadataImage(
        offset=1,
        topics_by_id=Map({topic.id: topic for topic in topics}),
        topic_ids=Map({topic.name: topic.id for topic in topics}),
    )


def broken(name: str) -> pytest.RaisesExc[InvariantViolation]:
    return pytest.raises(InvariantViolation, match=name)


def test_a_group_in_order_is_right() -> None:
    stable = group(member("m1", P0), member("m2", P1))
    check_group(stable)
    check_targets(stable, image())
    check_stable_group(stable)


def test_a_partition_held_by_two_members_is_found_also_while_one_still_revokes_it() -> None:
    with broken("no_partition_held_by_two_members"):
        check_group(group(member("m1", P0), member("m2", P0)))
    revoking = replace(member("m1"), pending_revocation=frozenset({P0}))
    with broken("no_partition_held_by_two_members"):
        check_group(group(revoking, member("m2", P0)))


def test_a_partition_meant_for_two_members_is_found() -> None:
    both = {"m1": frozenset({P0}), "m2": frozenset({P0})}
    with broken("no_partition_meant_for_two_members"):
        check_group(group(member("m1"), member("m2"), targets=both))


def test_a_member_ahead_of_its_group_is_found() -> None:
    with broken("no_member_epoch_above_the_group_epoch"):
        check_group(group(member("m1", epoch=4)))


def test_a_target_outside_of_the_subscription_is_found() -> None:
    with broken("targets_follow_subscriptions"):
        check_targets(group(member("m1", P0, P1, (U, 0))), image())
    with broken("targets_follow_subscriptions"):
        check_targets(group(member("m1", P0, P1, (T, 2))), image())


def test_a_partition_without_a_target_is_found_once_the_target_is_up_to_date() -> None:
    left_out = group(member("m1", P0))
    with broken("targets_leave_nothing_out"):
        check_targets(left_out, image())
    check_targets(replace(left_out, epoch=4), image())


@pytest.mark.parametrize(
    "late",
    [
        member("m1", P0, epoch=2),
        replace(member("m1", P0), pending_revocation=frozenset({P1})),
        replace(member("m1", P0), state=MemberState.UNRELEASED_PARTITIONS),
    ],
)
def test_a_member_that_is_missing_is_found_in_a_stable_group(late: ConsumerMember) -> None:
    with broken("a_settled_group_is_reconciled"):
        check_stable_group(group(late, targets={"m1": frozenset({P0})}))


def test_epochs_that_fall_are_found_also_on_another_coordinator() -> None:
    checks = GroupChecks()
    checks.look(shard_of(group_at(5), member_at(4))[0].committed)
    checks.look(shard_of(group_at(6), member_at(6))[0].committed)
    with broken("group_epochs_monotone"):
        checks.look(shard_of(group_at(5), member_at(5))[0].committed)


def test_a_member_epoch_that_falls_is_found() -> None:
    checks = GroupChecks()
    checks.look(shard_of(group_at(5), member_at(5))[0].committed)
    with broken("member_epochs_monotone"):
        checks.look(shard_of(group_at(5), member_at(4))[0].committed)


def test_a_member_that_left_and_joined_again_starts_over() -> None:
    checks = GroupChecks()
    checks.look(shard_of(group_at(5), member_at(5))[0].committed)
    checks.look(shard_of(group_at(6))[0].committed)
    checks.look(shard_of(group_at(7), member_at(1))[0].committed)


def test_a_shard_is_what_its_log_says() -> None:
    shard, log = shard_of(group_at(5), member_at(5), commit_of(7), classic_at(2))
    check_replay(0, shard.committed, log)


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ((group_at(6), member_at(5), commit_of(7), classic_at(2)), "a_group_is_what_its_log_says"),
        ((group_at(5), commit_of(7), classic_at(2)), "a_group_is_what_its_log_says"),
        ((group_at(5), member_at(5), commit_of(7)), "a_group_is_what_its_log_says"),
        ((group_at(5), member_at(5), commit_of(7), classic_at(3)), "a_group_is_what_its_log_says"),
        ((group_at(5), member_at(5), commit_of(7), classic_at(2, b"b")), "a_group_is_what_its_log_says"),
        ((group_at(5), member_at(5), commit_of(6), classic_at(2)), "committed_offsets_are_what_the_log_says"),
        ((group_at(5), member_at(5), classic_at(2)), "committed_offsets_are_what_the_log_says"),
    ],
)
def test_a_log_that_says_something_else_is_found(other: tuple[GroupRecord, ...], name: str) -> None:
    shard, _ = shard_of(group_at(5), member_at(5), commit_of(7), classic_at(2))
    with broken(name):
        check_replay(0, shard.committed, shard_of(*other)[1])
