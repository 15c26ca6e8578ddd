"""The fold: image + records = next image. The active controller, standbys and brokers all run this code.

Only this file changes an image. A batch is applied as a whole and published once; the records of a batch
carry consecutive offsets. A record that does not fit the image (an unknown broker, a partition out of order)
means that log and code disagree: an assertion fails, because a corrupted state machine must not continue.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar, assert_never, cast

from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.chunked import updated
from pykraft.metadata_log.delta import Changes
from pykraft.metadata_log.image import (
    NO_CONFIGS,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    metric_name,
)
from pykraft.metadata_log.records import (
    OWN_OFFSET,
    UNASSIGNED_DIRECTORY,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    LogsLost,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    SessionTimeoutRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

RECORDS_AT_ONCE: Final = 250
"""So many records of a batch are applied in one slice: a millisecond, or five with a hundred replicas."""


def replay(
    image: MetadataImage, records: Sequence[Record], base_offset: int, epoch: int
) -> tuple[MetadataImage, Changes]:
    """Apply one batch whose first record is at ``base_offset``, written in ``epoch``."""
    return at_once(replay_in_slices(image, records, base_offset, epoch))


def replay_in_slices(
    image: MetadataImage, records: Sequence[Record], base_offset: int, epoch: int
) -> Generator[None, None, tuple[MetadataImage, Changes]]:
    """As :func:`replay`; yields between slices of the records."""
    fold = Fold(image)
    for start in range(0, len(records), RECORDS_AT_ONCE):
        if start:
            yield
        fold.apply(records[start : start + RECORDS_AT_ONCE], base_offset + start, epoch)
    fold.skip_to(base_offset + len(records) - 1, epoch)
    return fold.finish(), fold.changes


def apply_change(old: PartitionRegistration, record: PartitionChangeRecord) -> PartitionRegistration:
    """The partition after the change."""
    leader_named = record.leader is not None
    replicas = old.replicas if record.replicas is None else _intern(record.replicas)
    if record.directories is None:
        directories = _directories_of(old, replicas)
    else:
        directories = _normal(record.directories)
    assert len(directories) in (0, len(replicas)), f"{record} needs a directory for each replica"
    return PartitionRegistration(
        replicas=replicas,
        isr=old.isr if record.isr is None else _intern(record.isr),
        leader=old.leader if record.leader is None else record.leader,
        leader_epoch=old.leader_epoch + leader_named,
        partition_epoch=old.partition_epoch + 1,
        adding=old.adding if record.adding_replicas is None else record.adding_replicas,
        removing=old.removing if record.removing_replicas is None else record.removing_replicas,
        elr=old.elr if record.eligible_leader_replicas is None else record.eligible_leader_replicas,
        last_known_elr=old.last_known_elr if record.last_known_elr is None else record.last_known_elr,
        lost=old.lost if record.lost_replicas is None else record.lost_replicas,
        directories=directories,
    )


def _directories_of(old: PartitionRegistration, replicas: tuple[int, ...]) -> tuple[Uuid, ...]:
    """The directories after a change of the replicas: one that was added has none yet."""
    if not old.directories or replicas == old.replicas:
        return old.directories
    return _normal(tuple(old.directory(broker_id) for broker_id in replicas))


def _normal(directories: tuple[Uuid, ...]) -> tuple[Uuid, ...]:
    """Empty if no directory is known, so that equal partitions compare equal."""
    known = any(directory != UNASSIGNED_DIRECTORY for directory in directories)
    return _intern(directories) if known else ()


class Fold:
    """Batches in progress: builders for the maps they touch, lists for the topics they touch.

    ``changes`` is what the batches touched so far. No image between two batches of one fold is ever visible.
    """

    __slots__ = (
        "_brokers",
        "_configs",
        "_controllers",
        "_epoch",
        "_features",
        "_longest_session_ms",
        "_metric_names",
        "_next_producer_id",
        "_open_topics",
        "_topic_ids",
        "_topics",
        "changes",
        "offset",
    )

    def __init__(self, image: MetadataImage) -> None:
        self.offset = image.offset
        self._epoch = image.epoch
        self._brokers = image.brokers.mutate()
        self._topics = image.topics_by_id.mutate()
        self._topic_ids = image.topic_ids.mutate()
        self._metric_names = image.metric_names.mutate()
        self._configs = image.configs.mutate()
        self._features = image.features.mutate()
        self._controllers = image.controllers.mutate()
        self._next_producer_id = image.next_producer_id
        self._longest_session_ms = image.longest_session_ms
        # Topics with touched partitions: each gets one new sequence at the end, however many of its
        # partitions change.
        self._open_topics: dict[Uuid, _OpenTopic] = {}
        self.changes = Changes()

    def apply(self, records: Sequence[Record], base_offset: int, epoch: int) -> None:
        """Apply one batch whose first record is at ``base_offset``, written in ``epoch``."""
        offset = base_offset
        for record in records:
            self._apply(record, offset)
            offset += 1
        self.skip_to(offset - 1, epoch)

    def skip_to(self, offset: int, epoch: int) -> None:
        """Move the offset: for batches that hold no metadata."""
        self.offset, self._epoch = offset, epoch

    def finish(self) -> MetadataImage:
        """The image after all applied batches. The fold must not be used afterwards."""
        for topic_id, topic in self._open_topics.items():
            partitions = updated(topic.partitions, topic.changed, topic.added)
            self._topics[topic_id] = TopicImage(topic.name, topic_id, partitions)
        return MetadataImage(
            offset=self.offset,
            epoch=self._epoch,
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

    def _apply(self, record: Record, offset: int) -> None:
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
                assert record.next_producer_id >= self._next_producer_id, f"producer ids fall: {record}"
                self._next_producer_id = record.next_producer_id
            case RegisterControllerRecord():
                self._controllers[record.controller_id] = record
            case SessionTimeoutRecord():
                self._longest_session_ms = record.longest_ms
            case NoOpRecord():
                pass
            case _:
                assert_never(record)

    # Topics and partitions

    def _add_topic(self, record: TopicRecord) -> None:
        topic_id = record.topic_id
        assert record.name not in self._topic_ids, f"{record} exists already"
        assert topic_id not in self._topics and topic_id not in self._open_topics, f"{record} exists already"
        self._open_topics[topic_id] = _OpenTopic(record.name, ())
        self._topic_ids[record.name] = topic_id
        if (in_metrics := metric_name(record.name)) is not None:
            self._metric_names[in_metrics] = record.name
        self.changes.topics.add(topic_id)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic_id = record.topic_id
        name = self._topic(topic_id).name
        del self._open_topics[topic_id]
        if topic_id in self._topics:
            del self._topics[topic_id]
        del self._topic_ids[name]
        if (in_metrics := metric_name(name)) is not None and self._metric_names.get(in_metrics) == name:
            del self._metric_names[in_metrics]
        self.changes.topics.add(topic_id)
        key = (int(ConfigResourceType.TOPIC), name)
        if key in self._configs:
            del self._configs[key]
            self.changes.configs.add(key)

    def _topic(self, topic_id: Uuid) -> _OpenTopic:
        topic = self._open_topics.get(topic_id)
        if topic is None:
            assert topic_id in self._topics, f"no topic {topic_id.hex()}"
            closed = self._topics[topic_id]
            topic = self._open_topics[topic_id] = _OpenTopic(closed.name, closed.partitions)
        return topic

    def _add_partition(self, record: PartitionRecord) -> None:
        topic = self._topic(record.topic_id)
        expected = len(topic.partitions) + len(topic.added)
        assert record.partition_id == expected, f"{record} out of order, expected {expected}"
        topic.added.append(partition_of(record))
        self.changes.touch_partition(record.topic_id, record.partition_id)

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        topic, index = self._topic(record.topic_id), record.partition_id
        assert 0 <= index < len(topic.partitions) + len(topic.added), f"{record} names no partition"
        topic.set_partition(index, apply_change(topic.partition(index), record))
        self.changes.touch_partition(record.topic_id, index)

    # Brokers

    def _register_broker(self, record: RegisterBrokerRecord, offset: int) -> None:
        self._brokers[record.broker_id] = broker_of(record, offset)
        self.changes.brokers.add(record.broker_id)

    def _change_broker(self, record: BrokerRegistrationChangeRecord, offset: int) -> None:
        old = self._broker(record.broker_id, record.broker_epoch)
        shutting_down = record.in_controlled_shutdown
        self._brokers[record.broker_id] = replace(
            old,
            fenced=old.fenced if record.fenced is None else record.fenced,
            in_controlled_shutdown=old.in_controlled_shutdown if shutting_down is None else shutting_down,
            last_change_offset=offset,
            logs_lost=LogsLost.NOTHING if record.fenced is False else old.logs_lost,
            offline_log_dirs=(
                old.offline_log_dirs if record.offline_log_dirs is None else record.offline_log_dirs
            ),
            cordoned_log_dirs=(
                old.cordoned_log_dirs if record.cordoned_log_dirs is None else record.cordoned_log_dirs
            ),
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


class _OpenTopic:
    """A topic while a fold changes it: its old state, the replaced partitions, the added partitions."""

    __slots__ = ("added", "changed", "name", "partitions")

    def __init__(self, name: str, partitions: Sequence[PartitionRegistration]) -> None:
        self.name = name
        self.partitions = partitions
        self.changed: dict[int, PartitionRegistration] = {}
        self.added: list[PartitionRegistration] = []

    def partition(self, index: int) -> PartitionRegistration:
        known = len(self.partitions)
        if index >= known:
            return self.added[index - known]
        changed = self.changed.get(index)
        return self.partitions[index] if changed is None else changed

    def set_partition(self, index: int, partition: PartitionRegistration) -> None:
        known = len(self.partitions)
        if index >= known:
            self.added[index - known] = partition
        else:
            self.changed[index] = partition


def broker_of(record: RegisterBrokerRecord, offset: int) -> BrokerRegistration:
    """The registration in the record, which is at ``offset``."""
    last_change_offset = record.last_change_offset
    return BrokerRegistration(
        id=record.broker_id,
        epoch=offset if record.broker_epoch == OWN_OFFSET else record.broker_epoch,
        incarnation_id=record.incarnation_id,
        endpoints=record.endpoints,
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=record.log_dirs,
        features=record.features,
        last_change_offset=offset if last_change_offset == OWN_OFFSET else last_change_offset,
        logs_lost=record.logs_lost,
        offline_log_dirs=record.offline_log_dirs,
        cordoned_log_dirs=record.cordoned_log_dirs,
    )


def partition_of(record: PartitionRecord) -> PartitionRegistration:
    """The state in the record."""
    replicas = _intern(record.replicas)
    return PartitionRegistration(
        replicas,
        replicas if record.isr == replicas else _intern(record.isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        record.adding_replicas,
        record.removing_replicas,
        record.eligible_leader_replicas,
        record.last_known_elr,
        record.lost_replicas,
        _normal(record.directories),
    )


# Clusters have few distinct lists of replicas, and of their directories; sharing them saves most of a
# partition's memory. Cleared when full, which costs sharing and nothing else.
_INTERNED_MAX = 65_536
_interned: dict[tuple[Any, ...], tuple[Any, ...]] = {}
T = TypeVar("T", bound=tuple[Any, ...])


def _intern(values: T) -> T:
    if len(_interned) >= _INTERNED_MAX:
        _interned.clear()
    return cast(T, _interned.setdefault(values, values))
