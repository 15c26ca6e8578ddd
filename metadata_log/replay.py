"""The fold: image + records = next image. Controller, standby and broker all run this and nothing else.

Only this file changes an image. A batch is applied as a whole and published once; the records of a batch
carry consecutive offsets. A record that does not fit the image (an unknown broker, a partition out of
order) means that log and code disagree: an assertion, because a corrupted state machine must not go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.delta import Changes
from pykraft.metadata_log.image import (
    NO_CONFIGS,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from pykraft.metadata_log.records import (
    OWN_OFFSET,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    ConfigResourceType,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)


def replay(
    image: MetadataImage, records: Sequence[Record], base_offset: int, epoch: int
) -> tuple[MetadataImage, Changes]:
    """Apply one batch whose first record stands at ``base_offset``, written in ``epoch``."""
    fold = _Fold(image)
    for index, record in enumerate(records):
        fold.apply(record, base_offset + index)
    return fold.finish(base_offset + len(records) - 1, epoch), fold.changes


def skip_to(image: MetadataImage, offset: int, epoch: int) -> MetadataImage:
    """The same cluster as of a later offset: for batches that carry no metadata."""
    return replace(image, offset=offset, epoch=epoch)


class _Fold:
    """One batch in progress: builders for the maps it touches, lists for the topics it touches."""

    __slots__ = (
        "_brokers",
        "_configs",
        "_features",
        "_image",
        "_next_producer_id",
        "_open_topics",
        "_topic_ids",
        "_topics",
        "changes",
    )

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._brokers = image.brokers.mutate()
        self._topics = image.topics_by_id.mutate()
        self._topic_ids = image.topic_ids.mutate()
        self._configs = image.configs.mutate()
        self._features = image.features.mutate()
        self._next_producer_id = image.next_producer_id
        # Topics whose partitions this batch touches, as lists: one tuple per topic at the end, however
        # many of its partitions change.
        self._open_topics: dict[Uuid, list[PartitionRegistration]] = {}
        self.changes = Changes()

    def finish(self, offset: int, epoch: int) -> MetadataImage:
        for topic_id, partitions in self._open_topics.items():
            self._topics[topic_id] = replace(self._topics[topic_id], partitions=tuple(partitions))
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            brokers=self._brokers.finish(),
            topics_by_id=self._topics.finish(),
            topic_ids=self._topic_ids.finish(),
            configs=self._configs.finish(),
            features=self._features.finish(),
            next_producer_id=self._next_producer_id,
        )

    def apply(self, record: Record, offset: int) -> None:
        match record:
            case PartitionRecord():
                self._add_partition(record)
            case PartitionChangeRecord():
                self._change_partition(record)
            case TopicRecord():
                self._add_topic(record)
            case RemoveTopicRecord():
                self._remove_topic(record)
            case ConfigRecord():
                self._set_config(record)
            case RegisterBrokerRecord():
                self._register_broker(record, offset)
            case BrokerRegistrationChangeRecord():
                self._change_broker(record, offset)
            case UnregisterBrokerRecord():
                self._unregister_broker(record)
            case FeatureLevelRecord():
                self._set_feature(record)
            case ProducerIdsRecord():
                assert record.next_producer_id >= self._next_producer_id, f"producer ids go back: {record}"
                self._next_producer_id = record.next_producer_id
            case NoOpRecord():
                pass
            case _:
                assert_never(record)

    # Topics and partitions

    def _add_topic(self, record: TopicRecord) -> None:
        assert record.name not in self._topic_ids, f"{record} exists already"
        assert record.topic_id not in self._topics, f"{record} exists already"
        self._topics[record.topic_id] = TopicImage(record.name, record.topic_id)
        self._topic_ids[record.name] = record.topic_id
        self.changes.topics.add(record.topic_id)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        assert record.topic_id in self._topics, f"{record} names no topic"
        topic = self._topics.pop(record.topic_id)
        del self._topic_ids[topic.name]
        self._open_topics.pop(record.topic_id, None)
        self.changes.topics.add(record.topic_id)
        key = (int(ConfigResourceType.TOPIC), topic.name)
        if key in self._configs:
            del self._configs[key]
            self.changes.configs.add(key)

    def _partitions(self, topic_id: Uuid) -> list[PartitionRegistration]:
        partitions = self._open_topics.get(topic_id)
        if partitions is None:
            assert topic_id in self._topics, f"no topic {topic_id.hex()}"
            partitions = self._open_topics[topic_id] = list(self._topics[topic_id].partitions)
        return partitions

    def _add_partition(self, record: PartitionRecord) -> None:
        partitions = self._partitions(record.topic_id)
        assert record.partition_id == len(partitions), f"{record} out of order, expected {len(partitions)}"
        replicas = _intern(record.replicas)
        partitions.append(
            PartitionRegistration(
                replicas,
                replicas if record.isr == replicas else _intern(record.isr),
                record.leader,
                record.leader_epoch,
                record.partition_epoch,
                record.adding_replicas,
                record.removing_replicas,
                record.eligible_leader_replicas,
                record.last_known_elr,
            )
        )
        self.changes.touch_partition(record.topic_id, record.partition_id)

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        partitions = self._partitions(record.topic_id)
        assert 0 <= record.partition_id < len(partitions), f"{record} names no partition"
        old = partitions[record.partition_id]
        leader_named = record.leader is not None
        partitions[record.partition_id] = PartitionRegistration(
            replicas=old.replicas if record.replicas is None else _intern(record.replicas),
            isr=old.isr if record.isr is None else _intern(record.isr),
            leader=old.leader if record.leader is None else record.leader,
            leader_epoch=old.leader_epoch + leader_named,
            partition_epoch=old.partition_epoch + 1,
            adding=old.adding if record.adding_replicas is None else record.adding_replicas,
            removing=old.removing if record.removing_replicas is None else record.removing_replicas,
            elr=old.elr if record.eligible_leader_replicas is None else record.eligible_leader_replicas,
            last_known_elr=old.last_known_elr if record.last_known_elr is None else record.last_known_elr,
        )
        self.changes.touch_partition(record.topic_id, record.partition_id)

    # Brokers

    def _register_broker(self, record: RegisterBrokerRecord, offset: int) -> None:
        self._brokers[record.broker_id] = BrokerRegistration(
            id=record.broker_id,
            epoch=offset if record.broker_epoch == OWN_OFFSET else record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=record.endpoints,
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=record.log_dirs,
            features=record.features,
            last_change_offset=offset,
        )
        self.changes.brokers.add(record.broker_id)

    def _change_broker(self, record: BrokerRegistrationChangeRecord, offset: int) -> None:
        old = self._broker(record.broker_id, record.broker_epoch)
        shutting_down = record.in_controlled_shutdown
        self._brokers[record.broker_id] = replace(
            old,
            fenced=old.fenced if record.fenced is None else record.fenced,
            in_controlled_shutdown=old.in_controlled_shutdown if shutting_down is None else shutting_down,
            last_change_offset=offset,
        )
        self.changes.brokers.add(record.broker_id)

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self._brokers[record.broker_id]
        self.changes.brokers.add(record.broker_id)

    def _broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self._brokers.get(broker_id)
        assert broker is not None, f"broker {broker_id} is not registered"
        assert broker.epoch == epoch, f"broker {broker_id} has epoch {broker.epoch}, the record says {epoch}"
        return broker

    # Configurations and features

    def _set_config(self, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        configs = self._configs.get(key, NO_CONFIGS)
        if record.value is not None:
            self._configs[key] = configs.set(record.name, record.value)
        elif record.name in configs:
            configs = configs.delete(record.name)
            if configs:
                self._configs[key] = configs
            else:
                del self._configs[key]
        self.changes.configs.add(key)

    def _set_feature(self, record: FeatureLevelRecord) -> None:
        if record.feature_level > 0:
            self._features[record.name] = record.feature_level
        elif record.name in self._features:
            del self._features[record.name]
        self.changes.features.add(record.name)


# Clusters have few distinct replica lists; sharing them saves most of a partition's memory. Cleared when
# full, which costs sharing and nothing else.
_INTERNED_MAX = 65_536
_interned: dict[tuple[int, ...], tuple[int, ...]] = {}


def _intern(replicas: tuple[int, ...]) -> tuple[int, ...]:
    if len(_interned) >= _INTERNED_MAX:
        _interned.clear()
    return _interned.setdefault(replicas, replicas)
