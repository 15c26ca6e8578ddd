"""A second, plain implementation of the metadata log's state, with which the product's images are compared.

It uses dictionaries without sharing; each record does what :mod:`pykraft.metadata_log.records` documents.
Besides the state it keeps the history of states, so that a later acknowledgement can be checked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log import records as r
from pykraft.metadata_log.image import MetadataImage


@dataclass(slots=True)
class ModelBroker:
    epoch: int
    incarnation_id: Uuid
    fenced: bool
    shutting_down: bool
    last_change_offset: int
    logs_lost: int
    log_dirs: tuple[Uuid, ...]
    offline_log_dirs: tuple[Uuid, ...]
    cordoned_log_dirs: tuple[Uuid, ...]


@dataclass(slots=True)
class ModelPartition:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    directories: dict[int, Uuid] = field(default_factory=dict)
    """The directories of replicas, where they are known."""
    joined: dict[int, int] = field(default_factory=dict, compare=False)
    """The broker epoch of each member of the ISR, and of each eligible replica, when it became a member."""


@dataclass(slots=True)
class ModelTopic:
    name: str
    partitions: list[ModelPartition] = field(default_factory=list)


class Model:
    """State and history. ``offset``: of the last record applied."""

    def __init__(self) -> None:
        self.offset = -1
        self.brokers: dict[int, ModelBroker] = {}
        self.topics: dict[Uuid, ModelTopic] = {}
        self.configs: dict[tuple[int, str, str], str] = {}
        self.features: dict[str, int] = {}
        self.controllers: dict[int, r.RegisterControllerRecord] = {}
        self.longest_session_ms = 0
        self.next_producer_id = 0
        self.ever_topics: dict[Uuid, str] = {}
        self.ever_deleted: set[Uuid] = set()
        self.ever_configs: set[tuple[int, str, str, str | None]] = set()
        self.ever_isrs: dict[tuple[Uuid, int, int], tuple[int, ...]] = {}
        self.ever_joined: dict[tuple[Uuid, int, int], dict[int, int]] = {}
        self.ever_counts: dict[str, int] = {}
        self.ever_proposed: dict[tuple[Uuid, int, int], set[int]] = {}
        """The ISRs that leaders of a partition have proposed, by the partition epoch they knew."""
        self.ever_targets: set[tuple[str, int, tuple[int, ...]]] = set()
        self.ever_features: set[tuple[str, int]] = set()
        self.registrations: dict[int, tuple[int, Uuid]] = {}

    def apply(self, record: r.Record, offset: int) -> None:
        self.offset = offset
        match record:
            case r.RegisterBrokerRecord():
                epoch = offset if record.broker_epoch == r.OWN_OFFSET else record.broker_epoch
                self.brokers[record.broker_id] = ModelBroker(
                    epoch,
                    record.incarnation_id,
                    record.fenced,
                    record.in_controlled_shutdown,
                    offset,
                    record.logs_lost,
                    record.log_dirs,
                    record.offline_log_dirs,
                    record.cordoned_log_dirs,
                )
                self.registrations.setdefault(epoch, (record.broker_id, record.incarnation_id))
            case r.BrokerRegistrationChangeRecord():
                self._change_broker(record, offset)
            case r.UnregisterBrokerRecord():
                del self.brokers[record.broker_id]
            case r.TopicRecord():
                self.topics[record.topic_id] = ModelTopic(record.name)
                self.ever_topics[record.topic_id] = record.name
            case r.RemoveTopicRecord():
                name = self.topics.pop(record.topic_id).name
                self.ever_deleted.add(record.topic_id)
                topic = int(r.ConfigResourceType.TOPIC)
                self.configs = {k: v for k, v in self.configs.items() if k[:2] != (topic, name)}
            case r.PartitionRecord():
                self._add_partition(record)
            case r.PartitionChangeRecord():
                self._change_partition(record)
            case r.ConfigRecord():
                key = (int(record.resource_type), record.resource_name, record.name)
                self.ever_configs.add((*key, record.value))
                self.configs.pop(key, None)
                if record.value is not None:
                    self.configs[key] = record.value
            case r.FeatureLevelRecord():
                self.features.pop(record.name, None)
                self.ever_features.add((record.name, record.feature_level))
                if record.feature_level:
                    self.features[record.name] = record.feature_level
            case r.RegisterControllerRecord():
                self.controllers[record.controller_id] = record
            case r.SessionTimeoutRecord():
                self.longest_session_ms = record.longest_ms
            case r.ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id

    def _change_broker(self, record: r.BrokerRegistrationChangeRecord, offset: int) -> None:
        broker = self.brokers[record.broker_id]
        broker.last_change_offset = offset
        if record.fenced is not None:
            broker.fenced = record.fenced
            if not record.fenced:
                broker.logs_lost = r.LogsLost.NOTHING
        if record.in_controlled_shutdown is not None:
            broker.shutting_down = record.in_controlled_shutdown
        if record.offline_log_dirs is not None:
            broker.offline_log_dirs = record.offline_log_dirs
        if record.cordoned_log_dirs is not None:
            broker.cordoned_log_dirs = record.cordoned_log_dirs

    def _add_partition(self, record: r.PartitionRecord) -> None:
        topic = self.topics[record.topic_id]
        partition = ModelPartition(
            record.replicas,
            record.isr,
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            record.eligible_leader_replicas,
            record.last_known_elr,
            record.adding_replicas,
            record.removing_replicas,
            record.lost_replicas,
            _known(record.replicas, record.directories),
        )
        topic.partitions.append(partition)
        count = len(topic.partitions)
        self.ever_counts[topic.name] = max(count, self.ever_counts.get(topic.name, 0))
        self._note_isr(record.topic_id, record.partition_id, partition)

    def _note_isr(self, topic_id: Uuid, index: int, partition: ModelPartition) -> None:
        known = partition.joined
        members = (*partition.isr, *partition.elr)
        partition.joined = {id: known.get(id, self.brokers[id].epoch) for id in members}
        target = tuple(id for id in partition.replicas if id not in partition.removing)
        self.ever_targets.add((self.topics[topic_id].name, index, target))
        key = (topic_id, index, partition.partition_epoch)
        self.ever_isrs[key] = partition.isr
        self.ever_joined[key] = {id: self.brokers[id].epoch for id in partition.isr}

    def _change_partition(self, record: r.PartitionChangeRecord) -> None:
        partition = self.topics[record.topic_id].partitions[record.partition_id]
        partition.partition_epoch += 1
        if record.replicas is not None:
            partition.replicas = record.replicas
            partition.directories = {
                id: directory for id, directory in partition.directories.items() if id in record.replicas
            }
        if record.directories is not None:
            partition.directories = _known(partition.replicas, record.directories)
        if record.adding_replicas is not None:
            partition.adding = record.adding_replicas
        if record.removing_replicas is not None:
            partition.removing = record.removing_replicas
        if record.isr is not None:
            partition.isr = record.isr
        if record.eligible_leader_replicas is not None:
            partition.elr = record.eligible_leader_replicas
        if record.last_known_elr is not None:
            partition.last_known_elr = record.last_known_elr
        if record.lost_replicas is not None:
            partition.lost = record.lost_replicas
        if record.leader is not None:
            partition.leader = record.leader
            partition.leader_epoch += 1
        self._note_isr(record.topic_id, record.partition_id, partition)

    def note_proposal(self, topic_id: Uuid, index: int, partition_epoch: int, isr: Sequence[int]) -> None:
        self.ever_proposed.setdefault((topic_id, index, partition_epoch), set()).update(isr)

    def epochs_of(self, broker_id: int) -> list[int]:
        """The epochs of all incarnations that were ever registered under the id, the newest last."""
        return [epoch for epoch, (id, _) in self.registrations.items() if id == broker_id]

    def differs_from(self, image: MetadataImage) -> str | None:
        """The first difference from an image of the same offset; None if there is none."""
        brokers = {
            id: ModelBroker(
                b.epoch,
                b.incarnation_id,
                b.fenced,
                b.in_controlled_shutdown,
                b.last_change_offset,
                b.logs_lost,
                b.log_dirs,
                b.offline_log_dirs,
                b.cordoned_log_dirs,
            )
            for id, b in image.brokers.items()
        }
        if brokers != self.brokers:
            return f"brokers {brokers} instead of {self.brokers}"
        if set(image.topics_by_id) != set(self.topics):
            return f"topics {sorted(t.name for t in image.topics_by_id.values())}"
        for topic_id, topic in self.topics.items():
            known = image.topics_by_id[topic_id]
            partitions = [
                ModelPartition(
                    p.replicas,
                    p.isr,
                    p.leader,
                    p.leader_epoch,
                    p.partition_epoch,
                    p.elr,
                    p.last_known_elr,
                    p.adding,
                    p.removing,
                    p.lost,
                    _known(p.replicas, p.directories),
                )
                for p in known.partitions
            ]
            if known.name != topic.name or partitions != topic.partitions:
                return f"topic {known.name} {partitions} instead of {topic.name} {topic.partitions}"
        configs = {
            (*key, name): value for key, pairs in image.configs.items() for name, value in pairs.items()
        }
        if configs != self.configs:
            return f"configs {configs} instead of {self.configs}"
        if dict(image.features.items()) != self.features or image.next_producer_id != self.next_producer_id:
            return f"features {dict(image.features.items())}, next producer id {image.next_producer_id}"
        if image.longest_session_ms != self.longest_session_ms:
            return f"a longest session of {image.longest_session_ms} instead of {self.longest_session_ms}"
        if dict(image.controllers.items()) != self.controllers:
            return f"controllers {dict(image.controllers.items())} instead of {self.controllers}"
        return None


def _known(replicas: Sequence[int], directories: Sequence[Uuid]) -> dict[int, Uuid]:
    pairs = zip(replicas, directories, strict=False)
    return {id: directory for id, directory in pairs if directory != r.UNASSIGNED_DIRECTORY}


def check_blocks_disjoint(blocks: Sequence[tuple[int, int]], start: int, length: int) -> bool:
    """Whether ids ``[start, start + length)`` overlap none of ``blocks``."""
    return all(start + length <= begin or begin + size <= start for begin, size in blocks)
