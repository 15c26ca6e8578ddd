"""Whether answers differ as intended: classic groups, consumer groups and offsets, each by itself."""

from pykraft.group_coordinator.state.member import JOIN_EPOCH
from pykraft.jepsen_like.conformance.answer_pairs import (
    NO_ANSWER_YET,
    History,
    code_of,
    codes_of,
    paired,
    part,
)
from pykraft.jepsen_like.conformance.player import Answer
from pykraft.jepsen_like.conformance.script import Step
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)


def no_id_yet(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    request = step.request
    if not isinstance(request, SyncGroupRequest | HeartbeatRequest | OffsetCommitRequest):
        return False
    return request.group_instance_id is not None and codes_of(ours, kafka) == {
        (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
    }


def joins_again(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    request = step.request
    if not isinstance(request, ConsumerGroupHeartbeatRequest) or request.instance_id is None:
        return False
    is_join = request.member_epoch == JOIN_EPOCH
    return is_join and codes_of(ours, kafka) == {(ErrorCode.NONE, ErrorCode.UNRELEASED_INSTANCE_ID)}


def epoch_without_member(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    codes = {(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_SERVER_ERROR)}
    return isinstance(step.request, OffsetFetchRequest) and codes_of(ours, kafka) == codes


def pending_with_instance(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    refusals = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
    codes = {(code, ErrorCode.UNKNOWN_SERVER_ERROR) for code in refusals}
    found = codes_of(ours, kafka)
    return isinstance(step.request, JoinGroupRequest) and bool(found) and found <= codes


def _leaves_an_empty_group(step: Step, answer: Answer) -> bool:
    if isinstance(step.request, JoinGroupRequest):
        return code_of(answer) in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_commit = isinstance(step.request, OffsetCommitRequest)
    return is_commit and f"'error_code': {ErrorCode.OFFSET_METADATA_TOO_LARGE:d}" in str(answer)


def invisible_group(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
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
            return len(part(ours, "groups")) > len(part(kafka, "groups"))
        case DescribeGroupsRequest() | ConsumerGroupDescribeRequest():
            absent = ("Dead", "")
            return all(
                mine == theirs or theirs["group_state"] in absent for mine, theirs in paired(ours, kafka)
            )
    return False


def trace_of_a_join(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    left = any(_leaves_an_empty_group(s, answer) for s, answer in earlier)
    return left and _is_empty_in_kafka(step, ours, kafka)


def trace_of_offsets(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    deleted = any(isinstance(s.request, OffsetDeleteRequest) for s, _ in earlier)
    return deleted and _is_empty_in_kafka(step, ours, kafka)


def _is_empty_in_kafka(step: Step, ours: Answer, kafka: Answer) -> bool:
    """Kafka knows an empty group of generation 0 that we do not know."""
    match step.request:
        case ListGroupsRequest():
            more = [group for group in part(kafka, "groups") if group not in part(ours, "groups")]
            return all(group["group_state"] in ("Empty", "") and not group["protocol_type"] for group in more)
        case DescribeGroupsRequest():
            return all(
                mine == theirs or (mine["group_state"], theirs["group_state"]) == ("Dead", "Empty")
                for mine, theirs in paired(ours, kafka)
            )
        case DeleteGroupsRequest():
            results = [
                sorted((r["group_id"], r["error_code"]) for r in part(a, "results")) for a in (ours, kafka)
            ]
            changes = {(mine[1], theirs[1]) for mine, theirs in zip(*results, strict=True) if mine != theirs}
            return changes <= {(ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE)}
        case OffsetCommitRequest():
            absent = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION)
            return codes_of(ours, kafka) <= {(code, ErrorCode.UNKNOWN_MEMBER_ID) for code in absent}
        case OffsetDeleteRequest():
            return code_of(ours) == ErrorCode.GROUP_ID_NOT_FOUND
    return False


def full_group_goes_on(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    full = any(code_of(answer) == ErrorCode.GROUP_MAX_SIZE_REACHED for _, answer in earlier)
    return full and isinstance(step.request, JoinGroupRequest) and kafka == NO_ANSWER_YET


def other_generation(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    codes = (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)
    return isinstance(step.request, OffsetDeleteRequest) and codes_of(ours, kafka) <= {codes, codes[::-1]}


def negative_timeout(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    request = step.request
    return (
        isinstance(request, ConsumerGroupHeartbeatRequest)
        and request.rebalance_timeout_ms < -1
        and code_of(ours) == ErrorCode.INVALID_REQUEST
    )
