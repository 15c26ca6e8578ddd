"""The broker's settings, already typed. Field names are Kafka's property names with underscores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pykraft.metadata_log.records import Endpoint


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """One socket a node listens on: where it binds and what it tells clients.

    ``port`` 0 binds a free port, which is then advertised when ``advertised_port`` is 0 as well.
    """

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    security_protocol: str = "PLAINTEXT"

    def endpoint(self, bound_port: int) -> Endpoint:
        """What clients are told once the socket is bound."""
        port = self.advertised_port or bound_port
        return Endpoint(self.name, self.advertised_host, port, self.security_protocol)


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Everything a broker is told at start. Times in milliseconds, sizes in bytes; defaults are Kafka's."""

    node_id: int
    cluster_id: str
    log_dirs: tuple[str, ...]
    listeners: tuple[ListenerConfig, ...]
    inter_broker_listener_name: str = "PLAINTEXT"
    rack: str | None = None

    heartbeat_interval_ms: int = 2000
    initial_registration_timeout_ms: int = 60_000
    controlled_shutdown_enable: bool = True
    controlled_shutdown_timeout_ms: int = 15_000

    auto_create_topics_enable: bool = True
    num_partitions: int = 1
    default_replication_factor: int = 1
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104_857_600

    replica_lag_time_max_ms: int = 30_000
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_min_bytes: int = 1
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_backoff_ms: int = 1000
    replica_socket_timeout_ms: int = 30_000
    high_watermark_checkpoint_interval_ms: int = 5000
    flush_offset_checkpoint_interval_ms: int = 60_000
    retention_check_interval_ms: int = 300_000
    file_delete_delay_ms: int = 60_000
    log_scrub_bytes_per_second: int = 1_048_576

    fetch_max_bytes: int = 57_671_680
    producer_id_expiration_ms: int = 86_400_000

    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    """Broker-wide values for topic configs, by the topic config's own name (``segment.bytes``)."""
