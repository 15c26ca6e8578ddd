"""The broker's view of the cluster: the newest metadata image, asked the way requests ask.

The image is immutable and replaced whole, so a handler that takes it once sees one consistent cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from pykraft.group_coordinator.partitioning import OFFSETS_TOPIC
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import BrokerRegistration, MetadataImage, PartitionRegistration
from pykraft.metadata_log.records import Endpoint

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, "__transaction_state"})


class MetadataCache:
    """Holds the current image; the first of the publishers, so that the others may rely on it."""

    def __init__(self, node_id: int, cluster_id: str, image: MetadataImage) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.image = image
        self._waiters: set[asyncio.Future[None]] = set()

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take a newer image and wake whoever waits for one."""
        self.image = image
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait_until(self, condition: Callable[[MetadataImage], bool], timeout_ms: int) -> bool:
        """Whether ``condition`` came true of the image within ``timeout_ms``."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not condition(self.image):
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiters.add(waiter)
                    try:
                        await waiter
                    finally:
                        self._waiters.discard(waiter)
        except TimeoutError:
            return False
        return True

    def brokers(self) -> Iterator[BrokerRegistration]:
        """Every registered broker, by id."""
        image = self.image
        for broker_id in sorted(image.brokers):
            yield image.brokers[broker_id]

    def is_usable(self, broker_id: int) -> bool:
        """Whether a broker is registered and not fenced."""
        registration = self.image.brokers.get(broker_id)
        return registration is not None and not registration.fenced

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Where clients of ``listener`` reach a broker that is not fenced."""
        registration = self.image.brokers.get(broker_id)
        if registration is None or registration.fenced:
            return None
        return registration.endpoint(listener)

    def offline_replicas(self, partition: PartitionRegistration) -> list[int]:
        """The replicas of a partition whose brokers are fenced or gone."""
        return [replica for replica in partition.replicas if not self.is_usable(replica)]
