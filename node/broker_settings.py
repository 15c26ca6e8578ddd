"""From server properties to the settings of the broker, of its listeners and of the group coordinator."""

from __future__ import annotations

from pykraft.broker.apis.services import ServerProperty
from pykraft.broker.config import BrokerConfig
from pykraft.broker.serving.listener import ListenerLimits
from pykraft.group_coordinator.config import GroupConfig
from pykraft.metadata_log.topic_configs import TOPIC_CONFIGS
from pykraft.node.config import COARSER_UNITS, ServerConfig
from pykraft.node.config_keys import SERVER_KEYS
from pykraft.node.kafka_keys import DESCRIBED_KAFKA_KEYS, UNUSED_KAFKA_KEYS
from pykraft.runtime.properties import ConfigKey, ConfigType, ConfigValue

_COARSER_KEYS = {
    name: ConfigKey(name, ConfigType.INT, None, f"Stands for {fine}, where that is not given.")
    for name, (fine, _) in COARSER_UNITS.items()
}


def broker_config(config: ServerConfig, cluster_id: str) -> BrokerConfig:
    """The typed settings of the broker."""
    rack = config.values["broker.rack"]
    return BrokerConfig(
        node_id=config.node_id,
        cluster_id=cluster_id,
        log_dirs=config.log_dirs,
        listeners=config.broker_listeners,
        inter_broker_listener_name=config.inter_broker_listener_name,
        rack=None if rack is None else str(rack),
        heartbeat_interval_ms=config.integer("broker.heartbeat.interval.ms"),
        initial_registration_timeout_ms=config.integer("initial.broker.registration.timeout.ms"),
        controlled_shutdown_enable=bool(config.values["controlled.shutdown.enable"]),
        auto_create_topics_enable=bool(config.values["auto.create.topics.enable"]),
        num_partitions=config.integer("num.partitions"),
        default_replication_factor=config.integer("default.replication.factor"),
        offsets_topic_num_partitions=config.integer("offsets.topic.num.partitions"),
        offsets_topic_replication_factor=config.integer("offsets.topic.replication.factor"),
        offsets_topic_segment_bytes=config.integer("offsets.topic.segment.bytes"),
        replica_lag_time_max_ms=config.integer("replica.lag.time.max.ms"),
        replica_fetch_max_bytes=config.integer("replica.fetch.max.bytes"),
        replica_fetch_response_max_bytes=config.integer("replica.fetch.response.max.bytes"),
        replica_fetch_min_bytes=config.integer("replica.fetch.min.bytes"),
        replica_fetch_wait_max_ms=config.integer("replica.fetch.wait.max.ms"),
        replica_fetch_backoff_ms=config.integer("replica.fetch.backoff.ms"),
        replica_socket_timeout_ms=config.integer("replica.socket.timeout.ms"),
        high_watermark_checkpoint_interval_ms=config.integer("replica.high.watermark.checkpoint.interval.ms"),
        flush_offset_checkpoint_interval_ms=config.integer("log.flush.offset.checkpoint.interval.ms"),
        retention_check_interval_ms=config.integer("log.retention.check.interval.ms"),
        log_scrub_bytes_per_second=config.integer("log.scrub.bytes.per.second"),
        fetch_max_bytes=config.integer("fetch.max.bytes"),
        producer_id_expiration_ms=config.integer("producer.id.expiration.ms"),
        topic_defaults=config.topic_defaults,
    )


def listener_limits(config: ServerConfig) -> ListenerLimits:
    """What every listener for clients is bounded by."""
    return ListenerLimits(
        max_request_bytes=config.integer("socket.request.max.bytes"),
        max_connections=config.integer("max.connections"),
        max_connections_per_ip=config.integer("max.connections.per.ip"),
        idle_timeout_ms=config.integer("connections.max.idle.ms"),
    )


def group_config(config: ServerConfig) -> GroupConfig:
    """The typed settings of the group coordinator. :class:`ValueError` if they contradict one another."""
    texts = {name: text for name in SERVER_KEYS if (text := _text(config.values[name])) is not None}
    return GroupConfig.from_properties(texts)


def server_properties(config: ServerConfig) -> dict[str, ServerProperty]:
    """Every server property of this node, for DescribeConfigs."""
    shown = {}
    for name, key in sorted(SERVER_KEYS.items()):
        text = _text(config.values[name])
        shown[name] = ServerProperty(key=key, value=text, is_default=text == key.default)
    for name, key in {**DESCRIBED_KAFKA_KEYS, **_COARSER_KEYS}.items():
        value = str(config.node_id) if name == "broker.id" else config.unused.get(name, key.default)
        shown[name] = ServerProperty(key=key, value=value, is_default=value == key.default)
    for name, topic_key in TOPIC_CONFIGS.items():
        synonym = topic_key.broker_synonym
        if synonym:
            value = config.topic_defaults.get(name, topic_key.default)
            key = ConfigKey(synonym, topic_key.type, topic_key.default, topic_key.documentation)
            shown[synonym] = ServerProperty(key=key, value=value, is_default=value == key.default)
    return shown


def known_properties(config: ServerConfig) -> dict[str, str | None]:
    """Every property that Kafka knows, with its value here if it has one."""
    values = {name: _text(config.values[name]) for name in SERVER_KEYS}
    return dict.fromkeys(UNUSED_KAFKA_KEYS) | dict.fromkeys(COARSER_UNITS) | values


def _text(value: ConfigValue) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, list) else str(value)
