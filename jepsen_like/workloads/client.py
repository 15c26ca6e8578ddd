"""What a workload may ask of a cluster: one interface, and two worlds behind it.

On real processes it is confluent-kafka (``confluent_clients``), in virtual time pykraft's own client
(``own_clients``). Everything runs on the event loop: a workload waits with ``asyncio.sleep`` and reads the
time from the loop or from :meth:`Clients.wall_ms`, never from the machine.

An error means the same in both: :class:`RefusedError` only where it is excluded that the operation happened,
:class:`UnknownOutcomeError` everywhere else (it may have happened, or happen later). A workload records the
first as ``fail`` and the second as ``info``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Protocol

from pykraft.jepsen_like.history import EventType
from pykraft.kafka_client.metadata import TopicPartition

ACKS_ALL: Final = -1
Acks = Literal[-1, 0, 1]
GroupProtocol = Literal["classic", "consumer"]
"""``consumer`` is KIP-848."""
Assignor = Literal["range", "cooperative-sticky", "uniform"]
"""``range`` is eager in the classic protocol; ``uniform`` is for the consumer protocol only."""


class OperationError(Exception):
    """An operation was not answered with success. ``outcome`` is how a history records it."""

    outcome: ClassVar[EventType]


class RefusedError(OperationError):
    """It certainly did not happen and will not."""

    outcome = "fail"


class UnknownOutcomeError(OperationError):
    """It may have happened, or may happen still."""

    outcome = "info"


class PositionLostError(OperationError):
    """The broker no longer honours the reader's position: truncated, or outside the log."""

    outcome = "info"

    def __init__(self, partition: TopicPartition, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.partition = partition
        self.offset = offset


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """``idempotent`` needs ``acks`` -1 (all)."""

    name: str
    acks: Acks = ACKS_ALL
    idempotent: bool = True
    max_in_flight: int = 1


@dataclass(frozen=True, slots=True)
class Polled:
    """Records of one partition in order. ``high_watermark``: as told with them; None: the client hides it."""

    records: tuple[tuple[int, str], ...]
    high_watermark: int | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """``offset`` is where to go on; ``tag`` is stored beside it and names this one commit."""

    offset: int
    tag: str


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """One member of one group. ``assignor`` None: the protocol's default."""

    name: str
    group: str
    protocol: GroupProtocol
    topics: tuple[str, ...]
    assignor: Assignor | None = None
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    """Both in the classic protocol only; in the consumer protocol they are the group's."""


class Producer(Protocol):
    """One producer: an order of values to each partition."""

    @property
    def fatal(self) -> str | None:
        """The error after which an idempotent producer cannot go on: its sequence was refused."""
        ...

    def send(
        self, partition: TopicPartition, value: str, timestamp_ms: int
    ) -> asyncio.Future[int | None] | None:
        """Give ``value`` its place in the order; None, and nothing done, while the queue is full.

        The future is the record's offset (None where the client is not told one: acks 0), or an
        :class:`OperationError`.
        """
        ...

    async def flush(self, timeout_s: float) -> None:
        """Wait until everything is answered, at most so long."""
        ...

    async def close(self) -> None:
        """Give up: what is unanswered is answered :class:`UnknownOutcomeError`."""
        ...


class Reader(Protocol):
    """Reads partitions from given offsets, without a group."""

    async def poll(self, timeout_s: float) -> Mapping[TopicPartition, Polled]:
        """What comes next, empty if nothing did in time. :class:`PositionLostError`."""
        ...

    async def end_offset(self, partition: TopicPartition) -> int:
        """The high watermark as the leader tells it. :class:`OperationError`."""
        ...

    async def close(self) -> None: ...


class OwnershipListener(Protocol):
    """Told what a member believes, while it believes it; called on the event loop.

    A partition is the member's from ``assigned`` until ``revoked`` (in agreement with the coordinator),
    ``lost`` (fenced, or its session is over) or the call of :meth:`Member.close` or :meth:`Member.abandon`.
    """

    def assigned(self, partitions: Sequence[TopicPartition]) -> None: ...

    def revoked(self, partitions: Sequence[TopicPartition]) -> None: ...

    def lost(self, partitions: Sequence[TopicPartition]) -> None: ...

    def heartbeat(self, sent_s: float, member_id: str, member_epoch: int) -> None:
        """A heartbeat sent at ``sent_s`` (of the loop's time) was answered without an error.

        Only clients that show their heartbeats call this; the generation is the classic ``member_epoch``.
        """
        ...


class Member(Protocol):
    """A member of a group. Heartbeats go on by themselves; positions begin at committed offsets, or at 0."""

    async def poll(self, timeout_s: float) -> Mapping[TopicPartition, Polled]:
        """What comes next of the partitions that are owned. Call it often: it also moves rebalances on.

        After a :class:`PositionLostError` the partition is read as if it had just been assigned; any other
        :class:`OperationError` is the end of this membership.
        """
        ...

    async def commit(self, commits: Mapping[TopicPartition, Commit]) -> None:
        """:class:`OperationError` if any of them was not accepted."""
        ...

    async def subscribe(self, topics: Sequence[str]) -> None: ...

    async def close(self) -> None:
        """Leave the group."""
        ...

    async def abandon(self) -> None:
        """Stop without a word, as a killed process does."""
        ...


class Admin(Protocol):
    """Changes and looks; every method raises :class:`OperationError`."""

    async def create_topic(
        self, topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None: ...

    async def delete_topic(self, topic: str) -> None: ...

    async def create_partitions(self, topic: str, total: int) -> None: ...

    async def alter_config(self, topic: str, name: str, value: str) -> None: ...

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Begin a move; it is over when :meth:`replicas` says so."""
        ...

    async def elect_preferred(self, partition: TopicPartition) -> None:
        """Also answered when the preferred leader leads already."""
        ...

    async def brokers(self) -> Sequence[int]:
        """The ids of the brokers that are listed."""
        ...

    async def partition_count(self, topic: str) -> int | None:
        """None: there is no such topic."""
        ...

    async def config(self, topic: str, name: str) -> str | None: ...

    async def replicas(self, partition: TopicPartition) -> Sequence[int]: ...

    async def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """The first offset whose record is at least so new; None: no record is."""
        ...

    async def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Commit | None]:
        """What the group has committed, by anybody's account; None where nothing is."""
        ...

    async def close(self) -> None: ...


class Clients(Protocol):
    """One world's way to open clients; opening waits for nobody and does not fail for lack of a cluster."""

    def producer(self, config: ProducerConfig) -> Producer: ...

    def reader(self, name: str, positions: Mapping[TopicPartition, int]) -> Reader: ...

    def member(self, config: MemberConfig, listener: OwnershipListener) -> Member: ...

    def admin(self, name: str) -> Admin: ...

    def wall_ms(self) -> int:
        """What clients write into records as their time."""
        ...

    def close(self) -> None:
        """Everything opened must have been closed or abandoned. May block."""
        ...
