"""A classic group: its members join and wait for each other, and their leader computes the assignment.

The value holds everything the protocol needs, also which members wait for an answer, but no connections. Only
a completed rebalance is written to the log, so a failover keeps generation and assignments but forgets a
rebalance in progress (its members are told to rejoin).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from enum import Enum

from pykraft.group_coordinator.state.records import ClassicMemberValue, GroupMetadataValue
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.persistent import Map


class ClassicState(Enum):
    """Values are the names Kafka's tools print."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """``protocols`` in order of preference, each with opaque metadata.

    ``awaiting_join`` and ``awaiting_sync``: a request of this member is parked. ``synced`` is False from when
    the member learns of a new generation until it asks for its assignment.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    awaiting_join: bool = False
    awaiting_sync: bool = False
    synced: bool = True

    @property
    def protocol_names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.protocols)

    def joined(self) -> ClassicMember:
        """The member in a new generation, whose assignment it has yet to ask for."""
        return self._with(self.assignment, False, self.awaiting_sync, synced=False)

    def assigned(self, assignment: bytes) -> ClassicMember:
        """The member with what the leader has assigned to it."""
        return self._with(assignment, self.awaiting_join, False, synced=self.synced)

    def _with(
        self, assignment: bytes, awaiting_join: bool, awaiting_sync: bool, *, synced: bool
    ) -> ClassicMember:
        """As :func:`replace`, in a third of the time: a thousand members change in one turn."""
        return ClassicMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols,
            assignment,
            awaiting_join,
            awaiting_sync,
            synced,
        )

    def metadata_for(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts over all members, kept because every request of one of them asks.

    ``members`` are those that were counted: of any others it says nothing.
    """

    members: Map[str, ClassicMember]
    awaiting_join: int
    unsynced: int
    instances: Map[str, str]
    protocols: Map[str, int]
    """How many members support each."""

    @classmethod
    def of(cls, members: Map[str, ClassicMember]) -> Tally:
        names = Counter(name for member in members.values() for name in member.protocol_names)
        return cls(
            members,
            sum(member.awaiting_join for member in members.values()),
            sum(not member.synced for member in members.values()),
            Map({one.instance_id: one.member_id for one in members.values() if one.instance_id is not None}),
            Map(names),
        )

    def changed(
        self, members: Map[str, ClassicMember], old: ClassicMember | None, new: ClassicMember | None
    ) -> Tally:
        """That of ``members``, in which ``new`` has taken the place of ``old``."""
        awaiting_join, unsynced = self.awaiting_join, self.unsynced
        instances, protocols = self.instances, self.protocols
        if old is not None:
            awaiting_join -= old.awaiting_join
            unsynced -= not old.synced
        if new is not None:
            awaiting_join += new.awaiting_join
            unsynced += not new.synced
        old_instance = None if old is None else old.instance_id
        new_instance = None if new is None else new.instance_id
        if old_instance != new_instance:
            if old is not None and old_instance is not None and instances.get(old_instance) == old.member_id:
                instances = instances.delete(old_instance)
            if new is not None and new_instance is not None:
                instances = instances.set(new_instance, new.member_id)
        if old is None or new is None or old.protocols is not new.protocols:
            protocols = _recount(protocols, old, -1)
            protocols = _recount(protocols, new, +1)
        return Tally(members, awaiting_join, unsynced, instances, protocols)


def _recount(protocols: Map[str, int], member: ClassicMember | None, by: int) -> Map[str, int]:
    for name in () if member is None else member.protocol_names:
        count = protocols.get(name, 0) + by
        protocols = protocols.set(name, count) if count else protocols.delete(name)
    return protocols


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    """``pending_member_ids`` were given to clients that have yet to join with them (KIP-394).

    ``initial_delay_left_ms`` is None except during the first rebalance of an empty group, which waits for
    more members (KIP-134): then it is how much of the members' rebalance timeout the delay may still take.
    """

    group_id: str
    state: ClassicState = ClassicState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: Map[str, ClassicMember] = field(default_factory=Map)
    pending_member_ids: frozenset[str] = frozenset()
    initial_delay_left_ms: int | None = None
    new_member_added: bool = False
    state_timestamp_ms: int = -1
    _tally: Tally | None = field(default=None, compare=False, repr=False)

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def size(self) -> int:
        return len(self.members) + len(self.pending_member_ids)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def tally(self) -> Tally:
        """The tally of its members; counted again only where it was not kept up to date."""
        kept = self._tally
        return kept if kept is not None and kept.members is self.members else Tally.of(self.members)

    @property
    def common_protocols(self) -> frozenset[str]:
        """Those that all members support."""
        count = len(self.members)
        return frozenset(name for name, members in self.tally.protocols.items() if members == count)

    def static_member_id(self, instance_id: str) -> str | None:
        if self._tally is not None and self._tally.members is self.members:
            return self._tally.instances.get(instance_id)
        return next((m.member_id for m in self.members.values() if m.instance_id == instance_id), None)

    def iter_members(self) -> Iterator[ClassicMember]:
        """The members in order of their ids."""
        for member_id in sorted(self.members):
            yield self.members[member_id]

    def with_member(self, member: ClassicMember) -> ClassicGroup:
        old = self.members.get(member.member_id)
        members = self.members.set(member.member_id, member)
        return replace(self, members=members, _tally=self.tally.changed(members, old, member))

    def with_members(self, changed: Iterable[ClassicMember]) -> ClassicGroup:
        """As :meth:`with_member` of many, in less time."""
        members = self.members.update({member.member_id: member for member in changed})
        return replace(self, members=members, _tally=Tally.of(members))

    def without_member(self, member_id: str) -> ClassicGroup:
        """The group without that member; if it was the leader, another member becomes the leader."""
        if member_id not in self.members:
            return self
        members = self.members.delete(member_id)
        leader_id = self.leader_id
        if leader_id == member_id:
            leader_id = min(members) if members else None
        tally = self.tally.changed(members, self.members[member_id], None)
        return replace(self, members=members, leader_id=leader_id, _tally=tally)

    def to_value(self) -> GroupMetadataValue:
        """The value for the log: the group as of a completed rebalance."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(
                ClassicMemberValue(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata_for(self.protocol_name),
                    assignment=member.assignment,
                )
                for member in self.iter_members()
            ),
        )

    @classmethod
    def from_value(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """The group of a record. Members without a leader have just come from a consumer group
        (:mod:`~pykraft.group_coordinator.migration.migration`), and their first rebalance is not completed.
        """
        members = {
            member.member_id: ClassicMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                protocols=((value.protocol or "", member.subscription),),
                assignment=member.assignment,
            )
            for member in value.members
        }
        state = ClassicState.PREPARING_REBALANCE if value.leader is None else ClassicState.STABLE
        return cls(
            group_id=group_id,
            state=state if members else ClassicState.EMPTY,
            generation=value.generation,
            protocol_type=value.protocol_type or None,
            protocol_name=value.protocol,
            leader_id=value.leader,
            members=Map(members),
            state_timestamp_ms=value.current_state_timestamp_ms,
        )
