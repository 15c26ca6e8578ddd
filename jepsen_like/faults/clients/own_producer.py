"""Workloads' producer through pykraft's own."""

import asyncio
from typing import cast

from pykraft.jepsen_like.faults.clients.interface import ProducerConfig, RefusedError, UnknownOutcomeError
from pykraft.jepsen_like.faults.clients.outcomes import text
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.errors import NotWrittenError
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import ConcurrentNetwork
from pykraft.kafka_client.producer import producer as own
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError

LINGER_MS = 5
DELIVERY_TIMEOUT_MS = 120_000


class OwnProducer:
    """:class:`~pykraft.jepsen_like.faults.clients.interface.Producer` over a network of asyncio's."""

    def __init__(self, network: ConcurrentNetwork, client: ClientConfig, config: ProducerConfig) -> None:
        self._loop = asyncio.get_running_loop()
        self._config = config
        self._fatal: str | None = None
        self._producer = own.Producer(
            network,
            client,
            own.ProducerConfig(
                acks=config.acks,
                enable_idempotence=config.idempotent,
                max_in_flight_requests_per_connection=config.max_in_flight,
                linger_ms=LINGER_MS,
                delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            ),
        )

    @property
    def fatal(self) -> str | None:
        return self._fatal

    @property
    def has_skipped(self) -> bool:
        return False

    def send(
        self, partition: TopicPartition, value: str | None, timestamp_ms: int, key: str | None = None
    ) -> asyncio.Future[int | None] | None:
        answer: asyncio.Future[int | None] = self._loop.create_future()
        try:
            written = self._producer.append(
                partition.topic, partition.partition, _encoded(key), _encoded(value), (), timestamp_ms
            )
        except NotWrittenError as error:
            if error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                return None
            answer.set_exception(RefusedError(text(error)))
            return answer
        future = cast("asyncio.Future[own.RecordMetadata]", written)
        future.add_done_callback(lambda done: self._resolve(answer, done))
        return answer

    async def flush(self, timeout_s: float) -> None:
        await self._producer.flush(round(timeout_s * 1000))

    async def close(self) -> None:
        await self._producer.close()

    def _resolve(self, answer: asyncio.Future[int | None], done: asyncio.Future[own.RecordMetadata]) -> None:
        error = done.exception()
        if error is None:
            answer.set_result(done.result().offset)
            return
        if not isinstance(error, KafkaError):
            raise error
        # With one request in flight no other batch can have left a gap: the broker lost the sequence.
        out_of_order = error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if out_of_order and self._config.idempotent and self._config.max_in_flight == 1:
            self._fatal = self._fatal or text(error)
        kind = RefusedError if isinstance(error, NotWrittenError) else UnknownOutcomeError
        answer.set_exception(kind(text(error)))


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
