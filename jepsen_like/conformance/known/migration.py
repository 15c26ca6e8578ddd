"""Whether answers differ as intended: groups with members of both protocols, or that changed theirs."""

from typing import Any

from pykraft.group_coordinator.classic.join_request import SKIP_ASSIGNMENT_VERSION
from pykraft.jepsen_like.conformance.answer_pairs import (
    NO_ANSWER_YET,
    History,
    code_of,
    codes_of,
)
from pykraft.jepsen_like.conformance.player import Answer
from pykraft.jepsen_like.conformance.script import Step
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.consumer_protocol import decode_subscribed_topics, decode_subscription
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from pykraft.kafka_protocol.primitives import ProtocolError


def refused_with_its_id(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    if not isinstance(step.request, JoinGroupRequest) or not isinstance(ours, dict) or not code_of(ours):
        return False
    return isinstance(kafka, dict) and not kafka["member_id"] and {**ours, "member_id": ""} == kafka


def refused_upgrade(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    refused = any(
        isinstance(s.request, ConsumerGroupHeartbeatRequest)
        and code_of(answer) in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_MAX_SIZE_REACHED)
        for s, answer in earlier
    )
    waits = isinstance(step.request, JoinGroupRequest | SyncGroupRequest) and ours == NO_ANSWER_YET
    return refused and waits and code_of(kafka) == ErrorCode.REBALANCE_IN_PROGRESS


def one_unreadable_subscription(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    request = step.request
    if not isinstance(request, JoinGroupRequest) or code_of(ours) != ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        return False
    return not all(_is_subscription(protocol.metadata) for protocol in request.protocols)


def _is_subscription(metadata: bytes) -> bool:
    try:
        decode_subscription(metadata)
    except ProtocolError:
        return False
    return True


def emptied_by_a_refusal(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    if not any(isinstance(s.request, JoinGroupRequest) and code_of(answer) for s, answer in earlier):
        return False
    if not isinstance(ours, dict) or not isinstance(kafka, dict):
        return False
    joins = isinstance(step.request, ConsumerGroupHeartbeatRequest) and step.request.member_epoch == 0
    return joins and {**ours, "member_epoch": 0} == {**kafka, "member_epoch": 0}


def which_partitions(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    subscriptions = {_subscribed(s.request) for s, answer in earlier if not code_of(answer)} - {None}
    return len(subscriptions) > 1 and _without_assignments(ours) == _without_assignments(kafka)


def _subscribed(request: Message) -> frozenset[str] | None:
    """The topics that a request subscribes to, if it does."""
    match request:
        case ConsumerGroupHeartbeatRequest(subscribed_topic_names=list() as names):
            return frozenset(names)
        case JoinGroupRequest(protocols=[first, *_]) if _is_subscription(first.metadata):
            return frozenset(decode_subscribed_topics(first.metadata))
        case _:
            return None


def _without_assignments(answer: Any) -> Any:
    if isinstance(answer, dict):
        assignments = ("assignment", "target_assignment", "member_assignment")
        return {name: _without_assignments(one) for name, one in answer.items() if name not in assignments}
    return [_without_assignments(one) for one in answer] if isinstance(answer, list) else answer


def broken_off_by_an_upgrade(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    request = step.request
    if not isinstance(request, ConsumerGroupHeartbeatRequest) or request.member_epoch:
        return False
    if not isinstance(ours, dict) or not isinstance(kafka, dict) or code_of(ours) or code_of(kafka):
        return False
    joined = any(isinstance(s.request, JoinGroupRequest) and not code_of(answer) for s, answer in earlier)
    return bool(joined and ours["member_epoch"] == kafka["member_epoch"] + 1)


def given_up_instance(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    request = step.request
    if not isinstance(request, ConsumerGroupHeartbeatRequest) or request.instance_id is None:
        return False
    mine = [
        s.request.instance_id
        for s, answer in earlier
        if isinstance(s.request, ConsumerGroupHeartbeatRequest)
        and s.actor == step.actor
        and not code_of(answer)
    ]
    changed = request.instance_id in mine and len(set(mine) - {None}) > 1
    return changed and codes_of(ours, kafka) == {(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)}


def led_by_the_last_to_come_back(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    request = step.request
    if isinstance(request, JoinGroupRequest) and isinstance(ours, dict) and isinstance(kafka, dict):
        leads = bool(ours["leader"]) and ours["leader"] == ours["member_id"] and not kafka["leader"]
        return leads and request.group_instance_id is not None
    came_back = any(
        isinstance(s.request, JoinGroupRequest)
        and s.request.group_instance_id is not None
        and s.version < SKIP_ASSIGNMENT_VERSION
        and isinstance(answer, dict)
        and not code_of(answer)
        and not answer["leader"]
        for s, answer in earlier
    )
    rebalances = ours == NO_ANSWER_YET or code_of(ours) == ErrorCode.REBALANCE_IN_PROGRESS
    return came_back and rebalances and code_of(kafka) == ErrorCode.NONE
