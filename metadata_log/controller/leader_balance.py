"""Returns leaderships to the preferred replicas automatically (``auto.leader.rebalance.enable``).

After a broker was inactive, other brokers lead its partitions. A periodic round counts, for every broker, how
many of the partitions that prefer it are led by others; for a broker with more than
``leader.imbalance.per.broker.percentage`` of them, a second pass makes preferred elections. Both passes run
in slices of bounded length, each decided on the newest image. A round is not in the log and ends with the
active controller.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.elections import Election, Elections
from pykraft.metadata_log.controller.topics.topic_walk import TopicWalk
from pykraft.metadata_log.image import MetadataImage, PartitionRegistration, TopicImage
from pykraft.metadata_log.records import PartitionChangeRecord

SLICE_CHANGES: Final = 500
"""A slice ends with this many elections."""


class LeaderBalance:
    """The current round, if there is one."""

    def __init__(self, config: ControllerConfig) -> None:
        self._config = config
        self.clear()

    def clear(self) -> None:
        """End the round."""
        self._counting: TopicWalk | None = None
        self._electing: TopicWalk | None = None
        self._preferred: dict[int, int] = {}
        self._away: dict[int, int] = {}
        self._imbalanced: frozenset[int] = frozenset()

    def begin(self, image: MetadataImage) -> None:
        """Begin a round; one that is under way is abandoned."""
        self.clear()
        self._counting = TopicWalk(image)

    @property
    def is_running(self) -> bool:
        """Whether the round needs more slices."""
        return self._counting is not None or self._electing is not None

    def next_slice(self, image: MetadataImage) -> list[PartitionChangeRecord]:
        """The elections of the next slice; may be empty: call again while the round is running."""
        if self._counting is not None:
            self._counting.next_slice(image, self._count)
            if self._counting.is_complete:
                self._counting = None
                self._imbalanced = self._find_imbalanced(image)
                self._electing = TopicWalk(image) if self._imbalanced else None
            return []
        assert self._electing is not None, "no round is running"
        slice_ = _Slice(image, self._config, self._imbalanced)
        self._electing.next_slice(image, slice_.visit)
        if self._electing.is_complete:
            self._electing = None
        return slice_.changes

    def _count(self, topic: TopicImage, start: int, most: int) -> int:
        seen = 0
        for partition in islice(topic.partitions, start, start + most):
            preferred = partition.replicas[0]
            self._preferred[preferred] = self._preferred.get(preferred, 0) + 1
            if partition.leader != preferred:
                self._away[preferred] = self._away.get(preferred, 0) + 1
            seen += 1
        return seen

    def _find_imbalanced(self, image: MetadataImage) -> frozenset[int]:
        allowed = self._config.leader_imbalance_per_broker_percentage
        return frozenset(
            broker_id
            for broker_id, away in self._away.items()
            if image.is_active(broker_id) and away * 100 > allowed * self._preferred[broker_id]
        )


class _Slice:
    """Elections for brokers that lead too few of the partitions that prefer them."""

    def __init__(self, image: MetadataImage, config: ControllerConfig, brokers: frozenset[int]) -> None:
        self._elections = Elections(image, config)
        self._brokers = brokers
        self.changes: list[PartitionChangeRecord] = []

    def visit(self, topic: TopicImage, start: int, most: int) -> int:
        build = self._elections.builder(topic.name).build
        seen = 0
        for partition in islice(topic.partitions, start, start + most):
            if len(self.changes) >= SLICE_CHANGES:
                break
            if self._may_move(partition):
                change = build(topic.id, start + seen, partition, election=Election.PREFERRED)
                if change is not None:
                    self.changes.append(change)
            seen += 1
        return seen

    def _may_move(self, partition: PartitionRegistration) -> bool:
        """Whether the preferred replica could lead but does not. Reassigned partitions are skipped."""
        preferred = partition.replicas[0]
        return (
            preferred in self._brokers
            and partition.leader != preferred
            and partition.has_leader
            and preferred in partition.isr
            and not partition.is_reassigning
        )
