"""Validates a ConsumerGroupHeartbeat: its fields, and the member that it names.

All refusals of the consumer protocol that need no decision are here; nothing here has effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Final

from pykraft.group_coordinator.state.member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH, ConsumerMember
from pykraft.group_coordinator.state.names import check_names
from pykraft.group_coordinator.state.records import TopicPartition
from pykraft.group_coordinator.state.result import Call
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)

MAX_TOPIC_NAMES: Final = 5_000
"""For one member: fifteen milliseconds, in which its group is changed. A regular expression has no limit."""


def check_request(request: ConsumerGroupHeartbeatRequest, call: Call) -> None:
    """Check the rules that need only the request and the configuration."""
    if "consumer" not in call.config.rebalance_protocols:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The consumer rebalance protocol is disabled.")
    _require(bool(request.group_id.strip()), "GroupId can't be empty.")
    check_names(request.group_id, request.member_id)
    _require(request.instance_id is None or bool(request.instance_id.strip()), "InstanceId can't be empty.")
    _require(request.rack_id is None or bool(request.rack_id.strip()), "RackId can't be empty.")
    epoch = request.member_epoch
    _require(epoch >= STATIC_LEAVE_EPOCH, "MemberEpoch is invalid.")
    if epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH or call.version >= 1:
        _require(bool(request.member_id.strip()), "MemberId can't be empty.")
    if epoch == STATIC_LEAVE_EPOCH:
        _require(request.instance_id is not None, "InstanceId can't be null.")
    if epoch == JOIN_EPOCH:
        _require(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        _require(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
        # Both may be empty: a member of the group that reads nothing yet. Java's subscribe(Pattern) sends an
        # empty list beside its expression.
        _require(
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    names = request.subscribed_topic_names
    _require(
        names is None or len(names) <= MAX_TOPIC_NAMES,
        f"More than {MAX_TOPIC_NAMES} topics: subscribe with a regular expression.",
    )
    _require(
        request.rebalance_timeout_ms == -1 or request.rebalance_timeout_ms >= 0,
        "RebalanceTimeoutMs can't be negative.",
    )
    assignor = request.server_assignor
    if assignor is not None and assignor not in call.config.consumer_assignors:
        supported = ", ".join(call.config.consumer_assignors)
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: {supported}.",
        )


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> OwnedPartitions | None:
    """The partitions that the member reports to own; None if the request does not say."""
    return None if request.topic_partitions is None else OwnedPartitions(request.topic_partitions)


class OwnedPartitions(Set[TopicPartition]):
    """Kept by topic: to make a pair of each takes longer than all that is asked of them."""

    __slots__ = ("_by_topic",)

    def __init__(self, topics: Iterable[ConsumerGroupHeartbeatRequestTopicPartitions]) -> None:
        self._by_topic: dict[Uuid, set[int]] = {}
        for topic in topics:
            self._by_topic.setdefault(topic.topic_id, set()).update(topic.partitions)

    def __contains__(self, one: object) -> bool:
        assert isinstance(one, tuple)
        return one[1] in self._by_topic.get(one[0], ())

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic_id, indexes in self._by_topic.items():
            for index in indexes:
                yield topic_id, index

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def isdisjoint(self, others: Iterable[TopicPartition]) -> bool:
        """Looks at the others only, which are those that this member may hold."""
        return not any(one in self for one in others)


def is_full_request(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member sent all of its fields, and so gets its full assignment in return."""
    if request.member_epoch == JOIN_EPOCH:
        return True
    subscribed = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscribed and request.topic_partitions is not None


def check_static_owner(instance_id: str, member_id: str, owner: ConsumerMember | None) -> None:
    """A static member that has joined must be the current owner of its instance id."""
    if owner is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if owner.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Member {member_id} of instance id {instance_id} was fenced by member {owner.member_id}.",
        )


def check_epoch(
    member: ConsumerMember | None, member_id: str, request: ConsumerGroupHeartbeatRequest
) -> None:
    """The member must send its current epoch, or the previous one if it did not receive the last answer.

    In that case it may own only partitions that it still has, or it would keep using some that it must
    revoke.
    """
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {request.group_id}."
        )
    received = request.member_epoch
    if received == member.epoch:
        return
    owned = owned_partitions(request)
    lost_response = received < member.epoch and received == member.previous_epoch
    if lost_response and owned is not None and owned <= member.assigned:
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has member epoch {received}, the coordinator knows epoch {member.epoch}. "
        "The member must abandon all its partitions and rejoin.",
    )
