"""The settings of a controller, and its source of randomness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

from pykraft.configuration.settings import Settings, from_seconds, setting
from pykraft.lazy_dataclass import dataclass


class Rng(Protocol):
    """The part of :class:`random.Random` that the controller uses; seeded, so that runs are repeatable."""

    def randrange(self, stop: int, /) -> int: ...

    def randbytes(self, n: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ControllerConfig(Settings):
    """The controller's settings.

    ``topic_defaults`` are the values that this node's properties file sets for topics, by topic config name;
    ``server_properties`` are all of its values.
    ``max_idle_interval_ms``: a record that changes nothing is written after this time without another one; 0
    for never (Kafka's default is 500): the records that prove leadership for leases keep the log moving as
    far as needed. ``max_records_per_request`` bounds the batch one request may cause.
    """

    session_timeout_ms: int = setting("broker.session.timeout.ms")
    num_partitions: int = setting("num.partitions")
    default_replication_factor: int = setting("default.replication.factor")
    delete_topic_enable: bool = setting("delete.topic.enable")
    auto_leader_rebalance_enable: bool = setting("auto.leader.rebalance.enable")
    leader_imbalance_check_interval_ms: int = setting("leader.imbalance.check.interval.seconds", from_seconds)
    leader_imbalance_per_broker_percentage: int = setting("leader.imbalance.per.broker.percentage")
    max_idle_interval_ms: int = setting("metadata.max.idle.interval.ms")
    max_records_per_request: int = 10_000
    request_timeout_ms: int = 30_000
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    server_properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def fence_check_interval_ms(self) -> int:
        """How often expired sessions are looked for: eight times per session."""
        return max(1, self.session_timeout_ms // 8)

    @property
    def late_reading_ms(self) -> int:
        """How long a controller that was stalled reads received heartbeats before it fences a broker."""
        return max(1, self.fence_check_interval_ms // 8)

    @property
    def lease_proof_max_age_ms(self) -> int:
        """How old a lease's proof of leadership may be: a lease is longer than half a session."""
        return self.session_timeout_ms // 3
