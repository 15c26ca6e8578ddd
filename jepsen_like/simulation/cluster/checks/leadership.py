"""Which replicas may lead a partition, and which count as holders: decided from the log alone.

A plain second implementation of the limits of :mod:`pykraft.metadata_log.controller.elections`: it says which
choices are never allowed, not which one is best. Each check returns what is wrong, or None.
"""

from pykraft.jepsen_like.simulation.cluster.model import Model, ModelPartition
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log import records as r
from pykraft.metadata_log.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from pykraft.metadata_log.image import MetadataImage

UNCLEAN_TOPICS = ("t6", "t7")
"""Clients allow unclean elections of these topics; the options of a schedule may allow all."""


def find_unclean_leader(model: Model, record: r.Record, *, unclean_everywhere: bool) -> str | None:
    """A leader comes from the ISR or the eligible replicas; the last known leader is the last choice."""
    match record:
        case r.PartitionChangeRecord(index, topic_id, leader=int(leader)) if leader != r.NO_LEADER:
            topic = model.topics[topic_id]
            old = topic.partitions[index]
            # A move that ends may elect a replica that the old leader reports as in sync.
            proposed = model.ever_proposed.get((topic_id, index, old.partition_epoch), ())
            if (
                leader in (*old.isr, *old.elr, *proposed)
                or unclean_everywhere
                or topic.name in UNCLEAN_TOPICS
            ):
                return None
            if old.last_known_elr == (leader,) and not _sound_holders(model, old):
                return None
            return f"{leader} leads {topic.name}-{index}, which was {old}"
    return None


def find_kept_eligible(model: Model, record: r.Record) -> str | None:
    """An unclean leader may lack records of eligible replicas, so its election must clear them."""
    match record:
        case r.PartitionChangeRecord(index, topic_id, leader=int(leader)) if leader != r.NO_LEADER:
            topic = model.topics[topic_id]
            old = topic.partitions[index]
            proposed = model.ever_proposed.get((topic_id, index, old.partition_epoch), ())
            kept = record.eligible_leader_replicas
            elr = old.elr if kept is None else kept
            if elr and leader not in (*old.isr, *old.elr, *proposed):
                return f"{leader} leads {topic.name}-{index}, and {elr} stay eligible; it was {old}"
    return None


def find_abandoned(model: Model, record: r.Record) -> str | None:
    """While any replica holds every committed record, one in the ISR or an eligible one does."""
    match record:
        case r.PartitionChangeRecord(index, topic_id):
            topic = model.topics[topic_id]
            old = topic.partitions[index]
            isr = old.isr if record.isr is None else record.isr
            elr = old.elr
            if record.eligible_leader_replicas is not None:
                elr = record.eligible_leader_replicas
            lost = record.lost_replicas or ()
            holders = [id for id in _sound_holders(model, old) if id not in lost]
            if holders and not isr and not elr:
                return f"{holders} held {topic.name}-{index}, no replica does after {record}"
            replicas = old.replicas if record.replicas is None else record.replicas
            if not set(replicas).issuperset((*isr, *elr)):
                return f"{topic.name}-{index} has replicas {replicas} and is held by {isr}, {elr}"
    return None


def find_early_completion(model: Model, record: r.Record) -> str | None:
    """A move ends only when all replicas that it adds, and that remain, are in the ISR."""
    match record:
        case r.PartitionChangeRecord(index, topic_id, adding_replicas=()):
            topic = model.topics[topic_id]
            old = topic.partitions[index]
            isr = old.isr if record.isr is None else record.isr
            replicas = old.replicas if record.replicas is None else record.replicas
            if not set(isr).issuperset(id for id in old.adding if id in replicas):
                return f"{record} ends the move of {topic.name}-{index}, which was {old}"
    return None


def _sound_holders(model: Model, partition: ModelPartition) -> list[int]:
    """The replicas of the ISR and the eligible ones that have lost no records since they became members."""
    return [
        id
        for id in (*partition.isr, *partition.elr)
        if id in model.brokers and partition.joined.get(id) == model.brokers[id].epoch
    ]


def find_ignored_loss(model: Model, broker_id: int, lost: int) -> str | None:
    """A partition that counts on records which the broker, unfenced now, may have lost since it joined.

    A broker that lost only the end of its logs may stay in the ISR if no other member is intact: from then on
    they count as equal. With eligible leader replicas this is not allowed. A broker without one of its
    directories may have lost all of those logs whose directory is not known.
    """
    epoch = model.brokers[broker_id].epoch
    elr = model.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0)
    for topic in model.topics.values():
        for index, partition in enumerate(topic.partitions):
            if partition.joined.get(broker_id, epoch) == epoch:
                continue
            may_stay = not elr and (lost == r.LogsLost.TAIL or broker_id in partition.directories)
            intact = [id for id in partition.isr if partition.joined[id] == model.brokers[id].epoch]
            if intact or broker_id in partition.elr or not may_stay:
                return f"{topic.name}-{index} {partition}"
            partition.joined = {id: model.brokers[id].epoch for id in partition.joined}
    return None


def find_unfinished(model: Model) -> str | None:
    """A partition whose reassignment or ISR is not complete although every broker serves."""
    for topic in model.topics.values():
        for index, partition in enumerate(topic.partitions):
            led = partition.leader != r.NO_LEADER
            if led and (partition.adding or partition.removing or partition.elr):
                return f"{topic.name}-{index} {partition}"
            if led and set(partition.isr) != set(partition.replicas):
                return f"{topic.name}-{index} {partition}"
            if not led and (partition.isr or partition.elr):
                return f"{topic.name}-{index} {partition}"
    return None


def find_leaderless(model: Model) -> str | None:
    """A partition without a leader."""
    for topic in model.topics.values():
        for index, partition in enumerate(topic.partitions):
            if partition.leader == r.NO_LEADER:
                return f"{topic.name}-{index} {partition}"
    return None


def has_preferred_leaders(model: Model, name: str) -> bool:
    """Whether the first replica of each partition of a topic leads it."""
    named = [topic for topic in model.topics.values() if topic.name == name]
    return all(partition.leader == partition.replicas[0] for topic in named for partition in topic.partitions)


class FormerLeaders:
    """When, in true seconds, brokers lost the leaderships that they had."""

    def __init__(self) -> None:
        self._since_s: dict[int, dict[tuple[Uuid, int], float]] = {}

    def note(self, model: Model, record: r.Record, now_s: float) -> None:
        """``record`` is about to be applied to ``model``."""
        if not isinstance(record, r.PartitionChangeRecord) or record.leader is None:
            return
        key = record.topic_id, record.partition_id
        before = model.topics[record.topic_id].partitions[record.partition_id].leader
        if before != record.leader:
            self._since_s.setdefault(before, {}).setdefault(key, now_s)
        self._since_s.get(record.leader, {}).pop(key, None)

    def find_overdue(self, broker_id: int, image: MetadataImage, before_s: float) -> str | None:
        """A partition that it leads in ``image``, but lost in the log before ``before_s``."""
        for (topic_id, index), since_s in self._since_s.get(broker_id, {}).items():
            topic = image.topic_by_id(topic_id)
            if since_s < before_s and topic is not None and topic.partitions[index].leader == broker_id:
                return f"{topic.name}-{index}, which it has not led for {before_s - since_s:.3f} s more"
        return None
