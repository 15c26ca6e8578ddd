"""Workloads' transactional producer through pykraft's own."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

from pykraft.jepsen_like.faults.clients.interface import (
    FencedError,
    RefusedError,
    TransactionalConfig,
    UnknownOutcomeError,
)
from pykraft.jepsen_like.faults.clients.outcomes import answered, text
from pykraft.jepsen_like.faults.clients.plain_transactions import PlainTransactions
from pykraft.kafka_client import errors
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import ConcurrentNetwork
from pykraft.kafka_client.producer.batch import ProducerConfig, RecordMetadata
from pykraft.kafka_client.producer.transactional import TransactionalProducer, TransactionConfig
from pykraft.kafka_protocol.errors import KafkaError

DELIVERY_TIMEOUT_MS = 20_000


class OwnTransactions:
    """:class:`.interface.TransactionalProducer`, by the rules of the cluster."""

    def __init__(
        self,
        network: ConcurrentNetwork,
        client: ClientConfig,
        config: TransactionalConfig,
        wall_ms: Callable[[], int],
    ) -> None:
        self._wall_ms = wall_ms
        self._is_open = False
        self._offsets = PlainTransactions(network, client, config, wall_ms)
        self._producer = TransactionalProducer(
            network,
            client,
            ProducerConfig(delivery_timeout_ms=DELIVERY_TIMEOUT_MS),
            TransactionConfig(config.transactional_id, config.timeout_ms),
        )

    async def init(self) -> None:
        with _fenced_or_unknown():
            await self._producer.init_transactions()

    async def send(self, partition: TopicPartition, values: Sequence[str]) -> int | None:
        with _fenced_or_unknown():
            await self._begin()
            futures = [
                cast(
                    "asyncio.Future[RecordMetadata]",
                    self._producer.append(*partition, None, value.encode(), (), self._wall_ms()),
                )
                for value in values
            ]
            await asyncio.wait(futures)
            failures = [error for future in futures if (error := future.exception()) is not None]
            if failures:
                raise failures[0]
            written = [future.result() for future in futures]
        first = written[0].offset
        if first is not None and [one.offset for one in written] == [first + n for n in range(len(written))]:
            return first
        return None

    async def _begin(self) -> None:
        if not self._is_open:
            await self._producer.begin_transaction()
            self._is_open = True

    async def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        with _fenced_or_unknown():
            await self._begin()
            await self._producer.send_offsets_to_transaction(
                {place: OffsetAndMetadata(offset) for place, offset in offsets.items()}, group
            )

    async def committed(self, group: str, partition: TopicPartition) -> int | None:
        return await self._offsets.committed(group, partition)

    async def commit(self) -> None:
        self._is_open = False
        try:
            await self._producer.commit_transaction()
        except errors.OutcomeUnknownError as error:
            raise UnknownOutcomeError(text(error)) from error
        except KafkaError as error:
            # Everything else is raised before the commit was asked for, or says that it was refused.
            raise RefusedError(text(error)) from error

    async def abort(self) -> None:
        if self._is_open:
            self._is_open = False
            with _fenced_or_unknown():
                await self._producer.abort_transaction()

    async def close(self) -> None:
        await self._offsets.close()
        await self._producer.close()


@contextmanager
def _fenced_or_unknown() -> Iterator[None]:
    with answered():
        try:
            yield
        except errors.FencedError as error:
            raise FencedError(text(error), is_certain=False) from error
