"""How much has gone in and out of the replicas of one broker, in total and by topic.

Counted where it happens, with plain integers, whether or not anybody reads them. The number of topics that
are counted by themselves is bounded, because clients choose how many topics there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

MAX_TOPICS: Final = 1000
OTHER_TOPICS: Final = "(other)"
"""No topic can have this name."""


class Traffic:
    """Counters since the start of the process. Sizes are those of record batches, as they are stored.

    ``bytes_in``, ``messages_in``: appended for producers and coordinators; ``bytes_out``: sent to consumers;
    ``replication_bytes_in``, ``replication_bytes_out``: copied from and to other brokers.
    """

    __slots__ = ("bytes_in", "bytes_out", "messages_in", "replication_bytes_in", "replication_bytes_out")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def add(self, other: Traffic) -> None:
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.messages_in += other.messages_in
        self.replication_bytes_in += other.replication_bytes_in
        self.replication_bytes_out += other.replication_bytes_out


class TrafficTable:
    """The traffic of each topic. What a topic without replicas here had is kept in the total.

    ``failed_produce``, ``failed_fetch``: how often a partition of a request was answered with an error,
    whether or not it exists.
    """

    def __init__(self, max_topics: int = MAX_TOPICS) -> None:
        self._max_topics = max_topics
        self._topics: dict[str, Traffic] = {}
        self._other = Traffic()
        self.failed_produce = 0
        self.failed_fetch = 0
        self._forgotten = Traffic()

    def __iter__(self) -> Iterator[tuple[str, Traffic]]:
        """By topic; those above the limit together as :data:`OTHER_TOPICS`, if there are any."""
        yield from list(self._topics.items())
        if len(self._topics) >= self._max_topics:
            yield OTHER_TOPICS, self._other

    def of(self, topic: str) -> Traffic:
        """Return the counters of the topic's replicas."""
        known = self._topics.get(topic)
        if known is None:
            if len(self._topics) >= self._max_topics:
                return self._other
            known = self._topics[topic] = Traffic()
        return known

    def forget(self, topic: str) -> None:
        """The last replica of this topic is gone."""
        known = self._topics.pop(topic, None)
        if known is not None:
            self._forgotten.add(known)

    def total(self) -> Traffic:
        """Never decreases."""
        total = Traffic()
        for traffic in (*self._topics.values(), self._other, self._forgotten):
            total.add(traffic)
        return total
