"""Which committed offsets of a group may expire, and from which moment their retention time counts (KIP-211).

A group without members: all of them, from their commit, or from when a classic group lost its last member if
that is later. A group with members keeps the offsets of the topics that they subscribe to. Its others expire
from their commit, but those of a classic group only while it is stable, and only if its members are
consumers: other subscriptions cannot be read.
"""

from __future__ import annotations

from typing import NamedTuple

from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicState
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.records import OffsetCommitValue
from pykraft.group_coordinator.state.shard_state import Group
from pykraft.kafka_protocol.consumer_protocol import decode_subscribed_topics
from pykraft.kafka_protocol.primitives import ProtocolError

CONSUMERS = "consumer"
"""The protocol type of consumers."""


class Expiry(NamedTuple):
    """Offsets of topics not ``subscribed`` expire after the later of commit and ``emptied_ms``."""

    emptied_ms: int
    subscribed: frozenset[str]

    def expires_ms(self, value: OffsetCommitValue, retention_ms: int) -> int:
        if value.expire_timestamp_ms is not None:
            return value.expire_timestamp_ms
        return self.after_ms(value.commit_timestamp_ms, retention_ms)

    def after_ms(self, commit_timestamp_ms: int, retention_ms: int) -> int:
        """When an offset without a time of its own expires."""
        return max(commit_timestamp_ms, self.emptied_ms) + retention_ms


_NO_TOPICS: frozenset[str] = frozenset()


def find_expiry(group: Group) -> Expiry | None:
    """None if no offset of the group may expire now."""
    if isinstance(group, ConsumerGroup):
        consumed = _consumed(group)
        return None if consumed is None else Expiry(-1, consumed)
    if has_no_members(group):
        return Expiry(group.state_timestamp_ms, _NO_TOPICS)
    if group.state is not ClassicState.STABLE or group.protocol_type != CONSUMERS:
        return None
    subscribed = _subscribed(group)
    return None if subscribed is None else Expiry(-1, subscribed)


def has_no_members(group: Group) -> bool:
    """Whether nobody is in the group, or about to join it."""
    return group.is_empty and not (isinstance(group, ClassicGroup) and group.pending_member_ids)


def _consumed(group: ConsumerGroup) -> frozenset[str] | None:
    """The topics that members of a consumer group subscribe to; None if that is still being found out."""
    found = [group.resolved.get(regex) for regex in group.subscribed_regexes]
    if None in found:
        return None
    return frozenset(group.subscribed_names).union(*(one.topics for one in found if one is not None))


def _subscribed(group: ClassicGroup) -> frozenset[str] | None:
    """The topics that members of a classic group of consumers subscribe to; None if that cannot be read."""
    try:
        return frozenset(
            topic
            for member in group.members.values()
            for topic in decode_subscribed_topics(member.metadata_for(group.protocol_name))
        )
    except ProtocolError:
        return None
