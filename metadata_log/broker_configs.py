"""Server properties that can be changed while brokers run, and what then holds (KIP-226).

The values live in the metadata log, for one broker or (under the empty name) for all. Precedence of what a
topic does not set itself: this broker's value, the one for all brokers, the properties file, the default.
These are Kafka's dynamic properties: those that pykraft reads, and those that it keeps for whoever asks
(:mod:`.stored_broker_configs`). Every other one is read at start only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.records import ConfigResourceType
from pykraft.metadata_log.stored_broker_configs import OF_ONE_BROKER, STORED_PROPERTIES, THROTTLES
from pykraft.metadata_log.topic_configs import TOPIC_CONFIGS, TOPIC_NAMES
from pykraft.runtime.properties import ConfigKey, ConfigType, at_least, unknown_key_message

ALL_BROKERS: Final = ""
"""The resource name under which values for all brokers are kept."""

MAX_CONNECTIONS: Final = ConfigKey(
    "max.connections", ConfigType.INT, "2147483647", "Connections per broker.", at_least(0)
)
MAX_CONNECTIONS_PER_IP: Final = ConfigKey(
    "max.connections.per.ip", ConfigType.INT, "2147483647", "Connections from one address.", at_least(0)
)
PRODUCER_ID_EXPIRATION_MS: Final = ConfigKey(
    "producer.id.expiration.ms",
    ConfigType.INT,
    "86400000",
    "How long an idle producer's sequence is remembered.",
    at_least(1),
)

BROKER_NAMES: Final[Mapping[str, str]] = {topic_name: name for name, topic_name in TOPIC_NAMES.items()}
"""From a topic configuration to the server property that gives its broker-wide value."""

_SYNONYMS: Final = {
    synonym: ConfigKey(
        synonym,
        TOPIC_CONFIGS[name].type,
        TOPIC_CONFIGS[name].default,
        TOPIC_CONFIGS[name].documentation,
        TOPIC_CONFIGS[name].validator,
    )
    for synonym, name in TOPIC_NAMES.items()
}

DYNAMIC_BROKER_CONFIGS: Final[Mapping[str, ConfigKey]] = {
    **_SYNONYMS,
    **STORED_PROPERTIES,
    **THROTTLES,
    MAX_CONNECTIONS.name: MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP.name: MAX_CONNECTIONS_PER_IP,
    PRODUCER_ID_EXPIRATION_MS.name: PRODUCER_ID_EXPIRATION_MS,
}


def dynamic_broker_key(name: str, read_only: Iterable[str]) -> ConfigKey:
    """The dynamic property called ``name``.

    INVALID_REQUEST if it is one of the ``read_only`` ones, INVALID_CONFIG if there is no such property.
    """
    key = DYNAMIC_BROKER_CONFIGS.get(name)
    if key is not None:
        return key
    known = frozenset(read_only)
    if name in known:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{name} cannot be changed while brokers run: set it in the properties file and restart",
        )
    raise KafkaError(
        ErrorCode.INVALID_CONFIG,
        unknown_key_message(name, known | DYNAMIC_BROKER_CONFIGS.keys(), BROKER_NAMES),
    )


def dynamic_key_of_all_brokers(name: str, read_only: Iterable[str]) -> ConfigKey:
    """As :func:`dynamic_broker_key`; INVALID_REQUEST also for what each broker has to be given by itself."""
    if name in OF_ONE_BROKER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can be set for one broker, not for all of them")
    return dynamic_broker_key(name, read_only)


def dynamic_broker_values(image: MetadataImage, broker_id: int | None) -> dict[str, str]:
    """What was set by property name: for ``broker_id``, else for all brokers. None: for all only."""
    values = dict(image.resource_config(ConfigResourceType.BROKER, ALL_BROKERS))
    if broker_id is not None:
        values.update(image.resource_config(ConfigResourceType.BROKER, str(broker_id)))
    return values


def broker_wide_topic_configs(
    image: MetadataImage, static: Mapping[str, str], broker_id: int | None = None
) -> Mapping[str, str]:
    """What holds for topics that set nothing, by topic configuration name; a default is left out.

    ``static`` is what the properties file says. Without a ``broker_id``: what holds for the cluster, as far
    as the node that has this file can tell.
    """
    dynamic = dynamic_broker_values(image, broker_id)
    if not dynamic:
        return static
    return {**static, **{TOPIC_NAMES[name]: text for name, text in dynamic.items() if name in TOPIC_NAMES}}


def concerns_broker(resource: tuple[int, str], broker_id: int) -> bool:
    """Whether a configuration resource holds values of that broker."""
    return resource in (
        (ConfigResourceType.BROKER, ALL_BROKERS),
        (ConfigResourceType.BROKER, str(broker_id)),
    )
