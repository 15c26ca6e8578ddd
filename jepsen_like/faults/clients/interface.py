"""The clients of a workload: one interface with two implementations.

On real processes it is confluent-kafka (``confluent_clients``), in virtual time pykraft's own client
(``own_clients``). Everything runs on the event loop: a workload waits with ``asyncio.sleep`` and reads the
time from the loop or from :meth:`Clients.wall_ms`, never from the machine.

An error means the same in both: :class:`RefusedError` only if the operation has certainly not happened,
:class:`UnknownOutcomeError` everywhere else (it may have happened, or happen later). A workload records the
first as ``fail`` and the second as ``info``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from pykraft.jepsen_like.faults.history import EventType
from pykraft.kafka_client.metadata import TopicPartition

ACKS_ALL: Final = -1
Acks = Literal[-1, 0, 1]
GroupProtocol = Literal["classic", "consumer"]
"""``consumer`` is KIP-848."""
Assignor = Literal["range", "cooperative-sticky", "uniform"]
"""``range`` is eager in the classic protocol; ``uniform`` is for the consumer protocol only."""


class OperationError(Exception):
    """An operation did not succeed. ``outcome`` is the type that a history records."""

    outcome: EventType


class RefusedError(OperationError):
    """The operation has certainly not happened and will not."""

    outcome = "fail"


class UnknownOutcomeError(OperationError):
    """The operation may have happened, or may still happen."""

    outcome = "info"


class FencedError(OperationError):
    """Another producer has taken the transactional id, or the transaction took too long: this one must end.

    ``is_certain``: the operation has not happened.
    """

    def __init__(self, reason: str, *, is_certain: bool) -> None:
        super().__init__(reason)
        self.outcome = "fail" if is_certain else "info"


class PositionLostError(OperationError):
    """The broker refuses the reader's position: it was truncated, or is outside the log."""

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
class TransactionalConfig:
    """``rules``: of ``transaction.version`` 2, or the old ones; a real client goes by its cluster's."""

    name: str
    transactional_id: str
    timeout_ms: int
    rules: Literal[0, 2] = 2


@dataclass(frozen=True, slots=True)
class Polled:
    """Records of one partition in order: offset, and the record as histories show it (``record_text``).

    ``high_watermark``: None if the client does not expose it.
    """

    records: tuple[tuple[int, str], ...]
    high_watermark: int | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """``offset`` is the next offset to read; ``tag`` is stored with it and names this one commit."""

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
        """The error after which an idempotent producer cannot continue: its sequence was refused."""
        ...

    def send(
        self, partition: TopicPartition, value: str | None, timestamp_ms: int, key: str | None = None
    ) -> asyncio.Future[int | None] | None:
        """Give ``value`` its place in the order; None, and nothing done, while the queue is full. A record
        with a ``key`` and no value deletes the key.

        The future is the record's offset (None with acks 0), or an
        :class:`OperationError`.
        """
        ...

    async def flush(self, timeout_s: float) -> None:
        """Wait until all records have their outcome, at most so long."""
        ...

    async def close(self) -> None:
        """Give up: records without a response end with :class:`UnknownOutcomeError`."""
        ...


class TransactionalProducer(Protocol):
    """One process that uses a transactional id; a transaction begins with the first write after the last end.

    Every method raises :class:`OperationError`: :class:`FencedError` if the producer must end, any other if
    the transaction must be aborted (but after :meth:`commit` nobody knows whether it was committed, unless
    the error is :class:`RefusedError`).
    """

    async def init(self) -> None:
        """Take the transactional id: its former producer is fenced, and its open transaction aborted."""
        ...

    async def send(self, partition: TopicPartition, values: Sequence[str]) -> int | None:
        """Write the values next to each other; returns the offset of the first if it is known."""
        ...

    async def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None: ...

    async def committed(self, group: str, partition: TopicPartition) -> int | None:
        """The committed offset, when no transaction that may change it is open."""
        ...

    async def commit(self) -> None: ...

    async def abort(self) -> None: ...

    async def close(self) -> None: ...


class PlainTransactionalProducer(TransactionalProducer, Protocol):
    """One request after the other; it may break rules on purpose, as no real client does."""

    def send_late(self, partition: TopicPartition, values: Sequence[str], after_s: float) -> None:
        """A write that the network holds back for so long; its producer goes on as if it had no answer."""
        ...

    async def recover(self) -> None:
        """Ask for another epoch as the producer that it is, after an error (KIP-360)."""
        ...


class Reader(Protocol):
    """Reads partitions from given offsets, without a group."""

    async def poll(self, timeout_s: float) -> Mapping[TopicPartition, Polled]:
        """The next records; empty if there were none in time. :class:`PositionLostError`."""
        ...

    async def log_start(self, partition: TopicPartition) -> int:
        """The leader's log start: records below it were deleted. :class:`OperationError`."""
        ...

    async def end_offset(self, partition: TopicPartition) -> int:
        """The leader's high watermark, or its last stable offset if only committed records are read.
        :class:`OperationError`."""
        ...

    async def close(self) -> None: ...


class OwnershipListener(Protocol):
    """Notified of the partitions that a member believes it owns; called on the event loop.

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
    """A member of a group. It sends heartbeats by itself; positions begin at committed offsets, or at 0."""

    async def poll(self, timeout_s: float) -> Mapping[TopicPartition, Polled]:
        """The next records of the owned partitions. Call it often: it also advances rebalances.

        After a :class:`PositionLostError` the partition is read as if it had just been assigned; any other
        :class:`OperationError` ends this membership.
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
        """Stop without leaving the group, as a killed process does."""
        ...


CLIENT_THREADS: Final = "clients"
"""How the names of threads begin that wait for clients' libraries, which may never return."""


class Admin(Protocol):
    """Administration; every method raises :class:`OperationError`."""

    @property
    def repeats(self) -> int:
        """How many requests were sent again without a certain outcome before. One of them may be carried out
        long after its repetition was answered: when a link that was cut delivers what it held.
        """
        ...

    async def create_topic(
        self, topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None: ...

    async def delete_topic(self, topic: str) -> None: ...

    async def create_partitions(self, topic: str, total: int) -> None: ...

    async def alter_config(self, topic: str, name: str, value: str) -> None: ...

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Begin a reassignment; it is complete when :meth:`replicas` shows it."""
        ...

    async def elect_preferred(self, partition: TopicPartition) -> None:
        """Also succeeds if the preferred leader leads already."""
        ...

    async def brokers(self) -> Sequence[int]:
        """The ids of the listed brokers."""
        ...

    async def partition_count(self, topic: str) -> int | None:
        """None: there is no such topic."""
        ...

    async def config(self, topic: str, name: str) -> str | None: ...

    async def replicas(self, partition: TopicPartition) -> Sequence[int]: ...

    async def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """The first offset whose record has this timestamp or a later one; None: there is none."""
        ...

    async def delete_records(self, partition: TopicPartition, offset: int) -> int:
        """Delete the records below ``offset``, -1: below the high watermark; returns the low watermark."""
        ...

    async def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Commit | None]:
        """The group's committed offsets as its coordinator returns them; None where there is none."""
        ...

    async def close(self) -> None: ...


class Requests(Protocol):
    """Single requests, for registers: what may have arrived once is never sent again.

    Every method raises :class:`OperationError`. Those with a ``broker`` ask that one.
    """

    async def commit(self, group: str, partition: TopicPartition, commit: Commit) -> None:
        """Commit an offset of a group without members."""
        ...

    async def committed(self, group: str, partition: TopicPartition) -> Commit | None:
        """The committed offset as the group's coordinator returns it."""
        ...

    async def brokers(self) -> Sequence[int]:
        """The ids of the listed brokers, which can be asked from now on."""
        ...

    async def set_config(self, broker: int, topic: str, name: str, value: str) -> None:
        """The broker passes it on to the controller, perhaps repeatedly until it has an answer."""
        ...

    async def config(self, broker: int, topic: str, name: str) -> str | None:
        """As the broker knows it: its image of the metadata may lag."""
        ...

    async def producer_id(self, broker: int) -> int:
        """A new producer id, for a producer without a transactional id."""
        ...

    async def close(self) -> None: ...


class Clients(Protocol):
    """Opens the clients of one implementation; opening waits for no response, and needs no cluster."""

    def producer(self, config: ProducerConfig) -> Producer: ...

    def transactional(self, config: TransactionalConfig) -> TransactionalProducer:
        """A real client."""
        ...

    def plain_transactional(self, config: TransactionalConfig) -> PlainTransactionalProducer: ...

    def reader(
        self, name: str, positions: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> Reader:
        """``committed``: only what committed transactions have written (read_committed)."""
        ...

    def member(self, config: MemberConfig, listener: OwnershipListener) -> Member: ...

    def admin(self, name: str) -> Admin: ...

    def requests(self, name: str) -> Requests: ...

    def wall_ms(self) -> int:
        """The time that clients write into records."""
        ...

    def close(self) -> None:
        """Everything opened must have been closed or abandoned. May block."""
        ...
