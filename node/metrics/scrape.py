"""The sources of one scrape's metrics: a node, and counts that several of them share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.traffic import Traffic
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.image import MetadataImage, PartitionRegistration
from pykraft.metadata_log.records import NO_LEADER
from pykraft.node.broker_node import BrokerNode
from pykraft.node.node import Node
from pykraft.quorum.listener import QuorumDescription
from pykraft.runtime.loop_stalls import LoopStalls


@dataclass(slots=True)
class ReplicaCounts:
    """The replicas of one broker."""

    replicas: int = 0
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0

    def add(self, partition: Partition, registration: PartitionRegistration | None) -> None:
        self.replicas += 1
        if not partition.is_leader:
            return
        in_sync = len(partition.isr.committed)
        required = min(partition.min_isr, len(partition.replicas))
        self.leaders += 1
        self.under_replicated += in_sync < len(partition.replicas)
        self.under_min_isr += in_sync < required
        self.at_min_isr += in_sync == required
        self.reassigning += registration is not None and registration.is_reassigning


@dataclass(slots=True)
class ClusterCounts:
    """The partitions of the cluster, as the active controller has committed them."""

    topics: int = 0
    partitions: int = 0
    offline: int = 0
    not_preferred: int = 0

    def add(self, registration: PartitionRegistration) -> None:
        self.partitions += 1
        self.offline += registration.leader == NO_LEADER
        self.not_preferred += registration.leader != registration.replicas[0]


class Scrape:
    """``node``: started or not; ``now_ms``: the monotonic clock, ``wall_ms``: the time of day."""

    def __init__(self, node: Node, stalls: LoopStalls, now_ms: int, wall_ms: int) -> None:
        self.node = node
        self.stalls = stalls
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.broker: BrokerNode | None = getattr(node, "broker", None)
        self.replicas = ReplicaCounts()
        self.partitions: Sequence[Partition] = ()
        self.cluster = ClusterCounts()
        self.quorum: QuorumDescription | None = None
        self.traffic = Traffic()

    @property
    def is_active_controller(self) -> bool:
        controller = getattr(self.node, "controller", None)
        return controller is not None and controller.active

    @property
    def image(self) -> MetadataImage | None:
        """The active controller's committed image; None on other nodes."""
        controller = getattr(self.node, "controller", None)
        return controller.committed_image if controller is not None and controller.active else None

    def count(self) -> Iterator[None]:
        """Fill in the counts, in short steps."""
        quorum = getattr(self.node, "quorum", None)
        if quorum is not None:
            self.quorum = quorum.describe(self.wall_ms)
        yield
        if self.broker is not None:
            yield from self._count_replicas(self.broker)
        image = self.image
        if image is not None:
            self.cluster.topics = len(image.topics_by_id)
            for topic in image.topics_by_id.values():
                for registration in topic.partitions:
                    self.cluster.add(registration)
                    yield

    def _count_replicas(self, broker: BrokerNode) -> Iterator[None]:
        self.traffic = broker.data.table.traffic.total()
        image, found = broker.metadata.image, []
        for partition in broker.data.table:
            self.replicas.add(partition, image.partition(partition.topic_id, partition.index))
            found.append(partition)
            yield
        self.partitions = found
