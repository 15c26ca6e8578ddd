"""The data plane's needs from the rest of the broker, as small ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import EndOfTransaction
from pykraft.metadata_log.controller.calls.requests import (
    LostReplica,
    LostReplicaResult,
    PartitionIsrChange,
    PartitionIsrResult,
    ReplicaDirectory,
)
from pykraft.metadata_log.image import MetadataImage


class BrokerLease(Protocol):
    """This broker's registration and lease at the controller.

    Implemented by :class:`~pykraft.broker.membership.lifecycle.BrokerLifecycle`.
    """

    @property
    def epoch(self) -> int:
        """The broker epoch of this incarnation; -1 before registration."""
        ...

    @property
    def is_fenced(self) -> bool: ...

    def lease_valid(self, now_ms: int) -> bool:
        """Whether no other broker can have taken over yet. ``now_ms`` is monotonic."""
        ...


class TopicCoordinator(Protocol):
    """A coordinator that keeps its state in the partitions of one topic that this broker leads."""

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """The log is open, and this broker leads the partition."""
        ...

    def on_resigned(self, partition: int) -> None:
        """This broker no longer leads the partition."""
        ...

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        """The high watermark has moved. Called on the event loop, never from within an append."""
        ...


class TransactionVerifier(Protocol):
    """Asks transaction coordinators whether partitions belong to a transaction (KIP-890)."""

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> Mapping[TopicPartition, KafkaError]:
        """The errors of those that are not in the producer's ongoing transaction, with the coordinator's
        codes; NETWORK_EXCEPTION if there was no answer. ``adds``: put them into the transaction.
        """
        ...


class OffsetsTransactions(Protocol):
    """Ends transactions in partitions of ``__consumer_offsets``, for the group coordinator."""

    async def end_transaction(self, partition: int, end: EndOfTransaction) -> None:
        """Return when the marker is committed. :class:`KafkaError` with the code to answer with."""
        ...


class ImageSource(Protocol):
    """Holds the newest metadata image (:class:`pykraft.broker.metadata.cache.MetadataCache`)."""

    @property
    def image(self) -> MetadataImage: ...


class AlterPartitionPort(Protocol):
    """Sends ISR proposals to the controller."""

    async def alter_partitions(self, changes: Sequence[PartitionIsrChange]) -> Sequence[PartitionIsrResult]:
        """Propose all ``changes`` in one request; returns a result for each, in their order.

        Returns within a few seconds. :class:`KafkaError` (REQUEST_TIMED_OUT, STALE_BROKER_EPOCH, …) if no
        answer came: the changes may have been applied nevertheless.
        """
        ...


class LostReplicasPort(Protocol):
    """Reports to the controller which replicas of this broker have lost their logs."""

    async def report_lost_replicas(self, replicas: Sequence[LostReplica]) -> Sequence[LostReplicaResult]:
        """An answer for each, once committed. :class:`KafkaError` if no answer came."""
        ...


class DirectoriesPort(Protocol):
    """Tells the controller in which log directories replicas of this broker are."""

    async def assign_replicas_to_dirs(self, replicas: Sequence[ReplicaDirectory]) -> Sequence[ErrorCode]:
        """The outcome of each, once committed. :class:`KafkaError` if no answer came."""
        ...
