"""A workload's view of clients, pykraft's own (``own_clients``) or others that derive from them.

Everything runs on the event loop: a workload waits with ``asyncio.sleep`` and reads the time from the loop or
from ``OwnClients.wall_ms``, never from the machine.

An error means the same in all: :class:`RefusedError` only if the operation has certainly not happened,
:class:`UnknownOutcomeError` everywhere else (it may have happened, or happen later). A workload records the
first as ``fail`` and the second as ``info``.
"""

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

    @property
    def has_skipped(self) -> bool:
        """Whether the client is known to have sent a batch before an earlier one, and to have taken a new
        producer epoch for it."""
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
        """The high watermark; the last stable offset for committed reads. :class:`OperationError`."""
        ...

    async def close(self) -> None: ...


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
