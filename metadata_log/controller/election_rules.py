"""The rules for choosing leaders: which brokers may lead, how many replicas must be in sync, whether records
may be lost.

Reads brokers, features and configurations out of an image; the choice itself is made in
:mod:`pykraft.metadata_log.controller.elections`.
"""

from __future__ import annotations

from typing import Final

from pykraft.configuration.keys import ConfigValue
from pykraft.configuration.topic_keys import TOPIC_KEYS
from pykraft.kafka_protocol.ids import Uuid
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.broker_configs import broker_wide_topic_configs
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.image import (
    UNKNOWN_DIRECTORIES,
    MetadataImage,
    PartitionRegistration,
    online_directories,
)
from pykraft.metadata_log.records import LogsLost

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION_ENABLE: Final = "unclean.leader.election.enable"
ELECTION_CONFIGS: Final = (MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION_ENABLE)
"""A change of these configurations may change partitions."""


@dataclass(frozen=True, slots=True)
class BrokerView:
    """The brokers by their state, as far as elections depend on it.

    ``active`` brokers may lead and be in an ISR. ``tail_lost`` brokers registered after a stop that did not
    flush their logs, ``all_lost`` ones without a log directory; both until they are unfenced. A loss of
    directories concerns only replicas whose directory is not known: ``online`` holds the directories that
    work (:func:`~pykraft.metadata_log.image.online_directories`).
    """

    active: frozenset[int]
    tail_lost: frozenset[int] = frozenset()
    all_lost: frozenset[int] = frozenset()
    online: frozenset[Uuid] = UNKNOWN_DIRECTORIES

    def active_of(self, partition: PartitionRegistration) -> frozenset[int]:
        """The brokers that may lead the partition and be in its ISR."""
        offline = partition.offline_in(self.online)
        return self.active.difference(offline) if offline else self.active

    def all_lost_of(self, partition: PartitionRegistration) -> frozenset[int]:
        """The brokers that may have lost their log of the partition as a whole."""
        if not (self.all_lost and partition.directories):
            return self.all_lost
        return frozenset(id for id in self.all_lost if partition.directory(id) in UNKNOWN_DIRECTORIES)


def view_brokers(image: MetadataImage) -> BrokerView:
    """The brokers of an image."""
    brokers = image.brokers.values()
    return BrokerView(
        frozenset(broker.id for broker in brokers if broker.is_active),
        frozenset(broker.id for broker in brokers if broker.logs_lost != LogsLost.NOTHING),
        frozenset(broker.id for broker in brokers if broker.logs_lost == LogsLost.ALL),
        online_directories(brokers),
    )


@dataclass(frozen=True, slots=True)
class ElectionRules:
    """The rules for one topic.

    ``unclean_allowed``: a replica that may lack committed records may lead if no other can. ``elr_enabled``:
    replicas that left an ISR smaller than ``min_isr`` stay eligible (KIP-966).
    """

    min_isr: int = 1
    unclean_allowed: bool = False
    elr_enabled: bool = False


def find_rules(image: MetadataImage, config: ControllerConfig, topic: str) -> ElectionRules:
    """The rules for a topic: from its own configuration, the cluster's, or the controller's properties."""
    given, wide = image.topic_config(topic), broker_wide_topic_configs(image, config.topic_defaults)

    def effective(name: str) -> ConfigValue:
        key, text = TOPIC_KEYS[name], given.get(name)
        if not text or key.objection_to(text) is not None:  # another version accepted it
            text = wide.get(name) or key.default or ""
        return key.parse(text)

    min_isr, unclean = effective(MIN_INSYNC_REPLICAS), effective(UNCLEAN_LEADER_ELECTION_ENABLE)
    assert isinstance(min_isr, int) and isinstance(unclean, bool)
    return ElectionRules(min_isr, unclean, image.elr_enabled)
