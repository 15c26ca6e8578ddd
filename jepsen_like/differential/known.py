"""The differences from Apache Kafka 4.3 that are meant, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pykraft.group_coordinator.join_request import SKIP_ASSIGNMENT_VERSION
from pykraft.jepsen_like.differential.player import Answer
from pykraft.jepsen_like.differential.script import Step
from pykraft.kafka_protocol.consumer_protocol import decode_subscribed_topics, decode_subscription
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykraft.kafka_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykraft.kafka_protocol.messages.delete_groups import DeleteGroupsRequest
from pykraft.kafka_protocol.messages.describe_groups import DescribeGroupsRequest
from pykraft.kafka_protocol.messages.heartbeat import HeartbeatRequest
from pykraft.kafka_protocol.messages.join_group import JoinGroupRequest
from pykraft.kafka_protocol.messages.list_groups import ListGroupsRequest
from pykraft.kafka_protocol.messages.offset_commit import OffsetCommitRequest
from pykraft.kafka_protocol.messages.offset_delete import OffsetDeleteRequest
from pykraft.kafka_protocol.messages.offset_fetch import OffsetFetchRequest
from pykraft.kafka_protocol.messages.sync_group import SyncGroupRequest
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.schema import Message

NO_ANSWER_YET: Final = "no answer yet"

History: TypeAlias = Sequence[tuple[Step, Answer]]


@dataclass(frozen=True, slots=True)
class Known:
    """``explains(earlier, step, ours, kafka)``: whether different answers to ``step`` are this difference.

    ``earlier`` are the steps and our answers until then. An answer that is missing is :data:`NO_ANSWER_YET`.
    ``ends_script``: from then on the two are in different states, and nothing more can be compared.
    """

    name: str
    reason: str
    explains: Callable[[History, Step, Answer, Answer], bool]
    ends_script: bool = False


def _no_id_yet(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    request = step.request
    if not isinstance(request, SyncGroupRequest | HeartbeatRequest | OffsetCommitRequest):
        return False
    return request.group_instance_id is not None and _codes(ours, kafka) == {
        (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
    }


def _epoch_without_member(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    codes = {(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_SERVER_ERROR)}
    return isinstance(step.request, OffsetFetchRequest) and _codes(ours, kafka) == codes


def _pending_with_instance(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    refusals = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
    codes = {(code, ErrorCode.UNKNOWN_SERVER_ERROR) for code in refusals}
    found = _codes(ours, kafka)
    return isinstance(step.request, JoinGroupRequest) and bool(found) and found <= codes


def _leaves_an_empty_group(step: Step, answer: Answer) -> bool:
    if isinstance(step.request, JoinGroupRequest):
        return _code(answer) in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_commit = isinstance(step.request, OffsetCommitRequest)
    return is_commit and f"'error_code': {ErrorCode.OFFSET_METADATA_TOO_LARGE:d}" in str(answer)


def _invisible_group(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    """Kafka does not show a group that began with a commit of which nothing was taken."""
    began = any(
        isinstance(s.request, OffsetCommitRequest)
        and _leaves_an_empty_group(s, answer)
        and "'error_code': 0" not in str(answer)
        for s, answer in earlier
    )
    if not began:
        return False
    match step.request:
        case ListGroupsRequest():
            return len(_part(ours, "groups")) > len(_part(kafka, "groups"))
        case DescribeGroupsRequest() | ConsumerGroupDescribeRequest():
            absent = ("Dead", "")
            return all(
                mine == theirs or theirs["group_state"] in absent for mine, theirs in _paired(ours, kafka)
            )
    return False


def _trace_of_a_join(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    left = any(_leaves_an_empty_group(s, answer) for s, answer in earlier)
    return left and _is_empty_in_kafka(step, ours, kafka)


def _trace_of_offsets(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    deleted = any(isinstance(s.request, OffsetDeleteRequest) for s, _ in earlier)
    return deleted and _is_empty_in_kafka(step, ours, kafka)


def _is_empty_in_kafka(step: Step, ours: Answer, kafka: Answer) -> bool:
    """Kafka knows an empty group of generation 0 that we do not know."""
    match step.request:
        case ListGroupsRequest():
            more = [group for group in _part(kafka, "groups") if group not in _part(ours, "groups")]
            return all(group["group_state"] in ("Empty", "") and not group["protocol_type"] for group in more)
        case DescribeGroupsRequest():
            return all(
                mine == theirs or (mine["group_state"], theirs["group_state"]) == ("Dead", "Empty")
                for mine, theirs in _paired(ours, kafka)
            )
        case DeleteGroupsRequest():
            results = [
                sorted((r["group_id"], r["error_code"]) for r in _part(a, "results")) for a in (ours, kafka)
            ]
            changes = {(mine[1], theirs[1]) for mine, theirs in zip(*results, strict=True) if mine != theirs}
            return changes <= {(ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE)}
        case OffsetCommitRequest():
            absent = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION)
            return _codes(ours, kafka) <= {(code, ErrorCode.UNKNOWN_MEMBER_ID) for code in absent}
        case OffsetDeleteRequest():
            return _code(ours) == ErrorCode.GROUP_ID_NOT_FOUND
    return False


POINTLESS: Final = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID)
UNANSWERED: Final = Known(
    "a waiting request that has become pointless",
    "a JoinGroup or SyncGroup that waits is answered REBALANCE_IN_PROGRESS when its member sends another, and"
    " UNKNOWN_MEMBER_ID when its member leaves; Kafka leaves it without an answer",
    lambda *_: False,  # one of the two answers is missing, so it is looked for apart
)


def _full_group_goes_on(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    full = any(_code(answer) == ErrorCode.GROUP_MAX_SIZE_REACHED for _, answer in earlier)
    return full and isinstance(step.request, JoinGroupRequest) and kafka == NO_ANSWER_YET


def _other_generation(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    codes = (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)
    return isinstance(step.request, OffsetDeleteRequest) and _codes(ours, kafka) <= {codes, codes[::-1]}


def _negative_timeout(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    request = step.request
    return (
        isinstance(request, ConsumerGroupHeartbeatRequest)
        and request.rebalance_timeout_ms < -1
        and _code(ours) == ErrorCode.INVALID_REQUEST
    )


def _refused_with_its_id(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    if not isinstance(step.request, JoinGroupRequest) or not isinstance(ours, dict) or not _code(ours):
        return False
    return isinstance(kafka, dict) and not kafka["member_id"] and {**ours, "member_id": ""} == kafka


def _refused_upgrade(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    refused = any(
        isinstance(s.request, ConsumerGroupHeartbeatRequest)
        and _code(answer) in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_MAX_SIZE_REACHED)
        for s, answer in earlier
    )
    waits = isinstance(step.request, JoinGroupRequest | SyncGroupRequest) and ours == NO_ANSWER_YET
    return refused and waits and _code(kafka) == ErrorCode.REBALANCE_IN_PROGRESS


def _one_unreadable_subscription(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    request = step.request
    if not isinstance(request, JoinGroupRequest) or _code(ours) != ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        return False
    return not all(_is_subscription(protocol.metadata) for protocol in request.protocols)


def _is_subscription(metadata: bytes) -> bool:
    try:
        decode_subscription(metadata)
    except ProtocolError:
        return False
    return True


def _emptied_by_a_refusal(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    if not any(isinstance(s.request, JoinGroupRequest) and _code(answer) for s, answer in earlier):
        return False
    if not isinstance(ours, dict) or not isinstance(kafka, dict):
        return False
    joins = isinstance(step.request, ConsumerGroupHeartbeatRequest) and step.request.member_epoch == 0
    return joins and {**ours, "member_epoch": 0} == {**kafka, "member_epoch": 0}


def _which_partitions(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    subscriptions = {_subscribed(s.request) for s, answer in earlier if not _code(answer)} - {None}
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


def _broken_off_by_an_upgrade(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    request = step.request
    if not isinstance(request, ConsumerGroupHeartbeatRequest) or request.member_epoch:
        return False
    if not isinstance(ours, dict) or not isinstance(kafka, dict) or _code(ours) or _code(kafka):
        return False
    joined = any(isinstance(s.request, JoinGroupRequest) and not _code(answer) for s, answer in earlier)
    return bool(joined and ours["member_epoch"] == kafka["member_epoch"] + 1)


def _given_up_instance(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    request = step.request
    if not isinstance(request, ConsumerGroupHeartbeatRequest) or request.instance_id is None:
        return False
    mine = [
        s.request.instance_id
        for s, answer in earlier
        if isinstance(s.request, ConsumerGroupHeartbeatRequest)
        and s.actor == step.actor
        and not _code(answer)
    ]
    changed = request.instance_id in mine and len(set(mine) - {None}) > 1
    return changed and _codes(ours, kafka) == {(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)}


def _led_by_the_last_to_come_back(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    request = step.request
    if isinstance(request, JoinGroupRequest) and isinstance(ours, dict) and isinstance(kafka, dict):
        leads = bool(ours["leader"]) and ours["leader"] == ours["member_id"] and not kafka["leader"]
        return leads and request.group_instance_id is not None
    came_back = any(
        isinstance(s.request, JoinGroupRequest)
        and s.request.group_instance_id is not None
        and s.version < SKIP_ASSIGNMENT_VERSION
        and isinstance(answer, dict)
        and not _code(answer)
        and not answer["leader"]
        for s, answer in earlier
    )
    rebalances = ours == NO_ANSWER_YET or _code(ours) == ErrorCode.REBALANCE_IN_PROGRESS
    return came_back and rebalances and _code(kafka) == ErrorCode.NONE


KNOWN: tuple[Known, ...] = (
    UNANSWERED,
    Known(
        "a member that is refused because the group is full",
        "the others, who waited for it to join, go on at once; in Kafka they wait for the rebalance timeout",
        _full_group_goes_on,
        ends_script=True,
    ),
    Known(
        "a static member without a member id",
        "librdkafka sends such requests after its session has expired, and would stop at FENCED_INSTANCE_ID:"
        " it is told UNKNOWN_MEMBER_ID and joins again",
        _no_id_yet,
    ),
    Known(
        "a group that began with a commit of which nothing was taken",
        "it is described and listed once it has members or offsets; in Kafka it may stay hidden until its"
        " next record",
        _invisible_group,
        ends_script=True,
    ),
    Known(
        "OffsetFetch with a member epoch but without a member id",
        "UNKNOWN_MEMBER_ID; Kafka answers UNKNOWN_SERVER_ERROR",
        _epoch_without_member,
    ),
    Known(
        "an id that was given to a dynamic member, used by a static one",
        "UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID; Kafka answers UNKNOWN_SERVER_ERROR",
        _pending_with_instance,
    ),
    Known(
        "a classic group whose members join with another subscription",
        "OffsetDelete spares the topics that they name now; Kafka spares those of the last generation",
        _other_generation,
        ends_script=True,
    ),
    Known(
        "a negative rebalance timeout",
        "INVALID_REQUEST; Kafka takes any but -1",
        _negative_timeout,
        ends_script=True,
    ),
    Known(
        "the id of a member that a consumer group refuses",
        "JoinGroup is answered with the id that it was sent with; Kafka leaves it out if the group is one of"
        " the consumer protocol",
        _refused_with_its_id,
    ),
    Known(
        "a classic group that cannot become a consumer group",
        "its members go on as if nothing had been asked; Kafka has sent those away that wait for each other",
        _refused_upgrade,
        ends_script=True,
    ),
    Known(
        "an instance id whose member has joined again with another",
        "is unknown; Kafka goes on to take it for that member's",
        _given_up_instance,
        ends_script=True,
    ),
    Known(
        "an upgrade amid a rebalance, by a member with the subscription that it had",
        "the group epoch increases, so that the members that have no partitions yet get some; in Kafka they"
        " get none until the next change",
        _broken_off_by_an_upgrade,
        ends_script=True,
    ),
    Known(
        "a downgrade by a static member that replaces the last one of the consumer protocol",
        "that member leads the group, from JoinGroup v9 on; before, the group rebalances. In Kafka no member"
        " knows that it leads, and nobody notices new partitions until the next rebalance",
        _led_by_the_last_to_come_back,
        ends_script=True,
    ),
    Known(
        "a subscription that cannot be read, beside one that can",
        "a classic member that joins a consumer group with it is refused, because the group could not become"
        " a classic one again with every protocol; Kafka reads only the first",
        _one_unreadable_subscription,
        ends_script=True,
    ),
    Known(
        "a JoinGroup that an empty consumer group refuses",
        "changes nothing; in Kafka the group is a classic one from then on, and its epochs begin again",
        _emptied_by_a_refusal,
        ends_script=True,
    ),
    Known(
        "which partitions members with different subscriptions get",
        "the assignors are free to choose, also which of the members gets one more",
        _which_partitions,
        ends_script=True,
    ),
    Known(
        "a group that nobody has joined yet",
        "a JoinGroup that is refused, or only given an id, and a commit of which nothing is taken, leave no"
        " group behind; in Kafka they leave an empty one",
        _trace_of_a_join,
    ),
    Known(
        "a group whose last offset is deleted",
        "nobody has joined it, so it ends; Kafka keeps it, without anything in it, until a restart",
        _trace_of_offsets,
    ),
)


def _part(answer: Answer, name: str) -> list[Any]:
    return list(answer[name]) if isinstance(answer, dict) else []


def _paired(ours: Answer, kafka: Answer) -> list[tuple[Any, Any]]:
    """The descriptions of the same groups."""
    both = [sorted(_part(answer, "groups"), key=lambda group: group["group_id"]) for answer in (ours, kafka)]
    return list(zip(*both, strict=True))


def _code(answer: Answer) -> int | None:
    return answer.get("error_code") if isinstance(answer, dict) else None


def _codes(ours: Any, kafka: Any) -> set[tuple[int, int]]:
    """The pairs of error codes, of the same places, that differ."""
    if isinstance(ours, dict) and isinstance(kafka, dict):
        pairs = set()
        for name in ours.keys() & kafka.keys():
            if name == "error_code" and ours[name] != kafka[name]:
                pairs.add((ours[name], kafka[name]))
            pairs |= _codes(ours[name], kafka[name])
        return pairs
    if isinstance(ours, list) and isinstance(kafka, list) and len(ours) == len(kafka):
        return (
            set().union(*(_codes(one, other) for one, other in zip(ours, kafka, strict=True)))
            if ours
            else set()
        )
    return set()
