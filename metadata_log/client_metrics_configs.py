"""Subscriptions to clients' metrics (KIP-714, resource type CLIENT_METRICS): names and checks.

They are kept and described. Metrics are not collected yet, so no client is told of them; the patterns in
``match`` are in Java's syntax, and looked at by whoever will match them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.properties import ConfigKey, ConfigType, ConfigValue, between, unknown_key_message

_MATCHED: Final = (
    *("client_instance_id", "client_id", "client_software_name", "client_software_version"),
    *("client_source_address", "client_source_port"),
)


def _match(value: ConfigValue) -> str | None:
    assert isinstance(value, list)
    for item in value:
        name, _, pattern = item.partition("=")
        if name.strip() not in _MATCHED or not pattern.strip() or "=" in pattern:
            return f"must be a list of name=pattern, where a name is one of {', '.join(_MATCHED)}"
    return None


_KEYS: Final = (
    ConfigKey(
        "interval.ms",
        ConfigType.INT,
        "300000",
        "How often clients push what was subscribed to.",
        between(100, 3_600_000),
    ),
    ConfigKey(
        "match", ConfigType.LIST, "", "Which clients push: name=pattern, all of which must fit.", _match
    ),
    ConfigKey("metrics", ConfigType.LIST, "", "Prefixes of the names of the metrics to push; * for all."),
)
CLIENT_METRICS_CONFIGS: Final[Mapping[str, ConfigKey]] = {key.name: key for key in _KEYS}


def client_metrics_config_key(name: str) -> ConfigKey:
    """The key called ``name``. INVALID_REQUEST, as in Kafka, naming the nearest one, if there is none."""
    key = CLIENT_METRICS_CONFIGS.get(name)
    if key is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, unknown_key_message(name, CLIENT_METRICS_CONFIGS, {}))
    return key
