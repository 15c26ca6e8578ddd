"""What a coordinator may say when its broker's lease is over and it does not know whether others lead by now.

The lease promises that no controller has fenced the broker before it ended
(:mod:`pykraft.metadata_log.controller.leadership`). Past it another coordinator may have loaded the groups.
What the one here still may do:

**Decisions with records.** They are appended, and the answer leaves when the high watermark has passed
them. For that every in-sync replica must have copied them from this leader, and who becomes leader later is
one of those: it knows them. If another leads already the replicas follow it, the records are never
committed, and whoever waits is told so when ``offsets.commit.timeout.ms`` is over. So commits, members'
changes and assignments are taken, with no regard to the lease. An answer that comes later than that time-
out after the decision is withheld: by then a new coordinator might have given up a member that was told
nothing. (The time-out must be shorter than sessions are: 5 s, and 6 s by default.)

**Heartbeats of members that are known** are answered with what was committed, and move nothing, for as long
as a new coordinator is bound to wait for the member. A new coordinator is elected after the fence, so not
before the lease here ended, in true time. It gives every member a full session, and who does not give
partitions back or join again as long as its rebalance takes, if that is shorter. Let S be the smaller of
the two, and let clocks be off by up to 5 %: a fast one takes the member for dead S / 1.05 = 0.952 S after
the election at the earliest; here answers end 0.9 S after the lease on a slow clock, 0.9 / 0.95 = 0.947 S
in true time at the latest. So nobody is told that all is well after its partitions were given to another.
A new coordinator knows of a member what was committed here, and perhaps more: of what is still pending it has
all, a part, or nothing. So who is thrown out by a record that is pending is not answered either.
Of a leadership that was *moved* away from a broker that lives, a lease promises less: it may have happened
up to 0.947 broker sessions before the lease ended. By so much the two may overlap then. Nor does it cover
what is done on purpose: a member that is removed by an admin, or whose instance id is taken by another,
hears of it later. In both cases records may be read twice; nothing that the member commits is taken.

**What moves a group without a record** (a classic member that joins, or leaves, or comes for its
assignment) waits at the door until the lease is back. A rebalance could not be completed here: its
assignment is a record.

**Reads** (offsets, descriptions, listings) wait at the door, too: what they return may be old, and there is
no record to wait for. A consumer that begins at an offset older than the one that was committed reads records
twice, and where the older one has been deleted already it is sent to wherever ``auto.offset.reset`` says, and
may leave some out. A lease may lapse for a moment when a controller is elected. Clients should not notice it:
consumers before Kafka 3.9 fail when OffsetFetch is answered with COORDINATOR_NOT_AVAILABLE, and librdkafka
never asks again after that or NOT_COORDINATOR (its issue 5586).

**Errors are refused**: a member that another coordinator knows must not be told that it is unknown. Timers
stand still; when the lease is back every member gets a new session.
"""

from __future__ import annotations

from collections.abc import Callable

from pykraft.group_coordinator.classic_group import ClassicGroup
from pykraft.group_coordinator.config import GroupConfig
from pykraft.group_coordinator.group import ConsumerGroup
from pykraft.group_coordinator.result import CoordinatorResult, Parked
from pykraft.group_coordinator.state import ShardState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from pykraft.kafka_protocol.messages.heartbeat import HeartbeatResponse

Decide = Callable[[ShardState], CoordinatorResult]
Patience = Callable[[ShardState], int]
"""For how long, in ms, a new coordinator is bound to wait for the member that asks; 0 for nobody known."""

_PATIENCE_PERCENT = 90
"""The rest covers clocks that run at different rates."""

_ALL_IS_WELL = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)


def patience_ms(state: ShardState, group_id: str, member_id: str, config: GroupConfig) -> int:
    match state.groups.get(group_id):
        case ConsumerGroup() as group if member := group.members.get(member_id):
            return min(config.consumer_session_timeout_ms, member.rebalance_timeout_ms)
        case ClassicGroup() as classic if classic_member := classic.members.get(member_id):
            return min(classic_member.session_timeout_ms, classic_member.rebalance_timeout_ms)
        case _:
            return 0


def answer_heartbeat(
    committed: ShardState, newest: ShardState, decide: Decide, patience: Patience, lapsed_ms: int
) -> CoordinatorResult | None:
    """The answer to a heartbeat ``lapsed_ms`` after the lease; None if it may not be given."""
    for state in (committed, newest):
        if lapsed_ms >= patience(state) * _PATIENCE_PERCENT // 100:
            return None
    try:
        result = decide(committed)
        if newest is not committed and not _is_well(decide(newest)):
            return None
    except KafkaError:
        return None
    if result.records or _moves(result):
        return None
    return result if _is_well(result) else None


def _is_well(result: CoordinatorResult) -> bool:
    response = result.response
    if not isinstance(response, HeartbeatResponse | ConsumerGroupHeartbeatResponse):
        return False
    return response.error_code in _ALL_IS_WELL


class MustWaitForLeaseError(Exception):
    """The decision would move a group without a record."""


def only_with_records(decide: Decide) -> Decide:
    """``decide``; :class:`KafkaError` or :class:`MustWaitForLeaseError` where no record vouches for it."""

    def checked(state: ShardState) -> CoordinatorResult:
        try:
            result = decide(state)
        except KafkaError:
            raise lease_is_over() from None
        if result.records:
            return result
        raise MustWaitForLeaseError if _moves(result) else lease_is_over()

    return checked


def lease_is_over() -> KafkaError:
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "This broker has lost touch with the controller.")


def _moves(result: CoordinatorResult) -> bool:
    is_parked = isinstance(result.response, Parked)
    return bool(is_parked or result.groups or result.forgotten or result.completions)
