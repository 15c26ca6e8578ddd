"""What an operator can set about groups: Kafka's property names, defaults and limits.

This file only holds values and checks that they fit together; it never reads a file. The two intervals of
the consumer protocol are handed to members in every heartbeat answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pykraft.metadata_log.group_configs import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS

_MAX_INT32 = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of the group coordinator; durations in milliseconds."""

    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = _MAX_INT32
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = _MAX_INT32
    offset_metadata_max_bytes: int = 4_096
    offsets_topic_num_partitions: int = 50
    offset_commit_timeout_ms: int = 5_000
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
    rebalance_protocols: tuple[str, ...] = ("classic", "consumer")

    def __post_init__(self) -> None:
        if not self.consumer_assignors:
            raise ValueError("group.consumer.assignors must name at least one assignor")
        unknown = [name for name in self.consumer_assignors if name not in ("uniform", "range")]
        if unknown:
            raise ValueError(
                f"group.consumer.assignors: unknown assignor {unknown[0]!r} (known: uniform, range)"
            )
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            raise ValueError(
                "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms"
            )
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            raise ValueError("group.min.session.timeout.ms must not exceed group.max.session.timeout.ms")
        if self.offsets_topic_num_partitions < 1:
            raise ValueError("offsets.topic.num.partitions must be at least 1")

    def with_group_overrides(self, overrides: Mapping[str, str]) -> GroupConfig:
        """These settings, with what was set for one group (checked by the controller).

        A heartbeat interval that does not fit into this broker's own session becomes a third of it.
        """
        session_ms = int(overrides.get(SESSION_TIMEOUT_MS.name, self.consumer_session_timeout_ms))
        interval_ms = int(overrides.get(HEARTBEAT_INTERVAL_MS.name, self.consumer_heartbeat_interval_ms))
        if interval_ms >= session_ms:
            interval_ms = session_ms // 3
        return replace(
            self, consumer_session_timeout_ms=session_ms, consumer_heartbeat_interval_ms=interval_ms
        )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> GroupConfig:
        """Read the settings out of a broker's properties; :class:`ValueError` names the key that is wrong."""
        values: dict[str, object] = {}
        for key, (attribute, scale) in _INT_PROPERTIES.items():
            if key in properties:
                try:
                    values[attribute] = int(properties[key]) * scale
                except ValueError:
                    raise ValueError(f"{key}={properties[key]!r} is not a whole number") from None
        for key, attribute in _LIST_PROPERTIES.items():
            if key in properties:
                values[attribute] = tuple(part.strip() for part in properties[key].split(",") if part.strip())
        return cls(**values)  # type: ignore[arg-type]


_INT_PROPERTIES = {
    "group.consumer.session.timeout.ms": ("consumer_session_timeout_ms", 1),
    "group.consumer.heartbeat.interval.ms": ("consumer_heartbeat_interval_ms", 1),
    "group.consumer.max.size": ("consumer_max_size", 1),
    "group.min.session.timeout.ms": ("min_session_timeout_ms", 1),
    "group.max.session.timeout.ms": ("max_session_timeout_ms", 1),
    "group.initial.rebalance.delay.ms": ("initial_rebalance_delay_ms", 1),
    "group.max.size": ("max_size", 1),
    "offset.metadata.max.bytes": ("offset_metadata_max_bytes", 1),
    "offsets.topic.num.partitions": ("offsets_topic_num_partitions", 1),
    "offsets.commit.timeout.ms": ("offset_commit_timeout_ms", 1),
    "offsets.retention.minutes": ("offsets_retention_ms", 60_000),
    "offsets.retention.check.interval.ms": ("offsets_retention_check_interval_ms", 1),
}
_LIST_PROPERTIES = {
    "group.consumer.assignors": "consumer_assignors",
    "group.coordinator.rebalance.protocols": "rebalance_protocols",
}
