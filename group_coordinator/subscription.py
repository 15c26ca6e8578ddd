"""Resolves the subscriptions of members to the topics that exist now.

A view of one metadata image that caches its results: the topics of a subscription, the topics that a pattern
matches, and a hash over the metadata of the subscribed topics by which a group notices that topics were
created, deleted or extended. The results depend only on the image; a new image gets a new view.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TypeVar

from pykraft.group_coordinator.group import ConsumerGroup
from pykraft.group_coordinator.member import ConsumerMember
from pykraft.group_coordinator.regex import Pattern, RegexError, compile_pattern
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage
from pykraft.metadata_log.persistent import Map

K = TypeVar("K")
V = TypeVar("V")

MAX_CACHED = 5_000
"""The limit of each cache: clients choose what is cached, and topics may not change for weeks."""


class TopicsView:
    """The topics of ``image`` as groups need them."""

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        self._by_regex: dict[str, frozenset[str]] = {}
        self._by_subscription: dict[tuple[tuple[str, ...], str | None], frozenset[Uuid]] = {}
        self._hashes: dict[str, tuple[Map[str, int], Map[str, int], int]] = {}

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

    def subscribed_ids(self, member: ConsumerMember) -> frozenset[Uuid]:
        """The ids of the existing topics that ``member`` subscribes to."""
        key = (member.topic_names, member.topic_regex)
        known = self._by_subscription.get(key)
        if known is None:
            names = frozenset(member.topic_names)
            if member.topic_regex:
                names |= self.names_matching(member.topic_regex)
            ids = (self.image.topic_ids.get(name) for name in names)
            known = frozenset(topic_id for topic_id in ids if topic_id is not None)
            _cache_result(self._by_subscription, key, known)
        return known

    def names_matching(self, regex: str) -> frozenset[str]:
        """The names of existing topics that ``regex`` matches as a whole; none if the pattern is invalid."""
        known = self._by_regex.get(regex)
        if known is None:
            try:
                pattern: Pattern | None = compile_pattern(regex)
            except RegexError:
                pattern = None  # requests with such a pattern are refused, but a record could hold one
            names = self.image.topic_ids if pattern is not None else ()
            known = frozenset(name for name in names if pattern is not None and pattern.matches(name))
            _cache_result(self._by_regex, regex, known)
        return known

    def metadata_hash(self, group: ConsumerGroup) -> int:
        """A signed 64-bit hash over name, id and size of all existing subscribed topics; 0 if none exist."""
        known = self._hashes.get(group.group_id)
        if known is not None and known[0] is group.subscribed_names and known[1] is group.subscribed_regexes:
            return known[2]
        names = set(group.subscribed_names)
        for regex in group.subscribed_regexes:
            names |= self.names_matching(regex)
        value = self._hash(names)
        _cache_result(self._hashes, group.group_id, (group.subscribed_names, group.subscribed_regexes, value))
        return value

    def _hash(self, names: Iterable[str]) -> int:
        topics = [topic for name in sorted(names) if (topic := self.image.topic(name)) is not None]
        if not topics:
            return 0
        digest = hashlib.blake2b(digest_size=8)
        for topic in topics:
            digest.update(f"{topic.name}/{len(topic.partitions)}/".encode())
            digest.update(topic.id)
        return int.from_bytes(digest.digest(), "big", signed=True)


def _cache_result(cache: dict[K, V], key: K, value: V) -> None:
    if len(cache) >= MAX_CACHED:
        cache.clear()
    cache[key] = value


def check_regex(regex: str) -> None:
    """:class:`KafkaError` INVALID_REGULAR_EXPRESSION if the pattern cannot be used."""
    try:
        compile_pattern(regex)
    except RegexError as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex {regex[:100]!r} is not valid: {error}",
        ) from None
