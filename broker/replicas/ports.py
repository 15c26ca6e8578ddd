"""What the data plane needs of the rest of the broker, as small ports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pykraft.metadata_log.controller.requests import (
    LostReplica,
    LostReplicaResult,
    PartitionIsrChange,
    PartitionIsrResult,
)
from pykraft.metadata_log.image import MetadataImage


class BrokerLease(Protocol):
    """This broker's standing with the controller.

    Implemented by :class:`~pykraft.broker.membership.lifecycle.BrokerLifecycle`.
    """

    @property
    def epoch(self) -> int:
        """The broker epoch of this incarnation, -1 before registration."""
        ...

    @property
    def is_fenced(self) -> bool: ...

    def lease_valid(self, now_ms: int) -> bool:
        """Whether nobody else can have been told to take over yet. ``now_ms`` is monotonic."""
        ...


class TopicCoordinator(Protocol):
    """Keeps its state in the partitions of one topic that this broker leads."""

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """The log is open, and this broker leads."""
        ...

    def on_resigned(self, partition: int) -> None:
        """This broker leads no more."""
        ...

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        """It has moved. Called on the event loop, never from within an append."""
        ...


class ImageSource(Protocol):
    """Holds the newest metadata image (:class:`pykraft.broker.metadata_cache.MetadataCache`)."""

    @property
    def image(self) -> MetadataImage: ...


class AlterPartitionPort(Protocol):
    """Carries ISR proposals to the controller."""

    async def alter_partitions(self, changes: Sequence[PartitionIsrChange]) -> Sequence[PartitionIsrResult]:
        """Ask for all of ``changes`` at once; a result for each, in their order.

        Ends within a few seconds. :class:`KafkaError` (REQUEST_TIMED_OUT, STALE_BROKER_EPOCH, …) when there
        is no answer to any: they may then have been applied all the same.
        """
        ...


class LostReplicasPort(Protocol):
    """Tells the controller which replicas of this broker have lost their logs."""

    async def report_lost_replicas(self, replicas: Sequence[LostReplica]) -> Sequence[LostReplicaResult]:
        """An answer for each, once committed. :class:`KafkaError` when no answer came."""
        ...
