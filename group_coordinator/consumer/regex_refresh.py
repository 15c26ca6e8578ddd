"""Regular expressions of a consumer group: when they are resolved to topics, and what a result changes.

A heartbeat never matches a pattern. It asks for a resolution (:class:`Resolution`), which runs in slices
(:mod:`.regex_worker`) and becomes records of type 16, shared by all members of the group. All expressions of
a group are resolved together, so that they cause one rebalance, at most every 10 s, and one at a time: when
one of them is new, when topics were created, and otherwise every
``group.consumer.regex.refresh.interval.ms``.
Only heartbeats start it: a group without living members costs nothing.

Which topics a member may see is not checked, since there is no authorization yet; the filter belongs into
:func:`handle_resolution`'s caller, with the member whose heartbeat asked (Kafka: ``TopicRegexResolver``).
"""

from __future__ import annotations

from collections.abc import Mapping

from pykraft.group_coordinator.state.consumer_group import ConsumerGroup, replay_group
from pykraft.group_coordinator.state.group_records import group_epoch_record, regex_record
from pykraft.group_coordinator.state.member import ConsumerMember
from pykraft.group_coordinator.state.names import MAX_NAME_BYTES
from pykraft.group_coordinator.state.records import GroupRecord, ResolvedRegex
from pykraft.group_coordinator.state.result import CoordinatorResult, Resolution
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.regex.pattern import RegexError, known_pattern

MIN_REFRESH_INTERVAL_MS = 10_000


def check_regex(regex: str) -> None:
    """:class:`KafkaError` INVALID_REGULAR_EXPRESSION if the pattern cannot be used."""
    try:
        known_pattern(regex)
        if len(regex.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
            raise RegexError(f"it is longer than {MAX_NAME_BYTES} bytes")
    except RegexError as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex[:100]}` is not a valid regular expression: {error}",
        ) from None


def needed_resolution(
    before: ConsumerGroup, after: ConsumerGroup, topics: TopicsView, refresh_interval_ms: int, wall_ms: int
) -> Resolution | None:
    """Return the resolution that a heartbeat's change of the group calls for; most often None."""
    if not after.subscribed_regexes:
        return None
    version, resolved_ms = last_resolution(before)
    # A resolution of the future is of no use: the wall clock, or that of the last coordinator, was wrong.
    if resolved_ms is not None and resolved_ms <= wall_ms <= resolved_ms + MIN_REFRESH_INTERVAL_MS:
        return None
    is_needed = (
        resolved_ms is None
        or version < topics.new_topics_offset
        or not resolved_ms <= wall_ms <= resolved_ms + refresh_interval_ms
        or len(after.resolved) != len(after.subscribed_regexes)
    )
    if not is_needed:
        return None
    return Resolution(after.group_id, tuple(sorted(after.subscribed_regexes)), wall_ms)


def last_resolution(group: ConsumerGroup) -> tuple[int, int | None]:
    """Metadata offset and time of the last resolution; the time is None if there is none."""
    found = next(iter(group.resolved.values()), None)  # all were found together
    return (0, None) if found is None else (found.version, found.timestamp_ms)


def _wants_less(group: ConsumerGroup, member: ConsumerMember, topics: TopicsView) -> bool:
    """Whether the target has topics for a member whose expression, as is known now, does not match them.

    They were cut from its assignment when it sent the expression, and others must get them. Kafka 4.3 leaves
    them to nobody if the expression matches nothing at all.
    """
    if not member.topic_regex or member.topic_regex not in group.resolved:
        return False
    meant = {topic_id for topic_id, _ in group.target_of(member.member_id)}
    return not meant <= topics.subscribed_ids(member, group.resolved)


def handle_resolution(
    state: ShardState, group_id: str, found: Mapping[str, ResolvedRegex], topics: TopicsView
) -> CoordinatorResult[None]:
    """Records for what was ``found``, if members still want it; the group epoch moves if topics differ."""
    group = state.consumer_group(group_id)
    if group is None:
        return CoordinatorResult(None)
    records: list[GroupRecord] = []
    changed = False
    for regex, resolved in sorted(found.items()):
        if regex not in group.subscribed_regexes:
            continue
        known = group.resolved.get(regex)
        changed |= resolved.topics != (() if known is None else known.topics)
        records.append(regex_record(group_id, regex, resolved))
        group = replay_group(group, records[-1])
    changed = changed or any(_wants_less(group, member, topics) for member in group.members.values())
    metadata_hash = topics.metadata_hash(group)
    if changed or metadata_hash != group.metadata_hash:
        records.append(group_epoch_record(group, metadata_hash))
    return CoordinatorResult(None, tuple(records))
