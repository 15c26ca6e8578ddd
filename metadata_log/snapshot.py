"""An image as records and back: the content of a snapshot of the metadata log.

Every field of the image survives: loading a written snapshot gives an equal image, and replaying the log from
there gives the same image as replaying the whole log. The order is fixed, so that equal images give equal
bytes on every node: features, brokers, controllers, each topic (in order of their ids) followed by its
partitions and its configuration, the other configurations, the producer ids, the longest session timeout.
Writing and loading are done in slices, because an image may hold a million partitions. Records in a snapshot
have no offsets of their own: the snapshot's id gives its offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.metadata_log.chunked import sequence_of
from pykraft.metadata_log.codec import decode_record, encode_record
from pykraft.metadata_log.delta import Changes
from pykraft.metadata_log.image import (
    EMPTY_IMAGE,
    NO_CONFIGS,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    metric_name,
)
from pykraft.metadata_log.records import (
    OWN_OFFSET,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    SessionTimeoutRecord,
    TopicRecord,
)
from pykraft.metadata_log.replay import broker_of, partition_of

SLICE_RECORDS: Final = 500
"""Records written or sorted in one go: about a millisecond of work."""

_NO_BROKER: Final = -1
"""The broker that was given the producer ids is not part of the image."""


def iter_snapshot_values(image: MetadataImage) -> Iterator[list[bytes]]:
    """The encoded records of an image, at most :data:`SLICE_RECORDS` at a time.

    An empty list is a pause: work was done that gave no record yet.
    """
    values: list[bytes] = []
    for record in _iter_records(image):
        if record is None:
            yield []
            continue
        values.append(encode_record(record))
        if len(values) == SLICE_RECORDS:
            yield values
            values = []
    if values:
        yield values


def _iter_records(image: MetadataImage) -> Iterator[Record | None]:
    """The records in their order, and None for each slice of work that gives none."""
    for name in sorted(image.features):
        yield FeatureLevelRecord(name, image.features[name])
    for broker_id in sorted(image.brokers):
        yield _broker_record(image.brokers[broker_id])
    for controller_id in sorted(image.controllers):
        yield image.controllers[controller_id]
    for topic in _iter_topics(image):
        if topic is None:
            yield None
            continue
        yield TopicRecord(topic.name, topic.id)
        for index, partition in enumerate(topic.partitions):
            yield _partition_record(topic, index, partition)
        yield from _config_records(image, ConfigResourceType.TOPIC, topic.name)
    yield from _iter_other_configs(image)
    if image.next_producer_id > 0:
        yield ProducerIdsRecord(_NO_BROKER, _NO_BROKER, image.next_producer_id)
    if image.longest_session_ms > 0:
        yield SessionTimeoutRecord(image.longest_session_ms)


def _iter_topics(image: MetadataImage) -> Iterator[TopicImage | None]:
    """The topics by id. Ids are random: each of 256 buckets is small enough to be sorted in one slice."""
    buckets: list[list[TopicImage]] = [[] for _ in range(256)]
    for count, topic in enumerate(image.topics_by_id.values(), 1):
        buckets[topic.id[0]].append(topic)
        if count % SLICE_RECORDS == 0:
            yield None
    for bucket in buckets:
        bucket.sort(key=lambda topic: topic.id)
        yield from bucket


def _iter_other_configs(image: MetadataImage) -> Iterator[Record | None]:
    others = []
    for count, (resource_type, name) in enumerate(image.configs.keys(), 1):
        if resource_type != ConfigResourceType.TOPIC or name not in image.topic_ids:
            others.append((resource_type, name))
        if count % SLICE_RECORDS == 0:
            yield None
    for resource_type, name in sorted(others):
        yield from _config_records(image, resource_type, name)


def _config_records(image: MetadataImage, resource_type: int, resource_name: str) -> Iterator[Record]:
    configs = image.resource_config(resource_type, resource_name)
    for name in sorted(configs):
        yield ConfigRecord(int(resource_type), resource_name, name, configs[name])


def _broker_record(broker: BrokerRegistration) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        endpoints=broker.endpoints,
        features=broker.features,
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
        logs_lost=broker.logs_lost,
        last_change_offset=broker.last_change_offset,
        offline_log_dirs=broker.offline_log_dirs,
        cordoned_log_dirs=broker.cordoned_log_dirs,
    )


def _partition_record(topic: TopicImage, index: int, partition: PartitionRegistration) -> PartitionRecord:
    return PartitionRecord(
        index,
        topic.id,
        partition.replicas,
        partition.isr,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.adding,
        partition.removing,
        partition.elr,
        partition.last_known_elr,
        partition.lost,
        partition.directories,
    )


class ImageBuilder:
    """Builds an image from a snapshot's values, given in order, in slices of any size.

    Parts that are equal in the ``previous`` image are taken from there, so that both images together need
    little more memory than one, and the changes between them are known when the last slice is loaded.
    """

    def __init__(self, previous: MetadataImage = EMPTY_IMAGE) -> None:
        self._previous = previous
        self._brokers = EMPTY_IMAGE.brokers.mutate()
        self._topics = EMPTY_IMAGE.topics_by_id.mutate()
        self._topic_ids = EMPTY_IMAGE.topic_ids.mutate()
        self._metric_names = EMPTY_IMAGE.metric_names.mutate()
        self._configs = EMPTY_IMAGE.configs.mutate()
        self._features = EMPTY_IMAGE.features.mutate()
        self._controllers = EMPTY_IMAGE.controllers.mutate()
        self._next_producer_id = 0
        self._longest_session_ms = 0
        self._topic: TopicRecord | None = None
        self._before: TopicImage | None = None
        self._partitions: list[PartitionRegistration] = []
        self._changes = Changes()

    def load(self, values: Sequence[bytes]) -> None:
        """Load a slice. Raises :class:`RecordFormatError` for a record that this code cannot read."""
        for value in values:
            record = decode_record(value)
            match record:
                case PartitionRecord():
                    self._add_partition(record)
                case TopicRecord():
                    self._close_topic()
                    assert record.topic_id not in self._topics, f"{record} is in the snapshot twice"
                    self._topic = record
                    self._before = self._previous.topics_by_id.get(record.topic_id)
                case ConfigRecord(resource_type, resource_name, name, str() as setting):
                    key = (resource_type, resource_name)
                    self._configs[key] = self._configs.get(key, NO_CONFIGS).set(name, setting)
                case RegisterBrokerRecord():
                    self._add_broker(record)
                case FeatureLevelRecord():
                    self._features[record.name] = record.feature_level
                case RegisterControllerRecord():
                    self._controllers[record.controller_id] = record
                case ProducerIdsRecord():
                    self._next_producer_id = record.next_producer_id
                case SessionTimeoutRecord():
                    self._longest_session_ms = record.longest_ms
                case _:
                    raise AssertionError(f"{record} does not belong in a snapshot")

    def finish(self, offset: int, epoch: int) -> tuple[MetadataImage, Changes]:
        """The image as of ``offset`` (inclusive), and where it differs from the previous one."""
        self._close_topic()
        old, changes = self._previous, self._changes
        image = MetadataImage(
            offset=offset,
            epoch=epoch,
            brokers=self._brokers.finish(),
            topics_by_id=self._topics.finish(),
            topic_ids=self._topic_ids.finish(),
            metric_names=self._metric_names.finish(),
            configs=self._configs.finish(),
            features=self._features.finish(),
            controllers=self._controllers.finish(),
            next_producer_id=self._next_producer_id,
            longest_session_ms=self._longest_session_ms,
        )
        changes.topics.update(id for id in old.topics_by_id if id not in image.topics_by_id)
        changes.brokers.update(old.brokers.keys(), image.brokers.keys())
        changes.configs.update(old.configs.keys(), image.configs.keys())
        changes.features.update(old.features.keys(), image.features.keys())
        return image, changes

    def _add_broker(self, record: RegisterBrokerRecord) -> None:
        broker = broker_of(record, OWN_OFFSET)
        before = self._previous.brokers.get(broker.id)
        self._brokers[broker.id] = before if before == broker else broker

    def _add_partition(self, record: PartitionRecord) -> None:
        topic, partitions = self._topic, self._partitions
        assert topic is not None and record.topic_id == topic.topic_id, f"{record} is not with its topic"
        index = record.partition_id
        assert index == len(partitions), f"{record} out of order, expected {len(partitions)}"
        partition = partition_of(record)
        if self._before is not None:
            known = self._before.partitions
            if index < len(known) and known[index] == partition:
                partition = known[index]
            else:
                self._changes.touch_partition(topic.topic_id, index)
        partitions.append(partition)

    def _close_topic(self) -> None:
        record, before = self._topic, self._before
        if record is None:
            return
        topic_id = record.topic_id
        if before is None:
            self._changes.topics.add(topic_id)
        else:
            assert len(before.partitions) <= len(self._partitions), f"{record} has lost partitions"
        if before is not None and topic_id not in self._changes.topics:
            topic = before
        else:
            topic = TopicImage(record.name, topic_id, sequence_of(self._partitions))
        self._topics[topic_id] = topic
        self._topic_ids[topic.name] = topic_id
        if (in_metrics := metric_name(topic.name)) is not None:
            self._metric_names[in_metrics] = topic.name
        self._topic, self._before, self._partitions = None, None, []
