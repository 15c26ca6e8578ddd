"""The settings of a node's broker and its controller, from the node's configuration."""

from __future__ import annotations

from pykraft.broker.config import BrokerConfig, CleanerConfig
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.node.config import ServerConfig


def broker_config(config: ServerConfig, cluster_id: str) -> BrokerConfig:
    """The typed settings of the broker."""
    return BrokerConfig.from_properties(
        config.values,
        node_id=config.node_id,
        cluster_id=cluster_id,
        log_dirs=config.log_dirs,
        listeners=config.broker_listeners,
        inter_broker_listener_name=config.inter_broker_listener_name,
        topic_defaults=config.topic_defaults,
        cleaner=CleanerConfig.from_properties(config.values),
    )


def controller_config(config: ServerConfig) -> ControllerConfig:
    """The typed settings of the controller."""
    return ControllerConfig.from_properties(
        config.values, topic_defaults=config.topic_defaults, server_properties=config.given
    )
