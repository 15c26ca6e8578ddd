"""The result of a handler: records to write, an answer, timers to change, parked requests to answer.

Handlers are pure. Nothing in a result has happened yet: the shard replays and appends the records first; only
if that succeeds do timers, group values and completions take effect. Answers are sent when the high watermark
has passed the records.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

from pykraft.group_coordinator.state.classic_group import ClassicGroup
from pykraft.group_coordinator.state.commits import TopicCommit, TopicRemoval
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.prepared_change import PreparedChange, PreparedGroup
from pykraft.group_coordinator.state.records import GroupRecord
from pykraft.group_coordinator.state.sessions import TimerChange
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.batch_builder import Producer
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import JoinGroupResponse, SyncGroupResponse
from pykraft.lazy_dataclass import dataclass


class ParkKind(Enum):
    JOIN = "join"
    SYNC = "sync"


@dataclass(frozen=True, slots=True)
class Parked:
    """In place of an answer: the request is parked under this name until the rest of its group is ready."""

    kind: ParkKind
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer for the request that is parked under ``parked``, if there is one."""

    parked: Parked
    response: Message


def build_superseded(parked: Parked) -> Message:
    """The answer for a parked request that is replaced by a newer one of the same member."""
    code = ErrorCode.REBALANCE_IN_PROGRESS
    match parked.kind:
        case ParkKind.JOIN:
            return JoinGroupResponse(error_code=code, protocol_name="", member_id=parked.member_id)
        case ParkKind.SYNC:
            return SyncGroupResponse(error_code=code)


CommitCodes: TypeAlias = int | list[int | list[int]]
"""The errors of an offset commit: one for all of it; or for each topic one, or one for each partition."""

A = TypeVar("A")
"""The response of a handler: a message, the codes of a commit, or None where nobody asks."""

Record: TypeAlias = GroupRecord | TopicCommit | TopicRemoval | PreparedChange | PreparedGroup
"""One record; or those of a commit for one topic, or of a large change; or the tombstones of a topic."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """A wish to find out which topics the regular expressions of a group match.

    ``asked_ms`` is the wall clock time of the heartbeat that asks.
    """

    group_id: str
    regexes: tuple[str, ...]
    asked_ms: int


@dataclass(slots=True)  # not frozen: one is made for each request, and frozen ones take three times as long
class CoordinatorResult(Generic[A]):
    """``groups``: new values of classic groups with state that is not in records (rebalances in progress).

    ``forgotten``: the ids of classic groups that end without ever having been written. ``resolution``: a wish
    that is ignored if the group's last one is still under way. ``producer``: whose transaction the records
    are part of.
    """

    response: A | Parked
    records: tuple[Record, ...] = ()
    timers: tuple[TimerChange, ...] = ()
    completions: tuple[Completion, ...] = ()
    groups: tuple[ClassicGroup, ...] = ()
    forgotten: tuple[str, ...] = ()
    resolution: Resolution | None = None
    producer: Producer | None = None

    @property
    def moves_others(self) -> bool:
        """Whether it parks or answers other requests, or changes a group without a record."""
        return bool(self.groups or self.completions or self.forgotten or isinstance(self.response, Parked))

    @property
    def has_effects(self) -> bool:
        """Whether topics are to be found."""
        return self.resolution is not None


AnyResult: TypeAlias = CoordinatorResult[Any]


@dataclass(slots=True)
class Call:
    """The arguments of a handler besides state and request.

    ``wall_ms`` is the timestamp of records. ``new_member_id`` is an unused id, if the handler needs one.
    ``heartbeat_interval_ms`` is when a member of the consumer protocol is asked to return: the group's
    interval, or sooner (:mod:`~pykraft.group_coordinator.consumer.heartbeat`).
    """

    config: GroupConfig
    topics: TopicsView
    version: int
    wall_ms: int
    client_id: str = ""
    client_host: str = ""
    new_member_id: str = ""
    heartbeat_interval_ms: int | None = None
