"""The difference between two images, so that a reader need not compare them whole.

:class:`Changes` collects the keys that replay touched; :func:`build_delta` compares only these in the old and
the new image. A topic that was created and deleted in between does not appear.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TypeVar

from pykraft.kafka_protocol.ids import Uuid
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage, TopicImage
from pykraft.metadata_log.persistent import Map

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class Changes:
    """The keys that replay touched. They may include some that did not really change, but never miss one."""

    topics: set[Uuid] = field(default_factory=set)
    partitions: dict[Uuid, set[int]] = field(default_factory=dict)
    brokers: set[int] = field(default_factory=set)
    configs: set[tuple[int, str]] = field(default_factory=set)
    features: set[str] = field(default_factory=set)

    def touch_partition(self, topic_id: Uuid, index: int) -> None:
        indexes = self.partitions.get(topic_id)
        if indexes is None:
            self.topics.add(topic_id)
            self.partitions[topic_id] = {index}
        else:
            indexes.add(index)

    def merge(self, later: Changes) -> None:
        """Add what a later batch touched; ``later`` must not be used afterwards."""
        self.topics |= later.topics
        for topic_id, indexes in later.partitions.items():
            self.partitions.setdefault(topic_id, indexes).update(indexes)
        self.brokers |= later.brokers
        self.configs |= later.configs
        self.features |= later.features


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """The difference ``new - old``.

    ``changed_topics`` holds every topic of the new image that differs, created ones included;
    ``changed_partitions`` the indexes that differ in each of them (all, for a created one);
    ``deleted_topics`` the last state of deleted topics.
    """

    old: MetadataImage
    new: MetadataImage
    changed_topics: frozenset[Uuid] = frozenset()
    changed_partitions: Mapping[Uuid, frozenset[int]] = field(default_factory=dict)
    created_topics: frozenset[Uuid] = frozenset()
    deleted_topics: Mapping[Uuid, TopicImage] = field(default_factory=dict)
    changed_brokers: frozenset[int] = frozenset()
    changed_configs: frozenset[tuple[int, str]] = frozenset()
    changed_features: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether only the offset changed."""
        return not (
            self.changed_topics
            or self.deleted_topics
            or self.changed_brokers
            or self.changed_configs
            or self.changed_features
        )

    def iter_changed_topics(self) -> Iterator[TopicImage]:
        """The new state of changed and created topics, ordered by name."""
        yield from sorted((self.new.topics_by_id[id] for id in self.changed_topics), key=lambda t: t.name)

    def iter_deleted_topics(self) -> Iterator[TopicImage]:
        """The last state of deleted topics, ordered by name."""
        yield from sorted(self.deleted_topics.values(), key=lambda topic: topic.name)


def build_full_delta(image: MetadataImage) -> MetadataDelta:
    """The delta from the empty image to ``image``."""
    topics = image.topics_by_id
    all_topics = frozenset(topics.keys())
    return MetadataDelta(
        old=EMPTY_IMAGE,
        new=image,
        changed_topics=all_topics,
        changed_partitions=_AllPartitions(topics),
        created_topics=all_topics,
        changed_brokers=frozenset(image.brokers.keys()),
        changed_configs=frozenset(image.configs.keys()),
        changed_features=frozenset(image.features.keys()),
    )


class _AllPartitions(Mapping[Uuid, frozenset[int]]):
    """All partition indexes of every topic, built on access: there may be a million."""

    def __init__(self, topics: Map[Uuid, TopicImage]) -> None:
        self._topics = topics

    def __getitem__(self, topic_id: Uuid) -> frozenset[int]:
        return frozenset(range(len(self._topics[topic_id].partitions)))

    def __iter__(self) -> Iterator[Uuid]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)


def build_delta(old: MetadataImage, new: MetadataImage, changes: Changes) -> MetadataDelta:
    """Compare two images at the keys in ``changes``."""
    created: set[Uuid] = set()
    deleted: dict[Uuid, TopicImage] = {}
    partitions: dict[Uuid, frozenset[int]] = {}
    for topic_id in changes.topics:
        before, after = old.topics_by_id.get(topic_id), new.topics_by_id.get(topic_id)
        if after is None:
            if before is not None:
                deleted[topic_id] = before
        elif before is None:
            created.add(topic_id)
            partitions[topic_id] = frozenset(range(len(after.partitions)))
        else:
            differing = _differing(before, after, changes.partitions.get(topic_id, set()))
            if differing:
                partitions[topic_id] = differing
    return MetadataDelta(
        old=old,
        new=new,
        changed_topics=frozenset(partitions),
        changed_partitions=partitions,
        created_topics=frozenset(created),
        deleted_topics=deleted,
        changed_brokers=_really(changes.brokers, old.brokers, new.brokers),
        changed_configs=_really(changes.configs, old.configs, new.configs),
        changed_features=_really(changes.features, old.features, new.features),
    )


def _really(touched: set[K], old: Map[K, V], new: Map[K, V]) -> frozenset[K]:
    return frozenset(key for key in touched if old.get(key) != new.get(key))


def _differing(before: TopicImage, after: TopicImage, touched: set[int]) -> frozenset[int]:
    old, new, known = before.partitions, after.partitions, len(before.partitions)
    return frozenset([index for index in touched if index >= known or old[index] != new[index]])
