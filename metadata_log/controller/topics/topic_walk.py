"""Visits all partitions once, a slice at a time, while the image keeps changing.

Decides the order (topic id, then index: the same in every process) and where a slice ends; the caller decides
what to do with the partitions. Topics that are deleted meanwhile are left out, and so are those created after
the walk began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.image import MetadataImage, TopicImage

SLICE_COST: Final = 8_000
"""A slice ends, by default, when this many partitions have been visited; finding a topic counts as two."""

Visit = Callable[[TopicImage, int, int], int]
"""(topic, first index, most partitions to visit) → how many were visited; 0 ends this slice."""


class TopicWalk:
    """The position of one walk."""

    def __init__(self, image: MetadataImage, slice_cost: int = SLICE_COST) -> None:
        self._slice_cost = slice_cost
        # Bytes are hashed differently in every process, so the ids must be sorted: in buckets by their first
        # byte, because sorting a hundred thousand at once would take too long.
        self._unread: Iterator[Uuid] | None = iter(image.topics_by_id)
        self._buckets: list[list[Uuid]] = [[] for _ in range(256)]
        self._ids: Iterator[Uuid] = iter(())
        self._topic_id: Uuid | None = None
        self._index = 0
        self.is_complete = False

    def next_slice(self, image: MetadataImage, visit: Visit) -> None:
        """Visit the partitions of one slice, as they are in ``image``."""
        cost = self._read_ids() if self._unread is not None else 0
        while cost < self._slice_cost and self._unread is None:
            if self._topic_id is None:
                self._topic_id, self._index = next(self._ids, None), 0
            if self._topic_id is None:
                self.is_complete = True
                return
            topic = image.topic_by_id(self._topic_id)
            if topic is None or self._index >= len(topic.partitions):
                self._topic_id = None
                cost += 2
                continue
            seen = visit(topic, self._index, self._slice_cost - cost)
            if seen == 0:
                return
            cost += seen
            self._index += seen

    def _read_ids(self) -> int:
        assert self._unread is not None
        count = 0
        for topic_id in islice(self._unread, self._slice_cost):
            self._buckets[topic_id[0]].append(topic_id)
            count += 1
        if count < self._slice_cost:
            self._unread = None
            self._ids = (topic_id for bucket in self._buckets for topic_id in sorted(bucket))
        return count
