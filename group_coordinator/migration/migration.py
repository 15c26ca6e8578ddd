"""A group with members changes its protocol: the online migration of KIP-848, in both directions.

*Upgrade*: the first member of the consumer protocol joins a classic group. Each classic member becomes one of
a consumer group that holds what it was assigned, at its generation, and that is told to join again: its
requests are then answered by :mod:`.members_in_classic_protocol`. *Downgrade*: the last member of the
consumer protocol leaves. The others make a classic group again, with their targets as assignments, that
rebalances.

Nothing else moves: generations and epochs are one number that only increases, and a member holds after the
change what it held before. Whether a group may change is decided by ``group.consumer.migration.policy``; an
empty group always may. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from typing import Protocol

from pykraft.group_coordinator.classic.join_request import SKIP_ASSIGNMENT_VERSION
from pykraft.group_coordinator.classic.rebalance import (
    ClassicDraft,
    join_error,
    prepare_rebalance,
    select_protocol,
)
from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicMember, ClassicState
from pykraft.group_coordinator.state.codec import encode_record
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup, replay_group
from pykraft.group_coordinator.state.group_records import (
    group_tombstones,
    member_assignment_record,
    member_metadata_record,
)
from pykraft.group_coordinator.state.member import ConsumerMember
from pykraft.group_coordinator.state.prepared_change import PreparedGroup
from pykraft.group_coordinator.state.records import (
    NO_PARTITIONS,
    ClassicMemberMetadata,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupRecord,
    Partitions,
    TargetAssignmentMemberKey,
    TargetAssignmentMemberValue,
    TargetAssignmentMetadataKey,
    TargetAssignmentMetadataValue,
    TopicPartition,
    by_topic,
)
from pykraft.group_coordinator.state.result import Call, Completion, Parked, ParkKind, Record
from pykraft.group_coordinator.state.sessions import (
    CancelTimer,
    SetTimer,
    TimerChange,
    TimerKey,
    TimerKind,
    cancel_member_timers,
)
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.codec.versioned import read_version
from pykraft.kafka_protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import SyncGroupResponse
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.persistent import Map


class NamedPartitions(Protocol):
    """Partitions of one topic."""

    topic: str
    partitions: list[int]


def find_partitions(named: Iterable[NamedPartitions], topics: TopicsView) -> Partitions:
    found: set[TopicPartition] = set()
    for one in named:
        topic_id, count = topics.topic_id(one.topic), topics.partition_count(one.topic)
        if topic_id is not None:
            found.update((topic_id, index) for index in one.partitions if 0 <= index < count)
    return frozenset(found)


def decode_assigned(assignment: bytes, topics: TopicsView) -> tuple[Partitions, bytes]:
    """The partitions of an assignment, and what its assignor adds for itself. May raise ProtocolError."""
    decoded, _ = decode_assignment(assignment)
    return find_partitions(decoded.assigned_partitions, topics), bytes(decoded.user_data or b"")


def encode_assigned(partitions: Partitions, subscription: bytes, topics: TopicsView) -> bytes:
    """The assignment, in the version in which the member wrote its ``subscription``."""
    named = [
        AssignmentTopicPartition(topic=name, partitions=indexes)
        for topic_id, indexes in by_topic(partitions).items()
        if (name := topics.topic_name(topic_id)) is not None
    ]
    try:
        version = read_version(subscription)
    except ProtocolError:
        version = ConsumerProtocolAssignment.MIN_VERSION
    version = max(
        ConsumerProtocolAssignment.MIN_VERSION, min(version, ConsumerProtocolAssignment.MAX_VERSION)
    )
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=named), version)


_OWN_DATA_IS_NOT_NEEDED = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""The assignors of Kafka's clients. A leader of librdkafka writes into an assignment what the sticky ones
tell in subscriptions: which partitions the member had, which is known here.
"""

_RECORDS_AT_ONCE = 100
"""The records, or members, of a slice: a millisecond."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The consumer group that a classic group becomes, and what that takes.

    ``needs_assignment``: it was rebalancing, or its leader left out a partition, perhaps a new one.
    """

    group: ConsumerGroup
    records: tuple[Record, ...]
    timers: tuple[TimerChange, ...]
    completions: tuple[Completion, ...] = ()
    needs_assignment: bool = False


class PreparedUpgrade:
    """The upgrade of one value of a classic group, by one view of the topics, prepared over several turns."""

    def __init__(self, classic: ClassicGroup, call: Call) -> None:
        self._classic = classic
        self._call = call
        self._upgrade: Upgrade | None = None

    def prepare(self) -> Iterator[None]:
        """Yields after each slice. :class:`KafkaError` as :func:`upgrade_group`."""
        upgrade = yield from build_upgrade(self._classic, self._call)
        builder = BatchBuilder()
        for number, record in enumerate(upgrade.records, 1):
            assert isinstance(record, GroupRecord)
            builder.add(*encode_record(record))
            if not number % _RECORDS_AT_ONCE:
                yield
        self._upgrade = replace(upgrade, records=(PreparedGroup(upgrade.group, builder),))

    def of(self, classic: ClassicGroup, call: Call) -> Upgrade | None:
        """The upgrade, if the group and the topics are those for which it was prepared."""
        is_same = classic is self._classic and call.topics is self._call.topics
        return self._upgrade if is_same and call.config == self._call.config else None


def upgrade_group(classic: ClassicGroup, call: Call) -> Upgrade:
    """A group that a member of the consumer protocol can join. GROUP_ID_NOT_FOUND if that is not allowed."""
    work = build_upgrade(classic, call)
    while True:
        try:
            next(work)
        except StopIteration as built:
            upgrade: Upgrade = built.value
            return upgrade


def build_upgrade(classic: ClassicGroup, call: Call) -> Generator[None, None, Upgrade]:
    """As :func:`upgrade_group`, which it returns; yields after each slice."""
    group_id = classic.group_id
    tombstone = GroupRecord(GroupMetadataKey(group_id), None)
    stopped: list[TimerChange] = [
        CancelTimer(TimerKey(TimerKind.JOIN_PHASE, group_id)),
        CancelTimer(TimerKey(TimerKind.SYNC_PHASE, group_id)),
    ]
    stopped += [
        CancelTimer(TimerKey(TimerKind.PENDING_MEMBER, group_id, pending_id))
        for pending_id in classic.pending_member_ids
    ]
    if classic.is_empty:
        return Upgrade(ConsumerGroup(group_id), (tombstone,), tuple(stopped))

    _check_upgrade(classic, call)
    told = []
    for member in classic.iter_members():
        told.append(_read(classic, member, call))
        if not len(told) % _RECORDS_AT_ONCE:
            yield
    used = _what_they_use(told, call)
    yield
    members = [_upgraded(one, used[one.member.member_id], classic.generation) for one in told]
    yield
    group, records = yield from _build_group(classic, members, call)
    sessions = [
        SetTimer(TimerKey(TimerKind.SESSION, group_id, member.member_id), member.session_timeout_ms)
        for member in classic.iter_members()
    ]
    return Upgrade(
        group,
        (tombstone, *records),
        (*stopped, *sessions),
        tuple(_break_off(classic)),
        needs_assignment=classic.state is not ClassicState.STABLE or not _is_complete(group, call),
    )


def _check_upgrade(classic: ClassicGroup, call: Call) -> None:
    if not call.config.may_upgrade:
        raise _cannot_upgrade(classic, "online upgrade is disabled.")
    if classic.protocol_type != PROTOCOL_TYPE:
        raise _cannot_upgrade(classic, "the group does not use the consumer embedded protocol.")
    if len(classic.members) > call.config.consumer_max_size:
        raise _cannot_upgrade(classic, "the group size exceeds the consumer group maximum size.")


def _cannot_upgrade(classic: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}",
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """A classic member's decoded bytes: its subscription, and its leader's assignment."""

    member: ClassicMember
    subscription: ConsumerProtocolSubscription
    assigned: Partitions


def _read(classic: ClassicGroup, member: ClassicMember, call: Call) -> _Told:
    assigned, user_data = NO_PARTITIONS, b""
    chosen = dict(member.protocols).get(classic.protocol_name or "", member.protocols[0][1])
    try:
        subscription, _ = decode_subscription(chosen)
        if member.assignment:
            assigned, user_data = decode_assigned(member.assignment, call.topics)
    except ProtocolError:
        raise _cannot_upgrade(classic, "the embedded consumer protocol is malformed.") from None
    if user_data and classic.protocol_name not in _OWN_DATA_IS_NOT_NEEDED:
        raise _cannot_upgrade(
            classic,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch "
            "to a default assignor before re-attempting the upgrade.",
        )
    return _Told(member, subscription, assigned)


def _what_they_use(told: Sequence[_Told], call: Call) -> dict[str, set[TopicPartition]]:
    """The partitions that each member may be using, by its id; each partition is of one member.

    That is what they were assigned. It is also what a cooperative one owned when it joined, as long as nobody
    else was assigned it: the member stops to use it only when it fetches its new assignment, which it may not
    have done yet. If two claim to own a partition, the one that has joined a later generation is right.
    """
    owners: dict[TopicPartition, str] = {}
    for one in told:
        for partition in one.assigned:
            owners.setdefault(partition, one.member.member_id)
    for one in sorted(told, key=lambda one: -one.subscription.generation_id):
        for partition in find_partitions(one.subscription.owned_partitions, call.topics):
            owners.setdefault(partition, one.member.member_id)
    used: dict[str, set[TopicPartition]] = {one.member.member_id: set() for one in told}
    for partition, member_id in owners.items():
        used[member_id].add(partition)
    return used


def _upgraded(told: _Told, used: Set[TopicPartition], generation: int) -> ConsumerMember:
    """The member, stable at its generation with the partitions that it may be using."""
    member, subscription = told.member, told.subscription
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMemberMetadata(member.session_timeout_ms, member.protocols),
        epoch=generation,
        previous_epoch=generation,
        assigned=frozenset(used),
        assignment_epochs=dict.fromkeys(used, generation),
    )


def _is_complete(group: ConsumerGroup, call: Call) -> bool:
    """Whether all partitions of the subscribed topics are assigned."""
    members = group.members.values()
    topic_ids = {one for member in members for one in call.topics.subscribed_ids(member, group.resolved)}
    wanted = call.topics.partition_counts(topic_ids)
    assigned = sum(topic_id in wanted for member in members for topic_id, _ in member.assigned)
    return assigned == sum(wanted.values())


def _build_group(
    classic: ClassicGroup, members: Sequence[ConsumerMember], call: Call
) -> Generator[None, None, tuple[ConsumerGroup, list[GroupRecord]]]:
    """The group with its records; what its members hold is also their target. Yields after each slice."""
    group_id, generation = classic.group_id, classic.generation
    records = [member_metadata_record(group_id, member) for member in members]
    group = yield from _replayed(ConsumerGroup(group_id), records)
    metadata_hash = call.topics.metadata_hash(group)
    others = [
        GroupRecord(
            ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(generation, metadata_hash)
        ),
        *(
            GroupRecord(
                TargetAssignmentMemberKey(group_id, member.member_id),
                TargetAssignmentMemberValue(member.assigned),
            )
            for member in members
        ),
        GroupRecord(TargetAssignmentMetadataKey(group_id), TargetAssignmentMetadataValue(generation)),
        *(member_assignment_record(group_id, member) for member in members),
    ]
    group = yield from _replayed(group, others)
    return group, records + others


def _replayed(group: ConsumerGroup, records: Sequence[GroupRecord]) -> Generator[None, None, ConsumerGroup]:
    for number, record in enumerate(records, 1):
        group = replay_group(group, record)
        if not number % _RECORDS_AT_ONCE:
            yield
    return group


def _break_off(classic: ClassicGroup) -> Iterable[Completion]:
    """Members that wait in a rebalance are told of the next one."""
    code = ErrorCode.REBALANCE_IN_PROGRESS
    for member in classic.iter_members():
        member_id = member.member_id
        if member.awaiting_join:
            parked = Parked(ParkKind.JOIN, classic.group_id, member_id)
            yield Completion(parked, join_error(code, member_id))
        if member.awaiting_sync:
            parked = Parked(ParkKind.SYNC, classic.group_id, member_id)
            yield Completion(parked, SyncGroupResponse(error_code=code))


def must_downgrade(group: ConsumerGroup, leaving: Collection[str], call: Call) -> bool:
    """Whether the group becomes a classic one when these members leave: only classic ones remain."""
    remaining = len(group.members) - len(leaving)
    classic = group.classic_members - sum(group.members[one].classic is not None for one in leaving)
    return classic == remaining > 0 and call.config.may_downgrade and remaining <= call.config.max_size


def must_downgrade_for(group: ConsumerGroup, replaced: ConsumerMember, call: Call) -> bool:
    """Whether the group becomes a classic one when a classic member takes the place of ``replaced``."""
    return (
        replaced.classic is None
        and group.classic_members == len(group.members) - 1
        and call.config.may_downgrade
        and len(group.members) <= call.config.max_size
    )


def downgrade_group(
    group: ConsumerGroup, leaving: Collection[str], call: Call, joining: ConsumerMember | None = None
) -> ClassicDraft:
    """The classic group of the members that stay, each with the partitions that it may be using.

    ``joining`` takes the place of the only one that is ``leaving``. If then everybody has reached the newest
    target, nothing moves, and ``joining`` leads the group, if it can do so without assigning anything: the
    leader is the one that notices new partitions. Otherwise the group rebalances: a classic group would not
    tell a member when the partitions that it waits for are free. It has no leader then, which tells later
    coordinators that it must rebalance.
    """
    staying = [member for member in group.iter_members() if member.member_id not in leaving]
    leader_id = None
    if joining is not None:
        staying.append(joining)
        if call.version >= SKIP_ASSIGNMENT_VERSION and all(
            member.is_reconciled_to(group.epoch) for member in staying
        ):
            leader_id = joining.member_id
    classic = ClassicGroup(
        group.group_id,
        state=ClassicState.STABLE,
        generation=group.epoch,
        protocol_type=PROTOCOL_TYPE,
        leader_id=leader_id,
        members=Map({member.member_id: _downgraded(member) for member in staying}),
        state_timestamp_ms=call.wall_ms,
    )
    draft = ClassicDraft(replace(classic, protocol_name=select_protocol(classic)), call.config, call.wall_ms)
    draft.records.extend(group_tombstones(group))
    for member_id in group.members:
        draft.timers += cancel_member_timers(group.group_id, member_id)
    held = {member.member_id: member.held for member in staying}
    for member in draft.group.iter_members():
        chosen = member.metadata_for(draft.group.protocol_name)
        assignment = encode_assigned(held[member.member_id], chosen, call.topics)
        draft.put(replace(member, assignment=assignment))
        draft.restart_session(member)
    draft.write_group()
    if leader_id is None:
        prepare_rebalance(draft)
    return draft


def _downgraded(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=member.classic.supported_protocols,
    )
