"""Resolves the subscriptions of members to the topics that exist now.

A view of one metadata image that caches its results: the topics of a subscription, and a hash over the
metadata of the subscribed topics by which a group notices that topics were created, deleted, extended or
moved to other racks. The results depend only on the image; a new image gets a new view. Which topics a
regular expression matches is not found out here: see
:mod:`~pykraft.group_coordinator.consumer.regex_refresh`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TypeVar

from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.member import ConsumerMember
from pykraft.group_coordinator.state.records import ResolvedRegex
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage, TopicImage
from pykraft.metadata_log.persistent import Map

K = TypeVar("K")
V = TypeVar("V")

MAX_CACHED = 5_000
"""The limit of each cache: clients choose what is cached, and topics may not change for weeks."""

_HASHED_AT_ONCE = 200

_Subscription = tuple[tuple[str, ...], tuple[str, ...]]
_HashKey = tuple[Map[str, int], Map[str, ResolvedRegex]]


class TopicsView:
    """The topics of ``image`` as groups need them.

    ``new_topics_offset`` is the offset of the newest image in which topics were created: regular expressions
    that were resolved before must be resolved again.
    """

    def __init__(
        self, image: MetadataImage = EMPTY_IMAGE, previous: TopicsView | None = None, *, are_new: bool = True
    ) -> None:
        """``previous``: the view of an earlier image. ``are_new``: topics have been created since."""
        self.image = image
        self.new_topics_offset = image.offset
        self._by_subscription: dict[_Subscription, frozenset[Uuid]] = {}
        self._hashes: dict[str, tuple[_HashKey, int]] = {}
        self._topic_hashes: dict[str, tuple[TopicImage, bytes]] = {}
        if previous is not None:
            self._topic_hashes = previous._topic_hashes
            if not are_new and previous.image.offset >= 0:
                self.new_topics_offset = previous.new_topics_offset

    def topic_name(self, topic_id: Uuid) -> str | None:
        topic = self.image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, name: str) -> Uuid | None:
        return self.image.topic_ids.get(name)

    def partition_count(self, name: str) -> int:
        """Zero for a topic that does not exist."""
        topic = self.image.topic(name)
        return 0 if topic is None else len(topic.partitions)

    def partition_counts(self, topic_ids: Iterable[Uuid]) -> dict[Uuid, int]:
        counts = {}
        for topic_id in topic_ids:
            topic = self.image.topic_by_id(topic_id)
            if topic is not None:
                counts[topic_id] = len(topic.partitions)
        return counts

    def subscribed_ids(self, member: ConsumerMember, resolved: Map[str, ResolvedRegex]) -> frozenset[Uuid]:
        """The ids of the existing topics that ``member`` subscribes to; ``resolved`` is that of its group.

        A regular expression that is not resolved yet contributes none.
        """
        found = resolved.get(member.topic_regex) if member.topic_regex else None
        key = (member.topic_names, () if found is None else found.topics)
        known = self._by_subscription.get(key)
        if known is None:
            ids = [self.image.topic_ids.get(name) for names in key for name in names]
            known = frozenset(topic_id for topic_id in ids if topic_id is not None)
            _cache_result(self._by_subscription, key, known)
        return known

    def metadata_hash(self, group: ConsumerGroup) -> int:
        """A signed 64-bit hash over name, id, size and racks of all existing subscribed topics; 0 if none."""
        known = self._hashes.get(group.group_id)
        if known is not None and known[0][0] is group.subscribed_names and known[0][1] is group.resolved:
            return known[1]
        names = set(group.subscribed_names).union(*(found.topics for found in group.resolved.values()))
        value = self._hash(names)
        _cache_result(self._hashes, group.group_id, ((group.subscribed_names, group.resolved), value))
        return value

    def hash_in_slices(self, names: Iterable[str]) -> Iterator[None]:
        """Look at topics that a group is going to subscribe to; yields after some of them."""
        for number, name in enumerate(names, 1):
            topic = self.image.topic(name)
            if topic is not None:
                self._topic_hash(topic)
            if number % _HASHED_AT_ONCE == 0:
                yield

    def _hash(self, names: Iterable[str]) -> int:
        topics = [topic for name in sorted(names) if (topic := self.image.topic(name)) is not None]
        if not topics:
            return 0
        digest = hashlib.blake2b(digest_size=8)
        for topic in topics:
            digest.update(self._topic_hash(topic))
        return int.from_bytes(digest.digest(), "big", signed=True)

    def _topic_hash(self, topic: TopicImage) -> bytes:
        """Computed again only when the topic itself has changed, as in Kafka: a broker that is started in
        another rack is noticed at the next change of its topics.
        """
        known = self._topic_hashes.get(topic.name)
        if known is not None and known[0] is topic:
            return known[1]
        digest = hashlib.blake2b(digest_size=8)
        digest.update(f"{topic.name}/{len(topic.partitions)}/".encode())
        digest.update(topic.id)
        racks = {broker.id: broker.rack for broker in self.image.brokers.values() if broker.rack is not None}
        for index, partition in enumerate(topic.partitions if racks else ()):
            own = sorted({rack for replica in partition.replicas if (rack := racks.get(replica)) is not None})
            digest.update(repr((index, own)).encode())
        _cache_result(self._topic_hashes, topic.name, (topic, digest.digest()))
        return digest.digest()


def _cache_result(cache: dict[K, V], key: K, value: V) -> None:
    if len(cache) >= MAX_CACHED:
        cache.clear()
    cache[key] = value
