"""Produce requests to one broker: on one connection, in order, a few at a time.

One coroutine writes and another reads. Any failure, such as a request that is never answered or an answer
that cannot be read, ends the lane and its connection. Every request that it still has is then reported as
unanswered, and those that were never written are distinguished. A new lane replaces it when there is
something to send.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.connection import Connection
from pykraft.kafka_client.errors import UnsupportedByBrokerError
from pykraft.kafka_client.metadata import Partition, has_id
from pykraft.kafka_client.network import ConcurrentNetwork
from pykraft.kafka_client.producer.batch import ProducerBatch, ProducerConfig
from pykraft.kafka_client.producer.transaction import (
    LAST_PRODUCE_VERSION_WITHOUT_ENROLMENT,
    ProducerTransaction,
)
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.records import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.address import Address

_LAST_VERSION_WITH_NAMES = 12


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch, and the partition's metadata as of when the batch was sent."""

    batch: ProducerBatch
    partition: Partition


@dataclass(frozen=True, slots=True)
class LaneEvents:
    """How the producer handles the outcome of a request. ``response`` None: with acks=0 there is none."""

    answered: Callable[[Sequence[SentBatch], ProduceResponse | None], None]
    unanswered: Callable[[Sequence[SentBatch], KafkaError, bool], None]


class BrokerLane:
    """The requests to one broker. Once ``is_closed`` is true the lane must be replaced."""

    def __init__(
        self,
        network: ConcurrentNetwork,
        address: Address,
        client: ClientConfig,
        config: ProducerConfig,
        events: LaneEvents,
        transaction: ProducerTransaction | None = None,
    ) -> None:
        self.address = address
        self.is_closed = False
        self._network = network
        self._client = client
        self._config = config
        self._events = events
        self._transaction = transaction
        self._to_write: deque[Sequence[SentBatch]] = deque()
        self._writing: Sequence[SentBatch] | None = None
        self._to_read: deque[tuple[Sequence[SentBatch], int]] = deque()
        self._something_to_write = network.event()
        self._something_to_read = network.event()
        self._connection: Connection | None = None
        self._tasks = [network.start(self._run())]

    @property
    def has_room(self) -> bool:
        in_flight = len(self._to_write) + (self._writing is not None) + len(self._to_read)
        return not self.is_closed and in_flight < self._config.max_in_flight_requests_per_connection

    def submit(self, batches: Sequence[SentBatch]) -> None:
        assert self.has_room, "more requests in flight than allowed"
        self._to_write.append(batches)
        self._something_to_write.set()

    def close(self) -> None:
        """Stop at once; the requests that it still has are not reported."""
        self.is_closed = True
        for task in self._tasks:
            task.cancel()
        if self._connection is not None:
            self._connection.close()

    async def _run(self) -> None:
        try:
            connect_by = self._network.now_ms() + self._client.connect_timeout_ms
            connection = await Connection.open(
                self._network, self.address, self._client.client_id, connect_by
            )
            self._connection = connection
            self._tasks.append(self._network.start(self._read(connection)))
            while True:
                while not self._to_write:
                    self._something_to_write.clear()
                    await self._network.wait(self._something_to_write)
                await self._write(connection, self._to_write[0])
        except KafkaError as error:
            self._end(error)

    async def _write(self, connection: Connection, submitted: Sequence[SentBatch]) -> None:
        batches = [sent for sent in submitted if not sent.batch.is_done]
        if not batches:
            self._to_write.popleft()
            return
        request = self._request(batches)
        ceiling = self._ceiling(connection, request, batches)  # raises before anything counts as sent
        self._to_write.popleft()
        self._writing = batches
        deadline_ms = self._network.now_ms() + self._client.request_timeout_ms
        has_answer = self._config.acks != 0
        await connection.send(request, deadline_ms, max_version=ceiling, has_answer=has_answer)
        self._writing = None
        if has_answer:
            self._to_read.append((batches, deadline_ms))
            self._something_to_read.set()
        else:
            self._events.answered(batches, None)

    async def _read(self, connection: Connection) -> None:
        try:
            while True:
                while not self._to_read:
                    self._something_to_read.clear()
                    await self._network.wait(self._something_to_read)
                batches, deadline_ms = self._to_read[0]
                response = await connection.receive(ProduceResponse, deadline_ms)
                self._to_read.popleft()
                self._events.answered(batches, response)
        except KafkaError as error:
            self._end(error)

    def _ceiling(
        self, connection: Connection, request: ProduceRequest, batches: Sequence[SentBatch]
    ) -> int | None:
        """The newest version that may be sent. It also tells by which rules a transaction goes."""
        named = None if all(has_id(sent.partition.topic_id) for sent in batches) else _LAST_VERSION_WITH_NAMES
        transaction = self._transaction
        if transaction is not None and not transaction.is_implicit:
            named = LAST_PRODUCE_VERSION_WITHOUT_ENROLMENT
        version = connection.version_for(request, named)
        if (
            transaction is not None
            and transaction.is_implicit
            and version <= LAST_PRODUCE_VERSION_WITHOUT_ENROLMENT
        ):
            raise UnsupportedByBrokerError(
                f"the broker at {self.address} does not support transaction.version 2, which the cluster uses"
            )
        return named

    def _request(self, batches: Sequence[SentBatch]) -> ProduceRequest:
        """A request with at most one batch for each partition, as the protocol requires."""
        by_topic: dict[tuple[str, Uuid], list[PartitionProduceData]] = defaultdict(list)
        for sent in batches:
            data = PartitionProduceData(
                index=sent.partition.index, records=sent.batch.encode(self._config.compression)
            )
            by_topic[sent.partition.topic, sent.partition.topic_id].append(data)
        transaction = self._transaction
        return ProduceRequest(
            transactional_id=None if transaction is None else transaction.config.transactional_id,
            acks=self._config.acks,
            # Less than the time for the whole request: a late answer is better than a broken connection.
            timeout_ms=self._client.request_timeout_ms * 3 // 4,
            topic_data=[
                TopicProduceData(name=name, topic_id=topic_id, partition_data=partitions)
                for (name, topic_id), partitions in by_topic.items()
            ],
        )

    def _end(self, error: KafkaError) -> None:
        if self.is_closed:
            return
        self.close()
        sent = [batches for batches, _ in self._to_read]
        if self._writing is not None:
            sent.append(self._writing)
        not_sent = list(self._to_write)
        for batches in sent:
            self._events.unanswered(batches, error, True)
        for batches in not_sent:
            self._events.unanswered(batches, error, False)
