"""Server properties that can be changed while brokers run, and their effective values (KIP-226).

The values are in the metadata log, for one broker or (under the empty name) for all brokers. A property that
a topic does not set itself takes the first of: this broker's value, the value for all brokers, the properties
file, the default.

A controller of another version may have accepted what this one refuses (:mod:`.refused_values`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykraft.configuration.keys import (
    ConfigKey,
    ConfigValue,
    UpdateMode,
    resolve,
    unknown_key_message,
)
from pykraft.configuration.server_keys import DYNAMIC_KEYS, KNOWN_NAMES, READ_KEYS
from pykraft.configuration.topic_keys import SERVER_PROPERTY_TO_TOPIC, TOPIC_TO_SERVER_PROPERTY
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.refused_values import DELETES_NOTHING, without_refused

ALL_BROKERS: Final = ""
"""The resource name under which values for all brokers are kept."""

CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"


def dynamic_broker_key(name: str) -> ConfigKey:
    """The dynamic property called ``name``.

    INVALID_REQUEST if it is only read when a node starts, INVALID_CONFIG if there is no such property.
    """
    key = DYNAMIC_KEYS.get(name)
    if key is not None:
        return key
    if name in KNOWN_NAMES:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{name} cannot be changed while brokers run: set it in the properties file and restart",
        )
    raise KafkaError(
        ErrorCode.INVALID_CONFIG,
        unknown_key_message(name, KNOWN_NAMES, TOPIC_TO_SERVER_PROPERTY),
    )


def dynamic_key_of_all_brokers(name: str) -> ConfigKey:
    """As :func:`dynamic_broker_key`; INVALID_REQUEST also for a property that each broker must set itself."""
    key = dynamic_broker_key(name)
    if key.update_mode is UpdateMode.PER_BROKER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can be set for one broker, not for all of them")
    return key


def dynamic_broker_values(image: MetadataImage, broker_id: int | None) -> dict[str, str]:
    """Values that were set, by name: those for ``broker_id`` (None: none), then those for all brokers."""
    values = dict(image.resource_config(ConfigResourceType.BROKER, ALL_BROKERS))
    if broker_id is not None:
        values.update(image.resource_config(ConfigResourceType.BROKER, str(broker_id)))
    return values


def effective_dynamic_values(image: MetadataImage, broker_id: int | None) -> dict[str, str]:
    """As :func:`dynamic_broker_values`, without what this version refuses."""
    effective: dict[str, str] = {}
    for resource in (ALL_BROKERS,) if broker_id is None else (ALL_BROKERS, str(broker_id)):
        given = image.resource_config(ConfigResourceType.BROKER, resource)
        effective |= without_refused(DYNAMIC_KEYS, given)
    return effective


def with_dynamic_values(
    image: MetadataImage, broker_id: int, values: Mapping[str, ConfigValue]
) -> dict[str, ConfigValue]:
    """Typed ``values`` of a broker's properties file, replaced by those that were set while it runs."""
    dynamic = effective_dynamic_values(image, broker_id)
    return {**values, **resolve({name: READ_KEYS[name] for name in dynamic if name in READ_KEYS}, dynamic)}


def broker_wide_topic_configs(
    image: MetadataImage, static: Mapping[str, str], broker_id: int | None = None
) -> Mapping[str, str]:
    """The effective values for topics that set nothing, by topic configuration name; defaults are left out.

    ``static`` holds the values of the properties file. Without a ``broker_id``: the values for the cluster,
    as far as the node with this file can tell.
    """
    given = dynamic_broker_values(image, broker_id)
    if not given:
        return static
    dynamic, names = effective_dynamic_values(image, broker_id), SERVER_PROPERTY_TO_TOPIC
    refused = {names[name] for name in given.keys() - dynamic.keys() if name in names}
    return {
        **{name: text for name, text in DELETES_NOTHING.items() if name in refused},
        **static,
        **{names[name]: text for name, text in dynamic.items() if name in names},
    }


def concerns_broker(resource: tuple[int, str], broker_id: int) -> bool:
    """Whether a configuration resource holds values of that broker."""
    return resource in (
        (ConfigResourceType.BROKER, ALL_BROKERS),
        (ConfigResourceType.BROKER, str(broker_id)),
    )
