"""The broker's settings, typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from pykraft.configuration.settings import Settings, setting
from pykraft.lazy_dataclass import dataclass
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
        """The address that clients are told once the socket is bound."""
        port = self.advertised_port or bound_port
        return Endpoint(self.name, self.advertised_host, port, self.security_protocol)


@dataclass(frozen=True, slots=True)
class CleanerConfig(Settings):
    """Settings of the compaction of logs. Times in milliseconds, sizes in bytes, of all threads together."""

    enable: bool = setting("log.cleaner.enable")
    threads: int = setting("log.cleaner.threads")
    dedupe_buffer_bytes: int = setting("log.cleaner.dedupe.buffer.size")
    load_factor: float = setting("log.cleaner.io.buffer.load.factor")
    io_buffer_bytes: int = setting("log.cleaner.io.buffer.size")
    max_io_bytes_per_second: float = setting("log.cleaner.io.max.bytes.per.second")
    backoff_ms: int = setting("log.cleaner.backoff.ms")


@dataclass(frozen=True, slots=True)
class BrokerConfig(Settings):
    """The settings a broker is started with. Times in milliseconds, sizes in bytes."""

    node_id: int
    cluster_id: str
    log_dirs: tuple[str, ...]
    listeners: tuple[ListenerConfig, ...]
    inter_broker_listener_name: str = "PLAINTEXT"
    rack: str | None = setting("broker.rack")
    heartbeat_interval_ms: int = setting("broker.heartbeat.interval.ms")
    initial_registration_timeout_ms: int = setting("initial.broker.registration.timeout.ms")
    controlled_shutdown_enable: bool = setting("controlled.shutdown.enable")
    controlled_shutdown_timeout_ms: int = 15_000

    auto_create_topics_enable: bool = setting("auto.create.topics.enable")
    num_partitions: int = setting("num.partitions")
    default_replication_factor: int = setting("default.replication.factor")
    offsets_topic_num_partitions: int = setting("offsets.topic.num.partitions")
    offsets_topic_replication_factor: int = setting("offsets.topic.replication.factor")
    offsets_topic_segment_bytes: int = setting("offsets.topic.segment.bytes")
    transaction_log_num_partitions: int = setting("transaction.state.log.num.partitions")
    transaction_log_replication_factor: int = setting("transaction.state.log.replication.factor")
    transaction_log_min_isr: int = setting("transaction.state.log.min.isr")
    transaction_log_segment_bytes: int = setting("transaction.state.log.segment.bytes")

    replica_lag_time_max_ms: int = setting("replica.lag.time.max.ms")
    replica_selector_class: str | None = setting("replica.selector.class")
    num_replica_fetchers: int = setting("num.replica.fetchers")
    cordoned_log_dirs: tuple[str, ...] = setting("cordoned.log.dirs")
    replica_fetch_max_bytes: int = setting("replica.fetch.max.bytes")
    replica_fetch_response_max_bytes: int = setting("replica.fetch.response.max.bytes")
    replica_fetch_min_bytes: int = setting("replica.fetch.min.bytes")
    replica_fetch_wait_max_ms: int = setting("replica.fetch.wait.max.ms")
    replica_fetch_backoff_ms: int = setting("replica.fetch.backoff.ms")
    replica_socket_timeout_ms: int = setting("replica.socket.timeout.ms")
    high_watermark_checkpoint_interval_ms: int = setting("replica.high.watermark.checkpoint.interval.ms")
    flush_offset_checkpoint_interval_ms: int = setting("log.flush.offset.checkpoint.interval.ms")
    log_dir_failure_timeout_ms: int = setting("log.dir.failure.timeout.ms")
    retention_check_interval_ms: int = setting("log.retention.check.interval.ms")
    log_scrub_bytes_per_second: int = setting("log.scrub.bytes.per.second")
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)

    max_incremental_fetch_session_cache_slots: int = setting("max.incremental.fetch.session.cache.slots")
    fetch_max_bytes: int = setting("fetch.max.bytes")
    producer_id_expiration_ms: int = setting("producer.id.expiration.ms")
    transaction_verification: bool = setting("transaction.partition.verification.enable")
    markers_from_clients: str = setting("pykraft.transaction.markers.from.clients")
    add_partitions_retry_ms: int = setting("add.partitions.to.txn.retry.backoff.ms")
    add_partitions_retry_max_ms: int = setting("add.partitions.to.txn.retry.backoff.max.ms")

    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    """Broker-wide values for topic configs, by the topic config's own name (``segment.bytes``)."""
