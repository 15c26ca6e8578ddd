"""The invariants of groups in their coordinators: KIP-848, and that the log alone holds the state.

What members believe is checked over histories (``checkers/ownership``). The checks here are of a
coordinator's decisions, in the state that no later coordinator reverts (``Shard.committed``).
"""

from collections.abc import Iterable

from pykraft.group_coordinator.replay import replay
from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicState
from pykraft.group_coordinator.state.codec import decode_record
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.member import MemberState
from pykraft.group_coordinator.state.shard_state import EMPTY_STATE, Group, ShardState
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.record_codec import Record
from pykraft.metadata_log.image import MetadataImage


class GroupChecks:
    """Checks the shards of one coordinator after another, and keeps the highest epochs seen."""

    def __init__(self) -> None:
        self._checked: dict[str, Group] = {}
        self._epochs: dict[str, tuple[int, int]] = {}
        self._member_epochs: dict[tuple[str, str], int] = {}

    def look(self, state: ShardState) -> list[ConsumerGroup]:
        """Check the committed state of one shard. :class:`InvariantViolation` for the first broken invariant.

        Returns the groups that have changed since the last call.
        """
        changed = []
        for group_id in sorted(state.groups):
            group = state.groups[group_id]
            if self._checked.get(group_id) is group:
                continue
            self._checked[group_id] = group
            if not isinstance(group, ConsumerGroup):
                self.forget(group_id)
                continue
            check_group(group)
            self._check_epochs(group)
            changed.append(group)
        return changed

    def forget(self, group_id: str) -> None:
        """The group was deleted, or uses the classic protocol now: its epochs start again."""
        self._epochs.pop(group_id, None)
        for key in [key for key in self._member_epochs if key[0] == group_id]:
            del self._member_epochs[key]

    def tails_lost(self) -> None:
        """As many disks as ``min.insync.replicas`` have lost unflushed records at once."""
        self._checked.clear()
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
    """Check one consumer group; holds at any moment."""
    holders: dict[object, str] = {}
    for member in group.iter_members():
        for partition in sorted(member.held):
            other = holders.setdefault(partition, member.member_id)
            if other != member.member_id:
                detail = f"{group.group_id}: {partition} is owned by {other} and {member.member_id}"
                raise InvariantViolation("no_partition_held_by_two_members", detail)
        if member.epoch > group.epoch:
            detail = f"{group.group_id}: {member.member_id} at {member.epoch}, the group at {group.epoch}"
            raise InvariantViolation("no_member_epoch_above_the_group_epoch", detail)
    targets: dict[object, str] = {}
    for member_id in sorted(group.targets):
        for partition in sorted(group.targets[member_id]):
            other = targets.setdefault(partition, member_id)
            if other != member_id:
                detail = f"{group.group_id}: {partition} is assigned to {other} and {member_id}"
                raise InvariantViolation("no_partition_meant_for_two_members", detail)


def check_targets(group: ConsumerGroup, image: MetadataImage) -> None:
    """Check a group whose target is up to date, on the image it was computed for: each subscribed partition
    is assigned to one member in the target, and that member has subscribed to its topic."""
    if group.is_empty or group.assignment_epoch != group.epoch:
        return
    topics = TopicsView(image)
    meant: set[object] = set()
    wanted: set[object] = set()
    for member in group.iter_members():
        counts = topics.partition_counts(topics.subscribed_ids(member, group.resolved))
        allowed = {(topic_id, index) for topic_id, count in counts.items() for index in range(count)}
        if foreign := set(group.target_of(member.member_id)) - allowed:
            detail = f"{group.group_id}: {member.member_id} is assigned {sorted(foreign)}"
            raise InvariantViolation("targets_follow_subscriptions", detail)
        meant |= group.target_of(member.member_id)
        wanted |= allowed
    if wanted != meant:
        raise InvariantViolation(
            "targets_leave_nothing_out", f"{group.group_id}: {len(wanted - meant)} partitions"
        )


def check_stable_group(group: ConsumerGroup) -> None:
    """Check a group without recent changes: every member is at its epoch and owns its target."""
    if (detail := find_unstable(group)) is not None:
        raise InvariantViolation("a_settled_group_is_reconciled", detail)


def find_unstable(group: ConsumerGroup) -> str | None:
    """A member that has not reached the group's epoch or its target; None if there is none."""
    for member in group.iter_members():
        target = group.target_of(member.member_id)
        if member.state is not MemberState.STABLE or member.epoch != group.epoch or member.held != target:
            return f"{group.group_id}: {member}, target {sorted(target)}"
    return None


def replayed(records: Iterable[Record]) -> ShardState:
    """The state that results from the log of one partition of ``__consumer_offsets`` alone."""
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

    Of classic groups only completed rebalances are in the log: other states are not compared.
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
    """The decision of a completed rebalance of a classic group."""
    if not isinstance(group, ClassicGroup):
        return group
    return group.generation, {member.member_id: member.assignment for member in group.iter_members()}
