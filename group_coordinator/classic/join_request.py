"""JoinGroup as a message: what its versions leave out, and the errors that need no group."""

from __future__ import annotations

from typing import Final

from pykraft.group_coordinator.state.names import check_group_id, check_names
from pykraft.group_coordinator.state.result import Call
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import JoinGroupRequest

MAX_PROTOCOLS: Final = 100
"""For one member; clients have a few. With each, a rebalance looks at those of all members."""
SKIP_ASSIGNMENT_VERSION = 9
"""From this version on, a member can be told that it leads a group without assigning anything (KIP-814)."""
_TWO_STEP_VERSION = 4
_MEMBER_ID_PREFIX_CHARS = 255


def check_join(request: JoinGroupRequest, call: Call) -> None:
    """Check the rules that need only the request and the configuration."""
    if "classic" not in call.config.rebalance_protocols:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The classic rebalance protocol is disabled.")
    check_group_id(request.group_id)
    check_names(request.group_id, code=ErrorCode.INVALID_GROUP_ID)
    check_names(request.member_id, request.group_instance_id, request.protocol_type)
    check_names(*(protocol.name for protocol in request.protocols))
    least, most = call.config.min_session_timeout_ms, call.config.max_session_timeout_ms
    if not least <= request.session_timeout_ms <= most:
        raise KafkaError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"The session timeout {request.session_timeout_ms} ms is not between {least} and {most} ms.",
        )


def needs_member_id(request: JoinGroupRequest, version: int) -> bool:
    """Whether the member must join again with an id that it is given (KIP-394); static ones need not."""
    is_new = not request.member_id and request.group_instance_id is None
    return is_new and version >= _TWO_STEP_VERSION


def make_member_id(request: JoinGroupRequest, call: Call) -> str:
    """A new id for a member of a classic group: it begins with the name of the client or of the instance."""
    name = call.client_id if request.group_instance_id is None else request.group_instance_id
    return f"{name[:_MEMBER_ID_PREFIX_CHARS]}-{call.new_member_id}"


def rebalance_timeout_of(request: JoinGroupRequest) -> int:
    """In ms. Version 0 has no rebalance timeout of its own."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def protocols_of(request: JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    """Names and metadata, in the member's order of preference."""
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)


def unknown_member(request: JoinGroupRequest) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not in group {request.group_id}."
    )
