"""Workloads' producers and readers through Kafka's Java client, and pykraft's own for administration.

One JVM has all of them. What an error means is decided there, in ``JavaClients.java``. Members of groups and
transactions are not covered: a workload that needs them is refused before it starts.
"""

import asyncio
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Final

from pykraft.jepsen_like.faults.clients.interface import (
    Member,
    MemberConfig,
    PlainTransactionalProducer,
    Polled,
    PositionLostError,
    Producer,
    ProducerConfig,
    Reader,
    RefusedError,
    TransactionalConfig,
    TransactionalProducer,
    UnknownOutcomeError,
)
from pykraft.jepsen_like.faults.clients.java_process import Answer, JavaProcess, decoded, encoded
from pykraft.jepsen_like.faults.clients.own_clients import RealClients
from pykraft.jepsen_like.faults.record_text import record_text
from pykraft.kafka_client.group.config import OwnershipListener
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.testing.processes.kafka_jars import find_clients

COVERED: Final = frozenset({"append", "changes", "compacted", "moves"})
"""The workloads that need nothing else."""
MOST_UNANSWERED: Final = 20_000
"""For one producer; then its queue is full."""
OUT_OF_ORDER: Final = "OutOfOrderSequenceException"


class JavaClients(RealClients):
    """``libs``: the jars of Kafka's client, instead of those that Maven brings.
    :class:`~pykraft.testing.processes.kafka_jars.NoKafkaError` without Java, or without the jars.
    """

    def __init__(self, bootstrap_servers: str, libs: Path | None = None) -> None:
        super().__init__(bootstrap_servers)
        self._java = JavaProcess(bootstrap_servers, find_clients(libs))
        self._numbers = count(1)

    def producer(self, config: ProducerConfig) -> Producer:
        return JavaProducer(self._java, next(self._numbers), config)

    def reader(
        self, name: str, positions: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> Reader:
        return JavaReader(self._java, next(self._numbers), name, positions, committed=committed)

    def member(self, config: MemberConfig, listener: OwnershipListener) -> Member:
        raise NotImplementedError("there are no members among the Java clients")

    def transactional(self, config: TransactionalConfig) -> TransactionalProducer:
        raise NotImplementedError("there are no transactions among the Java clients")

    def plain_transactional(self, config: TransactionalConfig) -> PlainTransactionalProducer:
        raise NotImplementedError("there are no transactions among the Java clients")

    def close(self) -> None:
        """Everything opened must have been closed. Blocks."""
        self._java.close()


class JavaProducer:
    """:class:`~pykraft.jepsen_like.faults.clients.interface.Producer`."""

    def __init__(self, java: JavaProcess, number: int, config: ProducerConfig) -> None:
        self._java = java
        self._number = number
        self._config = config
        self._unanswered: set[asyncio.Future[int | None]] = set()
        self._fatal: str | None = None
        is_idempotent = str(config.idempotent).lower()
        java.tell("producer", number, encoded(config.name), config.acks, is_idempotent, config.max_in_flight)

    @property
    def fatal(self) -> str | None:
        return self._fatal

    @property
    def has_skipped(self) -> bool:
        return False

    def send(
        self, partition: TopicPartition, value: str | None, timestamp_ms: int, key: str | None = None
    ) -> asyncio.Future[int | None] | None:
        if len(self._unanswered) >= MOST_UNANSWERED:
            return None
        place = (encoded(partition.topic), partition.partition)
        told = self._java.ask("send", self._number, *place, timestamp_ms, encoded(key), encoded(value))
        answer: asyncio.Future[int | None] = told.get_loop().create_future()
        self._unanswered.add(answer)
        told.add_done_callback(lambda done: self._resolve(answer, done))
        return answer

    async def flush(self, timeout_s: float) -> None:
        if self._unanswered:
            await asyncio.wait(list(self._unanswered), timeout=timeout_s)

    async def close(self) -> None:
        await self._java.ask("close", self._number)

    def _resolve(self, answer: asyncio.Future[int | None], told: asyncio.Future[Answer]) -> None:
        self._unanswered.discard(answer)
        error = told.exception()
        if error is not None:
            answer.set_exception(error)
            return
        status, told_text = told.result()
        text = decoded(told_text)
        if status == "ok":
            answer.set_result(None if text is None else int(text))
            return
        # With one request in flight no other batch can have left a gap: the broker lost the sequence.
        if OUT_OF_ORDER in str(text) and self._config.idempotent and self._config.max_in_flight == 1:
            self._fatal = self._fatal or text
        answer.set_exception(RefusedError(text) if status == "refused" else UnknownOutcomeError(text))


class JavaReader:
    """:class:`~pykraft.jepsen_like.faults.clients.interface.Reader`."""

    def __init__(
        self,
        java: JavaProcess,
        number: int,
        name: str,
        positions: Mapping[TopicPartition, int],
        *,
        committed: bool,
    ) -> None:
        self._java = java
        self._number = number
        places = [
            field
            for place, offset in positions.items()
            for field in (encoded(place.topic), place.partition, offset)
        ]
        java.tell("reader", number, encoded(name), str(committed).lower(), *places)

    async def poll(self, timeout_s: float) -> Mapping[TopicPartition, Polled]:
        status, *fields = await self._java.ask("poll", self._number, round(timeout_s * 1000))
        if status == "lost":
            topic, partition, offset, why = fields
            place = TopicPartition(str(decoded(topic)), int(partition))
            raise PositionLostError(place, int(offset), str(decoded(why)))
        if status != "ok":
            raise UnknownOutcomeError(str(decoded(fields[0])))
        return _polled(fields)

    async def log_start(self, partition: TopicPartition) -> int:
        return await self._look_up("start", partition)

    async def end_offset(self, partition: TopicPartition) -> int:
        return await self._look_up("end", partition)

    async def close(self) -> None:
        await self._java.ask("close", self._number)

    async def _look_up(self, what: str, place: TopicPartition) -> int:
        status, field = await self._java.ask(what, self._number, encoded(place.topic), place.partition)
        if status != "ok":
            raise UnknownOutcomeError(str(decoded(field)))
        return int(field)


def _polled(fields: Answer) -> dict[TopicPartition, Polled]:
    polled: dict[TopicPartition, Polled] = {}
    rest = iter(fields)
    for topic in rest:
        place, size = TopicPartition(str(decoded(topic)), int(next(rest))), int(next(rest))
        polled[place] = Polled(tuple(_record(next(rest), next(rest), next(rest)) for _ in range(size)))
    return polled


def _record(offset: str, key: str, value: str) -> tuple[int, str]:
    return int(offset), record_text(_bytes(key), _bytes(value))


def _bytes(field: str) -> bytes | None:
    text = decoded(field)
    return None if text is None else text.encode()
