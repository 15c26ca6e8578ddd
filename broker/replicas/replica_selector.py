"""Which replica a consumer reads (KIP-392): the leader, or a follower in the consumer's rack.

``replica.selector.class`` names the rule; those of Kafka are known by their class names. The leader alone
decides and tells the consumer, which then reads at that replica. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ReplicaView(NamedTuple):
    """A replica that has what the consumer asks for. ``caught_up_ms``: when it last had everything."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    caught_up_ms: int


def select_follower(rack: str, leader_rack: str | None, followers: Iterable[ReplicaView]) -> int | None:
    """The follower that a consumer in ``rack`` reads; None for the leader.

    The leader, if it is in that rack or no follower is; else the follower there that has most, and of
    several the one that was caught up last.
    """
    if not rack or rack == leader_rack:
        return None
    same_rack = [follower for follower in followers if follower.rack == rack]
    if not same_rack:
        return None
    return max(same_rack, key=lambda one: (one.log_end_offset, one.caught_up_ms, -one.broker_id)).broker_id
