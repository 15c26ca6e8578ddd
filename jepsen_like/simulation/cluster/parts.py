"""The parts of the shipped node in a simulated process that the checks read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage

if TYPE_CHECKING:
    from pykraft.broker.logs.log_manager import LogManager
    from pykraft.broker.membership.lifecycle import BrokerLifecycle
    from pykraft.broker.replicas.replica_manager import ReplicaManager
    from pykraft.group_coordinator.runtime import GroupRuntime
    from pykraft.kafka_protocol.ids import Uuid
    from pykraft.metadata_log.controller.driver import ControllerDriver
    from pykraft.metadata_log.delta import MetadataDelta
    from pykraft.metadata_log.loader import MetadataLoader
    from pykraft.node.broker_node import BrokerNode
    from pykraft.node.node import Node
    from pykraft.quorum.driver import QuorumNode
    from pykraft.transaction_coordinator.runtime import TransactionRuntime


class DeltaMirror:
    """The topics as a publisher of a broker knows them: from deltas alone."""

    def __init__(self) -> None:
        self.was_published = False
        self.topics: dict[Uuid, Any] = {}
        self.brokers: dict[int, Any] = {}

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.was_published = True
        for topic in delta.iter_deleted_topics():
            del self.topics[topic.id]
        for topic in delta.iter_changed_topics():
            known = self.topics.get(topic.id)
            partitions = list(known) if known is not None else []
            for index in sorted(delta.changed_partitions[topic.id]):
                if index < len(partitions):
                    partitions[index] = topic.partitions[index]
                else:
                    partitions.append(topic.partitions[index])
            self.topics[topic.id] = tuple(partitions)
        for broker_id in sorted(delta.changed_brokers):
            self.brokers[broker_id] = image.brokers.get(broker_id)

    def agrees_with(self, image: MetadataImage) -> bool:
        """Whether this equals ``image``; also true before anything was published."""
        if not self.was_published:
            return True
        topics = {topic_id: topic.partitions for topic_id, topic in image.topics_by_id.items()}
        brokers = {id: broker for id, broker in self.brokers.items() if broker is not None}
        return self.topics == topics and brokers == dict(image.brokers.items())


class Parts:
    """Each part is None until the process has made it."""

    def __init__(self) -> None:
        self.node: Node | None = None
        self.mirror: DeltaMirror | None = None

    @property
    def quorum(self) -> QuorumNode | None:
        return getattr(self.node, "quorum", None)

    @property
    def loader(self) -> MetadataLoader | None:
        return getattr(self.node, "loader", None)

    @property
    def controller(self) -> ControllerDriver | None:
        return getattr(self.node, "controller", None)

    @property
    def _broker(self) -> BrokerNode | None:
        return getattr(self.node, "broker", None)

    @property
    def lifecycle(self) -> BrokerLifecycle | None:
        return None if self._broker is None else self._broker.lifecycle

    @property
    def replicas(self) -> ReplicaManager | None:
        return None if self._broker is None else self._broker.data.replicas

    @property
    def logs(self) -> LogManager | None:
        return None if self._broker is None else self._broker.data.logs

    @property
    def groups(self) -> GroupRuntime | None:
        return None if self._broker is None else self._broker.groups._runtime

    @property
    def transactions(self) -> TransactionRuntime | None:
        return None if self._broker is None else self._broker.transactions._runtime

    @property
    def image(self) -> MetadataImage:
        """The committed metadata as the loader has it."""
        loader = self.loader
        return EMPTY_IMAGE if loader is None else loader.image

    @property
    def images(self) -> list[MetadataImage]:
        """All images of the committed metadata."""
        loader, controller = self.loader, self.controller
        images = [] if loader is None else [loader.image]
        if controller is not None:
            images.append(controller.committed_image)
        return images

    @property
    def has_stable_controller(self) -> bool:
        """Whether it is active, with nothing in flight and no change left to make."""
        controller = self.controller
        if controller is None or not controller.active:
            return False
        return not controller._core.is_sweeping and not controller._core.has_pending
