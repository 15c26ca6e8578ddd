"""What a controller is told at start, and the randomness it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pykraft.configuration.settings import Settings, from_seconds, setting


class Rng(Protocol):
    """The part of :class:`random.Random` that the controller draws from; seeded, so that runs repeat."""

    def randrange(self, stop: int, /) -> int: ...

    def randbytes(self, n: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ControllerConfig(Settings):
    """The controller's settings.

    ``topic_defaults`` are what this node's properties file sets for topics, by topic config name;
    ``server_properties`` is all that it sets.
    ``max_idle_interval_ms``: a record that changes nothing is written after so long without any other; 0 for
    never (Kafka's default is 500): the proofs under leases keep the log alive as much as anybody needs.
    ``max_records_per_request`` bounds the batch one request may cause.
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
        """How often lapsed sessions are looked for: eight times per session."""
        return max(1, self.session_timeout_ms // 8)

    @property
    def late_reading_ms(self) -> int:
        """What a controller that stood still takes to read what was sent to it, before it judges anybody."""
        return max(1, self.fence_check_interval_ms // 8)

    @property
    def lease_proof_max_age_ms(self) -> int:
        """How old the proof of leadership under a lease may be (:mod:`.leadership`): a lease is more than
        half a session."""
        return self.session_timeout_ms // 3
