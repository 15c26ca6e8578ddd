"""What must hold of groups inside their coordinators: the safety of KIP-848, and that the log alone says it
all.

What members believe is checked over histories (``checkers/ownership``). Here: what a coordinator has decided,
in the state that no later coordinator goes behind (``Shard.committed``).
"""

from __future__ import annotations

from collections.abc import Iterable

from pykraft.group_coordinator.classic_group import ClassicGroup, ClassicState
from pykraft.group_coordinator.codec import decode_record
from pykraft.group_coordinator.group import ConsumerGroup
from pykraft.group_coordinator.member import MemberState
from pykraft.group_coordinator.replay import replay
from pykraft.group_coordinator.state import EMPTY_STATE, Group, ShardState
from pykraft.group_coordinator.subscription import TopicsView
from pykraft.jepsen_like.sim.cluster.image_invariants import InvariantViolation
from pykraft.kafka_protocol.record_codec import Record
from pykraft.metadata_log.image import MetadataImage


class GroupChecks:
    """Looks at the shards of one coordinator after another; remembers how far epochs had come."""

    def __init__(self) -> None:
        self._looked_at: dict[str, Group] = {}
        self._epochs: dict[str, tuple[int, int]] = {}
        self._member_epochs: dict[tuple[str, str], int] = {}

    def look(self, state: ShardState) -> list[ConsumerGroup]:
        """The committed state of one shard. :class:`InvariantViolation` for the first thing that is wrong.

        Returns the groups that are not what they were at the last look.
        """
        changed = []
        for group_id in sorted(state.groups):
            group = state.groups[group_id]
            if self._looked_at.get(group_id) is group:
                continue
            self._looked_at[group_id] = group
            if not isinstance(group, ConsumerGroup):
                self.forget(group_id)
                continue
            check_group(group)
            self._check_epochs(group)
            changed.append(group)
        return changed

    def forget(self, group_id: str) -> None:
        """The group is gone, or of the classic protocol now: its next epochs begin anew."""
        self._epochs.pop(group_id, None)
        for key in [key for key in self._member_epochs if key[0] == group_id]:
            del self._member_epochs[key]

    def tails_lost(self) -> None:
        """As many disks as ``min.insync.replicas`` lost what was not flushed, at once."""
        self._looked_at.clear()
        self._epochs.clear()
        self._member_epochs.clear()

    def _check_epochs(self, group: ConsumerGroup) -> None:
        epochs = (group.epoch, group.assignment_epoch)
        before = self._epochs.get(group.group_id, epochs)
        if epochs[0] < before[0] or epochs[1] < before[1]:
            raise InvariantViolation("group_epochs_monotone", f"{group.group_id}: {before} → {epochs}")
        self._epochs[group.group_id] = epochs
        for member in group.iter_members():
            key = (group.group_id, member.member_id)
            if member.epoch < self._member_epochs.get(key, member.epoch):
                detail = f"{key}: {self._member_epochs[key]} → {member.epoch}"
                raise InvariantViolation("member_epochs_monotone", detail)
        gone = [k for k in self._member_epochs if k[0] == group.group_id and k[1] not in group.members]
        for key in gone:
            del self._member_epochs[key]
        for member in group.iter_members():
            self._member_epochs[group.group_id, member.member_id] = member.epoch


def check_group(group: ConsumerGroup) -> None:
    """One consumer group at any moment."""
    holders: dict[object, str] = {}
    for member in group.iter_members():
        for partition in sorted(member.held):
            other = holders.setdefault(partition, member.member_id)
            if other != member.member_id:
                detail = f"{group.group_id}: {partition} is held by {other} and {member.member_id}"
                raise InvariantViolation("no_partition_held_by_two_members", detail)
        if member.epoch > group.epoch:
            detail = f"{group.group_id}: {member.member_id} at {member.epoch}, the group at {group.epoch}"
            raise InvariantViolation("no_member_epoch_above_the_group_epoch", detail)
    targets: dict[object, str] = {}
    for member_id in sorted(group.targets):
        for partition in sorted(group.targets[member_id]):
            other = targets.setdefault(partition, member_id)
            if other != member_id:
                detail = f"{group.group_id}: {partition} is meant for {other} and {member_id}"
                raise InvariantViolation("no_partition_meant_for_two_members", detail)


def check_targets(group: ConsumerGroup, image: MetadataImage) -> None:
    """A group whose target is up to date, on the image it was made for: each partition that is subscribed to
    is meant for one member, and that one has subscribed to it."""
    if group.is_empty or group.assignment_epoch != group.epoch:
        return
    topics = TopicsView(image)
    meant: set[object] = set()
    wanted: set[object] = set()
    for member in group.iter_members():
        counts = topics.partition_counts(topics.subscribed_ids(member))
        allowed = {(topic_id, index) for topic_id, count in counts.items() for index in range(count)}
        if foreign := set(group.target_of(member.member_id)) - allowed:
            detail = f"{group.group_id}: {member.member_id} is to have {sorted(foreign)}"
            raise InvariantViolation("targets_follow_subscriptions", detail)
        meant |= group.target_of(member.member_id)
        wanted |= allowed
    if wanted != meant:
        raise InvariantViolation(
            "targets_leave_nothing_out", f"{group.group_id}: {len(wanted - meant)} partitions"
        )


def check_settled_group(group: ConsumerGroup) -> None:
    """Nothing has changed for long enough: every member is at the group's epoch and holds just its target."""
    if (detail := find_unsettled(group)) is not None:
        raise InvariantViolation("a_settled_group_is_reconciled", detail)


def find_unsettled(group: ConsumerGroup) -> str | None:
    """A member that is on its way to the group's epoch or to what is meant for it."""
    for member in group.iter_members():
        target = group.target_of(member.member_id)
        if member.state is not MemberState.STABLE or member.epoch != group.epoch or member.held != target:
            return f"{group.group_id}: {member}, target {sorted(target)}"
    return None


def replayed(records: Iterable[Record]) -> ShardState:
    """What the log of one partition of ``__consumer_offsets`` says, and nothing else."""
    state = EMPTY_STATE
    for record in records:
        if record.key is not None:
            value = None if record.value is None else bytes(record.value)
            decoded = decode_record(bytes(record.key), value)
            if decoded is not None:
                state = replay(state, decoded)
    return state


def check_replay(partition: int, held: ShardState, records: Iterable[Record]) -> None:
    """``held``: the committed state of a shard; ``records``: some replica's whole log up to its offset.

    Of a classic group only a completed rebalance is in the log: others are not looked at.
    """
    said = replayed(records)
    for group_id in sorted({*held.groups, *said.groups}):
        ours, theirs = held.groups.get(group_id), said.groups.get(group_id)
        if isinstance(ours, ClassicGroup):
            equal = ours.state is not ClassicState.STABLE or _rebalanced(ours) == _rebalanced(theirs)
        else:
            equal = ours == theirs
        if not equal:
            raise InvariantViolation(
                "a_group_is_what_its_log_says", f"{group_id}: {ours}, the log says {theirs}"
            )
    if held.offsets != said.offsets or held.groups_by_topic != said.groups_by_topic:
        raise InvariantViolation("committed_offsets_are_what_the_log_says", f"shard {partition}")


def _rebalanced(group: Group | None) -> object:
    """What a completed rebalance of a classic group decided."""
    if not isinstance(group, ClassicGroup):
        return group
    return group.generation, {member.member_id: member.assignment for member in group.iter_members()}
