"""A member of a consumer group as the coordinator's records describe it (KIP-848).

It has two halves: what the member reported about itself (subscription, timeouts), and how far it has been
reconciled (epochs, state, partitions). This file decides no transitions; see
:mod:`pykraft.group_coordinator.consumer.current_assignment`.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import IntEnum

from pykraft.group_coordinator.state.records import (
    NO_PARTITIONS,
    AssignmentEpochs,
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
    CurrentAssignmentValue,
    Partitions,
)
from pykraft.lazy_dataclass import dataclass

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


class MemberState(IntEnum):
    """How far a member is from its target assignment; the numbers are those of Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """The member may be using the partitions in ``assigned`` and in ``pending_revocation``.

    ``assignment_epochs`` has the assignment epoch at which it got each of them. ``classic`` is set for a
    member that speaks the classic protocol.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    pending_revocation: Partitions = NO_PARTITIONS
    assignment_epochs: AssignmentEpochs = field(default_factory=dict)

    @property
    def held(self) -> Partitions:
        """Every partition that must not be assigned to another member."""
        return self.assigned | self.pending_revocation

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def to_metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=self.topic_names,
            subscribed_topic_regex=self.topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic=self.classic,
        )

    def with_metadata_value(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=value.subscribed_topic_names,
            topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic,
        )

    def to_assignment_value(self) -> CurrentAssignmentValue:
        return CurrentAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=int(self.state),
            assigned=self.assigned,
            pending_revocation=self.pending_revocation,
            assignment_epochs=self.assignment_epochs,
        )

    def with_assignment_value(self, value: CurrentAssignmentValue | None) -> ConsumerMember:
        """The member with the assignment of a record; a tombstone makes it one that was never reconciled."""
        if value is None:
            value = CurrentAssignmentValue(JOIN_EPOCH, -1, MemberState.STABLE, NO_PARTITIONS, NO_PARTITIONS)
        known = value.state in MemberState._value2member_map_
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=value.assigned,
            pending_revocation=value.pending_revocation,
            assignment_epochs=value.assignment_epochs,
        )
