"""The settings of groups.

This file only holds the values and checks that they are consistent. The heartbeat interval of the consumer
protocol is sent to members in every heartbeat answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pykraft.configuration.group_keys import (
    ASSIGNMENT_INTERVAL_MS,
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    GroupKey,
)
from pykraft.configuration.keys import ConfigError
from pykraft.configuration.settings import Settings, from_minutes, setting
from pykraft.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class GroupConfig(Settings):
    """Settings of the group coordinator; durations in milliseconds."""

    consumer_session_timeout_ms: int = setting("group.consumer.session.timeout.ms")
    consumer_heartbeat_interval_ms: int = setting("group.consumer.heartbeat.interval.ms")
    consumer_heartbeats_per_second: int = setting("pykraft.group.consumer.heartbeats.per.second")
    consumer_assignment_interval_ms: int = setting("group.consumer.assignment.interval.ms")
    consumer_min_session_timeout_ms: int = setting("group.consumer.min.session.timeout.ms")
    consumer_max_session_timeout_ms: int = setting("group.consumer.max.session.timeout.ms")
    consumer_min_heartbeat_interval_ms: int = setting("group.consumer.min.heartbeat.interval.ms")
    consumer_max_heartbeat_interval_ms: int = setting("group.consumer.max.heartbeat.interval.ms")
    consumer_min_assignment_interval_ms: int = setting("group.consumer.min.assignment.interval.ms")
    consumer_max_assignment_interval_ms: int = setting("group.consumer.max.assignment.interval.ms")
    consumer_regex_refresh_interval_ms: int = setting("group.consumer.regex.refresh.interval.ms")
    consumer_max_size: int = setting("group.consumer.max.size")
    consumer_migration_policy: str = setting("group.consumer.migration.policy", str.lower)
    consumer_assignors: tuple[str, ...] = setting("group.consumer.assignors")
    min_session_timeout_ms: int = setting("group.min.session.timeout.ms")
    max_session_timeout_ms: int = setting("group.max.session.timeout.ms")
    initial_rebalance_delay_ms: int = setting("group.initial.rebalance.delay.ms")
    max_size: int = setting("group.max.size")
    offset_metadata_max_bytes: int = setting("offset.metadata.max.bytes")
    append_linger_ms: int = setting("group.coordinator.append.linger.ms")
    offsets_topic_num_partitions: int = setting("offsets.topic.num.partitions")
    offset_commit_timeout_ms: int = setting("offsets.commit.timeout.ms")
    offsets_retention_ms: int = setting("offsets.retention.minutes", from_minutes)
    offsets_retention_check_interval_ms: int = setting("offsets.retention.check.interval.ms")
    rebalance_protocols: tuple[str, ...] = setting("group.coordinator.rebalance.protocols")

    def __post_init__(self) -> None:
        if not self.consumer_assignors:
            raise ConfigError("group.consumer.assignors must name at least one assignor")
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            raise ConfigError(
                "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms"
            )
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            raise ConfigError("group.min.session.timeout.ms must not exceed group.max.session.timeout.ms")

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group with members may become a consumer group."""
        return self.consumer_migration_policy in ("bidirectional", "upgrade")

    @property
    def may_downgrade(self) -> bool:
        """Whether a consumer group becomes a classic one when only classic members are left."""
        return self.consumer_migration_policy in ("bidirectional", "downgrade")

    def with_group_overrides(self, overrides: Mapping[str, str]) -> GroupConfig:
        """These settings with the overrides of one group, which the controller has checked.

        The limits of this broker may be others than the controller's: a value beyond them becomes the limit,
        and a heartbeat interval that is not less than the session timeout a third of it. A value that this
        version refuses has no effect.
        """
        given = {
            key: int(overrides[key.name])
            for key in (SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS, ASSIGNMENT_INTERVAL_MS)
            if key.name in overrides and key.objection_to(overrides[key.name]) is None
        }
        if not given:
            return self

        def value(key: GroupKey, own: int, least: int, most: int) -> int:
            return max(least, min(given[key], most)) if key in given else own

        session_ms = value(
            SESSION_TIMEOUT_MS,
            self.consumer_session_timeout_ms,
            self.consumer_min_session_timeout_ms,
            self.consumer_max_session_timeout_ms,
        )
        interval_ms = value(
            HEARTBEAT_INTERVAL_MS,
            self.consumer_heartbeat_interval_ms,
            self.consumer_min_heartbeat_interval_ms,
            self.consumer_max_heartbeat_interval_ms,
        )
        assignment_ms = value(
            ASSIGNMENT_INTERVAL_MS,
            self.consumer_assignment_interval_ms,
            self.consumer_min_assignment_interval_ms,
            self.consumer_max_assignment_interval_ms,
        )
        if interval_ms >= session_ms:
            interval_ms = session_ms // 3
        has_own_interval = HEARTBEAT_INTERVAL_MS in given
        return replace(
            self,
            consumer_session_timeout_ms=session_ms,
            consumer_heartbeat_interval_ms=interval_ms,
            consumer_heartbeats_per_second=0 if has_own_interval else self.consumer_heartbeats_per_second,
            consumer_assignment_interval_ms=assignment_ms,
        )
