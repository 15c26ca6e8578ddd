"""The producer: accepts records at any time, sends them in batches, retries, and reports the outcome of each.

One coroutine in the background decides what is sent (:mod:`.partition_queue` says what may be), a pair per
broker sends it and reads the answers (:mod:`.lane`), and one at a time asks for what is missing:
leaders, a producer id. The outcome of a record is a :class:`RecordMetadata`,
:class:`~.errors.NotWrittenError`, or, after ``delivery.timeout.ms`` or an error that leaves it open,
:class:`~.errors.MaybeWrittenError`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pykraft.kafka_client.cluster import ClientConfig, Cluster, is_passing
from pykraft.kafka_client.coordinator_link import CoordinatorLink
from pykraft.kafka_client.coordinators import TRANSACTION_KEY
from pykraft.kafka_client.errors import MalformedAnswerError, NotWrittenError, TransactionError
from pykraft.kafka_client.metadata import Broker, Partition, TopicPartition
from pykraft.kafka_client.network import ConcurrentNetwork, Future, Task
from pykraft.kafka_client.producer.batch import (
    ProducerBatch,
    ProducerConfig,
    RecordMetadata,
    check_place,
    check_record,
    record_size_bound,
)
from pykraft.kafka_client.producer.lane import BrokerLane, LaneEvents, SentBatch
from pykraft.kafka_client.producer.partition_queue import PartitionQueue
from pykraft.kafka_client.producer.partitioner import Partitioner, Pick
from pykraft.kafka_client.producer.transaction import ProducerIdentity, ProducerTransaction
from pykraft.kafka_client.producer.transaction_requests import (
    LAST_INIT_PRODUCER_ID_VERSION,
    NOT_CARRIED_OUT,
    add_partitions,
)
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.records import PartitionProduceResponse, ProduceResponse
from pykraft.kafka_protocol.messages.transactions import InitProducerIdRequest
from pykraft.kafka_protocol.primitives import Buffer
from pykraft.kafka_protocol.record_codec import EncodedRecords, RecordInput
from pykraft.kafka_protocol.records import NO_TIMESTAMP
from pykraft.runtime.address import Address

__all__ = ["Producer", "ProducerConfig", "RecordMetadata"]

_NO_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Producer:
    """Create it on a running event loop and :meth:`close` it there. Many tasks may use it at once.

    ``transaction``: of the :class:`~.transactional.TransactionalProducer` that it writes for.
    ``pick``: a number below its argument, at random, for records that name neither partition nor key (None:
    partitions take turns).
    """

    def __init__(
        self,
        network: ConcurrentNetwork,
        client: ClientConfig,
        config: ProducerConfig,
        transaction: ProducerTransaction | None = None,
        *,
        pick: Pick | None = None,
    ) -> None:
        self._network = network
        self._partitioner = Partitioner(config.batch_size_bytes, pick)
        self._client = client
        self._config = config
        self._cluster = Cluster(network, client)
        self._transaction = transaction
        self._coordinator = (
            None
            if transaction is None
            else CoordinatorLink(self._cluster, transaction.config.transactional_id, TRANSACTION_KEY)
        )
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[TopicPartition, PartitionQueue] = {}
        self._lanes: dict[Address, BrokerLane] = {}
        self._events = LaneEvents(self._answered, self._unanswered)
        self._unresolved: dict[ProducerBatch, None] = {}
        self._buffered_bytes = 0
        self._producer_id: ProducerIdentity | None = None
        self._wants_producer_id = False
        self._stale_topics: set[str] = set()
        self._awaited_topics: Counter[str] = Counter()
        self._question: Task | None = None
        self._ask_at_ms = 0
        self._failed_questions = 0
        self._work = network.event()
        self._resolved = network.event()
        self._is_closed = False
        self._runner = network.start(self._run())

    async def send(
        self,
        topic: str,
        partition: int | None,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        timestamp_ms: int = NO_TIMESTAMP,
    ) -> RecordMetadata:
        """Write a record and wait until it is acknowledged. :class:`~.errors.ProduceError`.

        ``partition`` None: by the key, or any (:mod:`.partitioner`).
        """
        if partition is None:
            await self.partitions_for(topic)
        return await self.append(topic, partition, key, value, headers, timestamp_ms)

    def append(
        self,
        topic: str,
        partition: int | None,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        timestamp_ms: int = NO_TIMESTAMP,
    ) -> Future[RecordMetadata]:
        """Queue a record after those of its partition; the future is what :meth:`send` waits for.

        A record without a partition is refused if :meth:`partitions_for` was not awaited for its topic.
        :class:`NotWrittenError` at once for a record that is too large, and while the buffer is full
        (THROTTLING_QUOTA_EXCEEDED, which is retriable). :class:`TypeError` or :class:`ValueError` for what
        is no record.
        """
        record = RecordInput(key, value, headers, timestamp_ms)
        check_record(record)
        size_bytes = record_size_bound(record)
        self._check_may_append(size_bytes)
        if partition is None:
            partition = self._choose(topic, key, size_bytes)
        queue = self._queue(TopicPartition(topic, partition))
        future: Future[RecordMetadata] = self._network.future()
        batch = queue.append(record, size_bytes, future, self._network.now_ms())
        self._appended(queue, batch, size_bytes)
        return future

    def append_encoded(
        self, topic: str, partition: int | None, content: EncodedRecords
    ) -> Future[RecordMetadata]:
        """Queue records as a batch of their own, as :meth:`append` does; the future is that of the first.

        ``partition`` None: any.
        """
        size_bytes = len(content.body)
        self._check_may_append(size_bytes)
        if partition is None:
            partition = self._choose(topic, None, size_bytes)
        queue = self._queue(TopicPartition(topic, partition))
        future: Future[RecordMetadata] = self._network.future()
        batch = queue.append_encoded(content, future, self._network.now_ms())
        self._appended(queue, batch, size_bytes)
        return future

    def _check_may_append(self, size_bytes: int) -> None:
        if self._is_closed:
            raise NotWrittenError(ErrorCode.INVALID_REQUEST, "the producer is closed")
        if size_bytes > self._config.max_request_size_bytes:
            limit = self._config.max_request_size_bytes
            message = f"a record of up to {size_bytes} bytes is above max.request.size, {limit}"
            raise NotWrittenError(ErrorCode.MESSAGE_TOO_LARGE, message)
        if self.is_full(size_bytes):
            message = f"buffer.memory ({self._config.buffer_memory_bytes} bytes) is full"
            raise NotWrittenError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)

    def _queue(self, where: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(where)
        if queue is None:
            check_place(*where)
            queue = self._queues[where] = PartitionQueue(
                where, self._config, self._client, self._batch_done, self._transaction
            )
        return queue

    def _appended(self, queue: PartitionQueue, batch: ProducerBatch, size_bytes: int) -> None:
        self._buffered_bytes += size_bytes
        self._unresolved[batch] = None
        self._active[queue.partition] = queue
        if self._transaction is not None:
            self._transaction.touch(queue.partition)
        if batch.is_closed or batch.record_count == 1:
            self._work.set()

    async def partitions_for(self, topic: str) -> int:
        """The number of partitions, asked for if it is not known.

        :class:`NotWrittenError` if it is not known after ``max.block.ms``, or the topic cannot be used.
        """
        check_place(topic, None)
        metadata = self._cluster.metadata
        deadline_ms = self._network.now_ms() + self._config.max_block_ms
        metadata.errors.pop(topic, None)
        self._awaited_topics[topic] += 1
        try:
            while not (count := self.known_partitions(topic)):
                if self._is_closed:
                    raise NotWrittenError(ErrorCode.INVALID_REQUEST, "the producer is closed")
                code = metadata.errors.get(topic, _NO_PARTITION)
                is_final = not is_passing(KafkaError(code))
                if is_final or self._network.now_ms() >= deadline_ms:
                    limit = f"within {self._config.max_block_ms} ms (max.block.ms)"
                    raise NotWrittenError(code, f"the partitions of topic {topic} are not known {limit}")
                self._stale_topics.add(topic)
                self._work.set()
                self._resolved.clear()
                await self._network.wait(self._resolved, deadline_ms)
        finally:
            self._awaited_topics[topic] -= 1
        return count

    def known_partitions(self, topic: str) -> int:
        """How many there were when the brokers were last asked; 0 if the topic is not known, or no more."""
        known = self._cluster.metadata.topic(topic)
        return 0 if known is None else len(known.partitions)

    def _choose(self, topic: str, key: Buffer | None, size_bytes: int) -> int:
        known = self._cluster.metadata.topic(topic)
        if known is None or not known.partitions:
            raise NotWrittenError(_NO_PARTITION, f"await partitions_for({topic!r}) first")
        return self._partitioner.choose(known, key, size_bytes)

    def is_full(self, size_bytes: int = 0) -> bool:
        """Whether the buffer has no room for that many more bytes."""
        return self._buffered_bytes + size_bytes > self._config.buffer_memory_bytes

    @property
    def trouble(self) -> KafkaError | None:
        """Why the oldest record that has no outcome yet was not written so far, if an attempt has failed."""
        return next((batch.last_error for batch in self._unresolved), None)

    async def flush(self, timeout_ms: int | None = None) -> bool:
        """Send everything without lingering and wait (None: without a limit) until it is answered.

        False if the time was too short. Does not raise the errors of the records.
        """
        deadline_ms = None if timeout_ms is None else self._network.now_ms() + timeout_ms
        return await self._flush(deadline_ms, lambda: False)

    async def until_flushed_or_failed(self, deadline_ms: int) -> bool:
        """Send the records of the transaction; True when all are written, or one is given up.

        False if the time was too short.
        """
        transaction = self._transaction
        assert transaction is not None
        return await self._flush(deadline_ms, lambda: transaction.failure is not None)

    async def _flush(self, deadline_ms: int | None, is_enough: Callable[[], bool]) -> bool:
        """Send everything without lingering and wait until it is answered, or ``is_enough``."""
        pending = list(self._unresolved)
        for batch in pending:
            batch.is_closed = True
        self._work.set()
        for batch in pending:
            while not batch.is_done and not is_enough():
                if deadline_ms is not None and self._network.now_ms() >= deadline_ms:
                    return False
                self._resolved.clear()
                await self._network.wait(self._resolved, deadline_ms)
        return True

    async def drop_transaction(self, error: KafkaError, deadline_ms: int) -> bool:
        """Give up the records of the transaction that are not sent, before it is aborted.

        By the old rules those in flight are waited for, since they could fall into the next transaction;
        False if the time was too short. By the new ones the next epoch keeps them out.
        """
        transaction = self._transaction
        assert transaction is not None
        transaction.fail(error, leaves_gap=False)
        if transaction.is_implicit:
            for queue in self._active.values():
                queue.give_up_all(error)
            return True
        self._work.set()
        while self._unresolved or self._question is not None:
            if self._network.now_ms() >= deadline_ms:
                return False
            self._resolved.clear()
            await self._network.wait(self._resolved, deadline_ms)
        return True

    async def close(self, timeout_ms: int = 0) -> None:
        """Flush for at most ``timeout_ms``, then give up the rest."""
        self._is_closed = True
        try:
            if timeout_ms > 0:
                await self.flush(timeout_ms)
        finally:
            self._runner.cancel()
            self._resolved.set()
            if self._question is not None:
                self._question.cancel()
            for lane in self._lanes.values():
                lane.close()
            self._cluster.close()
            error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the producer was closed")
            for queue in self._active.values():
                queue.give_up_all(error)

    async def _run(self) -> None:
        while True:
            self._work.clear()
            now_ms = self._network.now_ms()
            for queue in self._active.values():
                queue.expire(now_ms)
            self._drop_if_failed()
            self._drain(now_ms)
            for where in [where for where, queue in self._active.items() if queue.is_empty]:
                del self._active[where]
            self._maybe_ask(now_ms)
            await self._network.wait(self._work, self._next_deadline_ms(now_ms))

    def _next_deadline_ms(self, now_ms: int) -> int | None:
        deadlines = [queue.next_deadline_ms(now_ms) for queue in self._active.values()]
        if self._something_is_missing() and self._question is None:
            deadlines.append(self._ask_at_ms)
        return min(deadlines, default=None)

    def _drop_if_failed(self) -> None:
        """Nothing more is sent of a transaction that can only be aborted."""
        transaction = self._transaction
        if transaction is not None and transaction.failure is not None:
            transaction.missing.clear()
            for queue in self._active.values():
                queue.give_up_waiting(transaction.failure)

    def _batch_done(self, batch: ProducerBatch) -> None:
        del self._unresolved[batch]
        self._buffered_bytes -= batch.records_bytes
        self._resolved.set()

    # What is sent.

    def _drain(self, now_ms: int) -> None:
        """Send what may be sent, in requests with at most one batch per partition, until nothing is left."""
        while True:
            requests: dict[Address, list[SentBatch]] = {}
            for queue in list(self._active.values()):
                leader = self._leader(queue)
                if self._may_write(queue) and leader is not None and queue.ready(now_ms) is not None:
                    self._take(queue, *leader, requests)
            if not requests:
                return
            for address, batches in requests.items():
                self._lanes[address].submit(batches)

    def _may_write(self, queue: PartitionQueue) -> bool:
        transaction = self._transaction
        if transaction is None:
            return self._has_producer_id(queue)
        if transaction.identity is None or not transaction.admits(queue.partition):
            return False
        queue.adopt_transaction(transaction.identity)
        return True

    def _has_producer_id(self, queue: PartitionQueue) -> bool:
        if not queue.needs_producer_id:
            return True
        if self._producer_id is not None and self._producer_id.producer_id != queue.spent_producer_id:
            queue.adopt(self._producer_id)
            return True
        self._wants_producer_id = True
        return False

    def _leader(self, queue: PartitionQueue) -> tuple[Partition, Address] | None:
        """The partition and its leader's address; None while the leader is unknown."""
        where, metadata = queue.partition, self._cluster.metadata
        if where.topic in self._stale_topics:
            return None
        partition = metadata.partition(*where)
        leader_id = None if partition is None else partition.leader_id
        broker = None if leader_id is None else metadata.brokers.get(leader_id)
        if partition is not None and broker is not None:
            return partition, broker.address
        self._stale_topics.add(where.topic)
        code = metadata.errors.get(where.topic)
        if code is None:
            code = _NO_PARTITION if partition is None else ErrorCode.LEADER_NOT_AVAILABLE
        queue.record_error(KafkaError(code, f"no leader of {where} is known"))
        return None

    def _take(
        self,
        queue: PartitionQueue,
        partition: Partition,
        address: Address,
        requests: dict[Address, list[SentBatch]],
    ) -> None:
        """Add the queue's next batch to the request for its leader, if there is room."""
        if queue.in_flight and queue.sent_to != address:
            return  # first the old leader answers what it was sent, or its lane gives it up
        batches = requests.get(address, [])
        size_bytes = sum(sent.batch.size_bytes for sent in batches) + queue.waiting[0].size_bytes
        if batches and size_bytes > self._config.max_request_size_bytes:
            return
        if not self._lane(address).has_room:
            return
        requests.setdefault(address, batches).append(SentBatch(queue.take(address), partition))
        where = queue.partition
        self._active[where] = self._active.pop(where)  # the batches that did not fit are first next time

    def _lane(self, address: Address) -> BrokerLane:
        lane = self._lanes.get(address)
        if lane is None or lane.is_closed:
            lane = BrokerLane(
                self._network, address, self._client, self._config, self._events, self._transaction
            )
            self._lanes[address] = lane
        return lane

    # What became of it.

    def _answered(self, sent_batches: Sequence[SentBatch], response: ProduceResponse | None) -> None:
        self._work.set()
        if response is None:
            for sent in sent_batches:
                self._queues[sent.batch.partition].acknowledged(sent.batch, None)
            return
        results = {
            (topic.name or topic.topic_id, partition.index): partition
            for topic in response.responses
            for partition in topic.partition_responses
        }
        brokers = [
            Broker(node.node_id, Address(node.host, node.port), node.rack) for node in response.node_endpoints
        ]
        for sent in sent_batches:
            topic, topic_id, index = sent.partition.topic, sent.partition.topic_id, sent.partition.index
            answer = results.get((topic, index)) or results.get((topic_id, index))
            if answer is None:
                error = MalformedAnswerError("the answer leaves out the partition")
                self._unanswered([sent], error, True)
            else:
                self._answered_batch(sent, answer, brokers)

    def _answered_batch(
        self, sent: SentBatch, answer: PartitionProduceResponse, brokers: Sequence[Broker]
    ) -> None:
        batch = sent.batch
        queue = self._queues[batch.partition]
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            queue.acknowledged(batch, answer.base_offset, answer.log_append_time_ms)
        elif code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            queue.acknowledged(batch, None)
        else:
            now_ms = self._network.now_ms()
            queue.refused(batch, KafkaError(code, answer.error_message or code.name), now_ms)
            hint, metadata = answer.current_leader, self._cluster.metadata
            metadata.replay_leader(*batch.partition, hint.leader_id, hint.leader_epoch, brokers)
            if metadata.partition(*batch.partition) != sent.partition:
                batch.retry_at_ms = now_ms  # it is known to have changed since the request was sent
            elif code.retriable and code is not ErrorCode.NOT_ENOUGH_REPLICAS:
                self._stale_topics.add(batch.partition.topic)

    def _unanswered(self, sent_batches: Sequence[SentBatch], error: KafkaError, was_sent: bool) -> None:
        self._work.set()
        now_ms = self._network.now_ms()
        for sent in sent_batches:
            self._queues[sent.batch.partition].unanswered(sent.batch, error, now_ms, was_sent=was_sent)
            self._stale_topics.add(sent.batch.partition.topic)

    # What is missing.

    def _something_is_missing(self) -> bool:
        adds = self._transaction is not None and bool(self._transaction.missing)
        return bool(self._stale_topics) or self._wants_producer_id or adds

    def _maybe_ask(self, now_ms: int) -> None:
        if self._question is None and now_ms >= self._ask_at_ms and self._something_is_missing():
            self._question = self._network.start(self._ask())

    async def _ask(self) -> None:
        """One attempt to get everything that is missing; pauses grow while attempts fail."""
        topics = sorted(self._stale_topics)
        deadline_ms = self._cluster.deadline(self._client.request_timeout_ms)
        try:
            if topics:
                await self._cluster.refresh(topics, deadline_ms)
                self._stale_topics.difference_update(topics)
            if self._wants_producer_id:
                self._producer_id = await self._init_producer_id(deadline_ms)
                self._wants_producer_id = False
            if self._transaction is not None and self._transaction.missing:
                await self._add_partitions(self._transaction, deadline_ms)
            found = all(self._leader(queue) for queue in self._active.values()) and not any(
                awaited and self._cluster.metadata.topic(topic) is None
                for topic, awaited in self._awaited_topics.items()
            )
            self._failed_questions = 0 if found else self._failed_questions + 1
        except KafkaError as error:
            self._failed_questions += 1
            for queue in self._active.values():
                if queue.partition.topic in topics or queue.needs_producer_id:
                    queue.record_error(error)
        self._ask_at_ms = self._network.now_ms()
        if self._failed_questions:
            pause_ms = self._client.retry_backoff_ms * 2 ** min(self._failed_questions - 1, 16)
            self._ask_at_ms += min(pause_ms, self._client.retry_backoff_max_ms)
        self._question = None
        self._work.set()
        self._resolved.set()

    async def _add_partitions(self, transaction: ProducerTransaction, deadline_ms: int) -> None:
        """One attempt to put the partitions that have records into the transaction, by the old rules."""
        assert self._coordinator is not None
        partitions = list(transaction.missing)
        try:
            await add_partitions(self._coordinator, transaction, partitions, deadline_ms)
        except KafkaError as error:
            if isinstance(error, TransactionError):
                transaction.fail(error, leaves_gap=False)
            elif error.code not in NOT_CARRIED_OUT:
                transaction.is_in_doubt = True
            raise
        transaction.enrol(partitions)

    async def _init_producer_id(self, deadline_ms: int) -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
        response = await self._cluster.ask_any(
            request, deadline_ms, max_version=LAST_INIT_PRODUCER_ID_VERSION
        )
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), "InitProducerId")
        return ProducerIdentity(response.producer_id, response.producer_epoch)
