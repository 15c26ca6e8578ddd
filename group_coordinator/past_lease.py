"""Answers a coordinator may give after its broker's lease has expired, when another may lead the groups.

The lease guarantees that no controller fences the broker before it ends
(:mod:`pykraft.metadata_log.controller.leadership`). After that another coordinator may have loaded the
groups. This one may still do the following:

**Decisions with records.** They are appended, and the answer is sent when the high watermark has passed them.
For that every in-sync replica must have copied them from this leader, and a later leader is one of those
replicas, so it knows the records. If another broker leads already, the replicas follow it, the records are
never committed, and the waiting request fails after ``offsets.commit.timeout.ms``. So commits, changes of
members and assignments are accepted without regard to the lease. An answer that would be sent later than that
timeout after the decision is replaced by an error: by then a new coordinator might have removed a member that
was told nothing. (The timeout must be shorter than sessions: 5 s and 6 s by default.)

**Heartbeats of known members** are answered from the committed state and change nothing, as long as a new
coordinator must wait for the member. A new coordinator is elected after the fence, so not before this lease
ended, in true time. It gives every member a full session, and removes one that does not revoke its
partitions, or does not join again, after the member's rebalance timeout if that is shorter. Let S be the
smaller of the two, and let clocks be off by up to 5 %: a fast clock expires the member S / 1.05 = 0.952 S
after the election at the earliest; here answers end 0.9 S after the lease on a slow clock, 0.9 / 0.95 = 0.947
S in true time at the latest. So no member is told to continue after its partitions were assigned to another.
A new coordinator knows of a member what was committed here, and perhaps more: of the pending records it has
all, some or none. So a member that a pending record removes or fences is not answered either. If a leadership
was *moved* away from a live broker, the lease guarantees less: the move may have happened up to 0.947 broker
sessions before the lease ended, and the two coordinators may overlap for that long. Nor does it cover
deliberate changes: a member that is removed by an admin, or whose instance id is taken by another member,
learns of it later. In both cases records may be read twice; nothing that the member commits is accepted.

**Changes of a group without a record** (a classic member that joins, or leaves, or asks for its assignment)
wait until the lease is renewed. A rebalance could not be completed here: its assignment is a record.

**Reads** (offsets, descriptions, listings) wait until the lease is renewed, too: their answer may be out of
date, and there is no record to wait for. A consumer that starts at an offset older than the committed one
reads records twice, and if the records at the older one have been deleted already, it starts where
``auto.offset.reset`` says, and may skip some. A lease may expire for a moment when a controller is elected,
which clients should not notice: consumers before Kafka 3.9 fail if OffsetFetch is answered with
COORDINATOR_NOT_AVAILABLE, and librdkafka never asks again after that error or NOT_COORDINATOR (its issue
5586).

**Errors are not answered**, but replaced by COORDINATOR_NOT_AVAILABLE: a member that another coordinator
knows must not be told that it is unknown. No timers expire; when the lease is renewed every member gets a new
session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pykraft.coordinator.shard import Shard
from pykraft.group_coordinator.state.classic_group import ClassicGroup
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.result import AnyResult
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import ConsumerGroupHeartbeatResponse, HeartbeatResponse

Decide = Callable[[ShardState], AnyResult]
Member: TypeAlias = tuple[str, str, GroupConfig]
"""Who asks: ids of group and member, and the settings of the group."""

_TIMEOUT_PERCENT = 90
"""The rest allows for clocks that run at different rates."""

_ALL_IS_WELL = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)


def member_timeout_ms(state: ShardState, group_id: str, member_id: str, config: GroupConfig) -> int:
    """How long a new coordinator must wait for the member that asks; 0 for an unknown member."""
    match state.groups.get(group_id):
        case ConsumerGroup() as group if member := group.members.get(member_id):
            session_ms = config.consumer_session_timeout_ms
            if member.classic is not None:
                session_ms = member.classic.session_timeout_ms
            return min(session_ms, member.rebalance_timeout_ms)
        case ClassicGroup() as classic if classic_member := classic.members.get(member_id):
            return min(classic_member.session_timeout_ms, classic_member.rebalance_timeout_ms)
        case _:
            return 0


def answer_heartbeat(
    decide: Decide, member: Member, shard: Shard[ShardState, AnyResult], expired_ms: int
) -> AnyResult | None:
    """The answer to a heartbeat ``expired_ms`` after the lease has expired; None if none may be given."""
    committed, newest = shard.committed, shard.state
    for state in (committed, newest):
        if expired_ms >= member_timeout_ms(state, *member) * _TIMEOUT_PERCENT // 100:
            return None
    try:
        result = decide(committed)
        if newest is not committed and not _is_well(decide(newest)):
            return None
    except KafkaError:
        return None
    if result.records or result.moves_others:
        return None
    return result if _is_well(result) else None


def _is_well(result: AnyResult) -> bool:
    response = result.response
    if not isinstance(response, HeartbeatResponse | ConsumerGroupHeartbeatResponse):
        return False
    return response.error_code in _ALL_IS_WELL
