"""Values in the metadata that this version refuses, and what is in force in their place.

A controller of another version accepted them. Such a value has no effect, and all others do, as in Kafka: a
node must not fail because of what is in the metadata log, or all of them would, and again at every start. A
broker keeps the last good value of a topic. Where there is none, because the broker has just started, the
next layer is in force (:mod:`.broker_configs`); but nothing is deleted that the value may have been set to
keep.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from pykraft.configuration.client_metrics_keys import CLIENT_METRICS_KEYS
from pykraft.configuration.group_keys import GROUP_KEYS
from pykraft.configuration.keys import ConfigKey
from pykraft.configuration.server_keys import DYNAMIC_KEYS
from pykraft.configuration.topic_keys import TOPIC_KEYS
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.metadata_log.image import MetadataImage

logger = logging.getLogger(__name__)

DELETES_NOTHING: Final[Mapping[str, str]] = {
    "cleanup.policy": "",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
"""What is in force in place of a value that decided what is deleted, by topic configuration name."""

MOST_LINES: Final = 20
"""The most lines of the log for one image."""

_KEYS: Final[Mapping[int, Mapping[str, ConfigKey]]] = {
    ConfigResourceType.TOPIC: TOPIC_KEYS,
    ConfigResourceType.BROKER: DYNAMIC_KEYS,
    ConfigResourceType.GROUP: GROUP_KEYS,
    ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_KEYS,
}


def find_objections(keys: Mapping[str, ConfigKey], given: Mapping[str, str]) -> dict[str, str]:
    """Why values have no effect, by name; ``keys`` are those that this version knows."""
    objections = {}
    for name, text in given.items():
        key = keys.get(name)
        objection = "it is not a dynamic configuration" if key is None else key.objection_to(text)
        if objection is not None:
            objections[name] = objection
    return objections


def without_refused(keys: Mapping[str, ConfigKey], given: Mapping[str, str]) -> dict[str, str]:
    """The values that have an effect."""
    refused = find_objections(keys, given)
    return {name: text for name, text in given.items() if name not in refused}


class RefusedValues:
    """Those of one broker: each is logged when it is set, and counted."""

    def __init__(self) -> None:
        self._count_of: dict[tuple[int, str], int] = {}

    @property
    def count(self) -> int:
        """How many values in the newest image have no effect here."""
        return sum(self._count_of.values())

    def note(self, image: MetadataImage, changed: Collection[tuple[int, str]]) -> None:
        """The configurations of these resources have changed."""
        sentences = [sentence for resource in sorted(changed) for sentence in self._check(image, resource)]
        for sentence in sentences[:MOST_LINES]:
            logger.warning("%s", sentence)
        if len(sentences) > MOST_LINES:
            logger.warning("and %d more values are ignored", len(sentences) - MOST_LINES)

    def _check(self, image: MetadataImage, resource: tuple[int, str]) -> Iterator[str]:
        kind, name = resource
        self._count_of.pop(resource, None)
        if kind not in _KEYS:
            return
        objections = find_objections(_KEYS[kind], image.resource_config(kind, name))
        if objections:
            self._count_of[resource] = len(objections)
        whose = f"{ConfigResourceType(kind).name.lower().replace('_', ' ')} {name}"
        if kind == ConfigResourceType.BROKER and not name:
            whose = "all brokers"
        for key, objection in sorted(objections.items()):
            yield f"The {key} that is set for {whose} is ignored: {objection}"


class TopicOverrides:
    """Topics' own configs, with the last good value in place of one that this version refuses."""

    def __init__(self) -> None:
        self._of_topics_with_refused: dict[str, Mapping[str, str]] = {}

    def of(self, image: MetadataImage, topic: str) -> Mapping[str, str]:
        """As of an image whose changes have been noted."""
        kept = self._of_topics_with_refused.get(topic)
        return image.topic_config(topic) if kept is None else kept

    def note(self, old: MetadataImage, new: MetadataImage, topic: str) -> None:
        """The configuration of a topic has changed, or the topic is new here."""
        last, given = self.of(old, topic), new.topic_config(topic)
        self._of_topics_with_refused.pop(topic, None)
        refused = find_objections(TOPIC_KEYS, given)
        if not refused:
            return
        kept = {**DELETES_NOTHING, **without_refused(TOPIC_KEYS, last)}
        self._of_topics_with_refused[topic] = without_refused(TOPIC_KEYS, given) | {
            name: kept[name] for name in refused if name in kept
        }
