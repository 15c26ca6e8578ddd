"""What the data plane needs of the rest of the broker, as small ports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.image import MetadataImage


class BrokerLease(Protocol):
    """This broker's standing with the controller (:class:`pykraft.broker.lifecycle.BrokerLifecycle`)."""

    @property
    def epoch(self) -> int:
        """The broker epoch of this incarnation, -1 before registration."""
        ...

    @property
    def is_fenced(self) -> bool: ...

    def lease_valid(self, now_ms: int) -> bool:
        """Whether nobody else can have been told to take over yet. ``now_ms`` is monotonic."""
        ...


class ImageSource(Protocol):
    """Holds the newest metadata image (:class:`pykraft.broker.metadata_cache.MetadataCache`)."""

    @property
    def image(self) -> MetadataImage: ...


@dataclass(frozen=True, slots=True)
class AlterPartitionAnswer:
    """What the controller said about one ISR proposal; the other fields count only without an error."""

    error: ErrorCode
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    elr: tuple[int, ...] = ()


class AlterPartitionPort(Protocol):
    """Carries ISR proposals to the controller."""

    async def alter_partition(
        self,
        topic_id: Uuid,
        index: int,
        leader_epoch: int,
        partition_epoch: int,
        new_isr: Sequence[tuple[int, int]],
    ) -> AlterPartitionAnswer:
        """Ask for ``new_isr``, pairs of (broker id, broker epoch; -1 unknown).

        Ends within a few seconds. :class:`KafkaError` (REQUEST_TIMED_OUT, NOT_CONTROLLER, …) when no answer
        came: the proposal may then have been applied all the same.
        """
        ...


HighWatermarkListener = Callable[[str, int, int], None]
"""(topic, partition, high watermark); called on the event loop, never from within an append."""

LeadershipListener = Callable[[str, int, int | None], None]
"""(topic, partition, leader epoch or None): this broker's log is open and it leads, or it leads no more."""

OnFault = Callable[[str, BaseException], None]
"""(what, error): storage failed for good; the node has to stop."""
