"""The broker's view of the cluster: the newest metadata image, with the look-ups that requests need.

The image is immutable and replaced as a whole, so a handler that takes it once sees one consistent cluster.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence

from pykraft.broker.metadata.topic_answers import INTERNAL_TOPICS, ListenerView, TopicAnswers
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import BrokerRegistration, MetadataImage, PartitionRegistration
from pykraft.metadata_log.records import Endpoint

__all__ = ["INTERNAL_TOPICS", "MetadataCache"]

_FEW = 1000
"""Up to this many topics that change at once are put into, or out of, the sorted names one by one."""


class MetadataCache:
    """Holds the current image; the first of the publishers, so that the others can rely on it."""

    def __init__(self, node_id: int, cluster_id: str, image: MetadataImage) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.image = image
        self.topic_answers = TopicAnswers()
        self._waiters: dict[asyncio.Future[None], None] = {}  # in their order
        self._names: tuple[object, Sequence[str]] | None = None
        self._views: dict[str, tuple[object, ListenerView]] = {}

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take a newer image and wake the requests that wait for one."""
        self.image = image
        self._follow_names(delta, image)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait_until(self, condition: Callable[[MetadataImage], bool], timeout_ms: int) -> bool:
        """Whether ``condition`` became true of the image within ``timeout_ms``."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not condition(self.image):
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiters[waiter] = None
                    try:
                        await waiter
                    finally:
                        self._waiters.pop(waiter, None)
        except TimeoutError:
            return False
        return True

    def topic_names(self) -> Sequence[str]:
        """The names of all topics, sorted. The list never changes: a newer image has another one."""
        names = self.image.topic_ids
        if self._names is None or self._names[0] is not names:
            self._names = (names, sorted(names))
        return self._names[1]

    def _follow_names(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self._names is None or self._names[0] is not delta.old.topic_ids:
            return  # topic_names sorts them when it is next called
        if not delta.created_topics and not delta.deleted_topics:
            self._names = (image.topic_ids, self._names[1])
        elif len(delta.created_topics) + len(delta.deleted_topics) <= _FEW:
            names = list(self._names[1])
            for topic in delta.deleted_topics.values():
                del names[bisect_left(names, topic.name)]
            for topic_id in delta.created_topics:
                insort(names, image.topics_by_id[topic_id].name)
            self._names = (image.topic_ids, names)

    def listener_view(self, listener: str) -> ListenerView:
        """The brokers as clients of a listener see them; the same object until it changes."""
        known = self._views.get(listener)
        if known is not None and known[0] is self.image.brokers:
            return known[1]
        view = ListenerView.of(self.image, listener)
        if known is not None and known[1] == view:
            view = known[1]
        self._views[listener] = (self.image.brokers, view)
        return view

    def brokers(self) -> Iterator[BrokerRegistration]:
        """Every registered broker, in order of the ids."""
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
        """The replicas of a partition that are offline (:meth:`ListenerView.offline_replicas`)."""
        return list(self.listener_view("").offline_replicas(partition))
