"""The unfinished batches of one partition: which may be sent, in which order, and what an answer means.

Rules of the idempotent producer (KIP-98, KIP-360):

* Sequences follow the order of the records and never change while the batch may be in the log.
* A batch that failed is sent again before any later one, alone, with the same sequence.
* A batch that is given up leaves a gap in the sequence. So the partition starts again at sequence 0 in the
  next producer epoch, but only once nothing of the old one is in flight. Batches that were sent in the old
  epoch move to the new one if they are certainly not in the log, and are given up otherwise. Nothing is
  written twice.

The producer epoch is the partition's own: brokers keep it by partition. Not so in transactions: there it is
the transaction's, and a batch that is given up fails the transaction, whose end brings another epoch.

Pure: knows no broker and no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from pykraft.kafka_client.cluster import ClientConfig, is_passing
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import Future
from pykraft.kafka_client.producer.batch import (
    NO_SEQUENCE,
    BatchSequence,
    ProducerBatch,
    ProducerConfig,
    RecordMetadata,
)
from pykraft.kafka_client.producer.transaction import ProducerIdentity, ProducerTransaction
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.record_codec import EncodedRecords, RecordInput
from pykraft.runtime.address import Address

_MAX_PRODUCER_EPOCH: Final = 0x7FFF
_SEQUENCE_MASK: Final = 0x7FFFFFFF

_NEW_EPOCH_HELPS = frozenset({ErrorCode.UNKNOWN_PRODUCER_ID})
_NEW_PRODUCER_ID_HELPS = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})

# Brokers return these before they append. NOT_LEADER_OR_FOLLOWER is not among them: it may also answer a
# request that was appended before the leader changed, and the next leader may have the records.
NOT_WRITTEN = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_TOPIC_ID,
        *_NEW_EPOCH_HELPS,
        *_NEW_PRODUCER_ID_HELPS,
    }
)


class PartitionQueue:
    """``waiting``: to be sent, oldest first; ``in_flight``: sent to ``sent_to`` and not answered."""

    def __init__(
        self,
        partition: TopicPartition,
        config: ProducerConfig,
        client: ClientConfig,
        on_done: Callable[[ProducerBatch], None],
        transaction: ProducerTransaction | None = None,
    ) -> None:
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: deque[ProducerBatch] = deque()
        self.sent_to: Address | None = None
        self.spent_producer_id: int | None = None
        self._config = config
        self._client = client
        self._on_done = on_done
        self._transaction = transaction
        self._next_order = 0
        self._producer: ProducerIdentity | None = None
        self._next_sequence = 0
        self._is_restarting = False

    @property
    def is_empty(self) -> bool:
        return not self.waiting and not self.in_flight

    @property
    def needs_producer_id(self) -> bool:
        return self._config.enable_idempotence and self._producer is None

    def adopt(self, producer: ProducerIdentity) -> None:
        """Write as this producer from now on."""
        self._producer = producer
        self._next_sequence = 0

    def adopt_transaction(self, producer: ProducerIdentity) -> None:
        """Write as the transaction's producer; its sequence goes on while the epoch is the same."""
        if self._producer != producer:
            self.adopt(producer)

    def append(
        self, record: RecordInput, size_bytes: int, future: Future[RecordMetadata], now_ms: int
    ) -> ProducerBatch:
        """Append a record after the others; returns its batch."""
        limit = self._config.batch_size_bytes
        batch = self.waiting[-1] if self.waiting else None
        if batch is not None and not batch.is_closed and batch.size_bytes + size_bytes > limit:
            batch.is_closed = True
        if batch is None or batch.is_closed:
            batch = self._begin_batch(now_ms)
        batch.append(record, size_bytes, future)
        batch.is_closed = batch.size_bytes >= limit
        return batch

    def append_encoded(
        self, content: EncodedRecords, future: Future[RecordMetadata], now_ms: int
    ) -> ProducerBatch:
        """Append a batch of its own after the others."""
        if self.waiting:
            self.waiting[-1].is_closed = True
        batch = self._begin_batch(now_ms)
        batch.take_encoded(content, future)
        return batch

    def _begin_batch(self, now_ms: int) -> ProducerBatch:
        is_transactional = self._transaction is not None
        batch = ProducerBatch(self.partition, self._next_order, now_ms, self._on_done, is_transactional)
        self._next_order += 1
        self.waiting.append(batch)
        return batch

    def ready(self, now_ms: int) -> ProducerBatch | None:
        """The batch that may be sent now, if one may."""
        if self._send_at_ms() > now_ms:
            return None
        return self.waiting[0]

    def take(self, address: Address) -> ProducerBatch:
        """Take the batch that is ready; it is now in flight to ``address``."""
        batch = self.waiting.popleft()
        batch.is_closed = True
        if batch.sequence is None:
            batch.sequence = self._sequence(batch.record_count)
        self.in_flight.append(batch)
        self.sent_to = address
        return batch

    def next_deadline_ms(self, now_ms: int) -> int:
        """The next time at which something changes by itself; only for a queue that is not empty."""
        expires_ms = self._oldest().created_ms + self._config.delivery_timeout_ms
        send_at_ms = self._send_at_ms()
        return min(expires_ms, send_at_ms) if send_at_ms > now_ms else expires_ms

    def acknowledged(self, batch: ProducerBatch, base_offset: int | None, append_time_ms: int = -1) -> None:
        """The batch is in the log."""
        if batch.is_done:
            return
        self.in_flight.remove(batch)
        batch.complete(base_offset, append_time_ms)
        self._finish_restart()

    def refused(self, batch: ProducerBatch, error: KafkaError, now_ms: int) -> None:
        """The broker answered with an error."""
        if batch.is_done:
            return
        if error.code not in NOT_WRITTEN:
            batch.maybe_written = True
        self.in_flight.remove(batch)
        code = error.code
        if code in _NEW_EPOCH_HELPS or code in _NEW_PRODUCER_ID_HELPS:
            if self._transaction is not None:
                self._give_up(batch, error)
                return
            self._restart(new_producer_id=code in _NEW_PRODUCER_ID_HELPS)
            self._send_again(batch, error, now_ms)
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if self._is_restarting or self._follows_another(batch):
                self._send_again(batch, error, now_ms)
            else:
                self._give_up(batch, error)
        elif is_passing(error):
            self._send_again(batch, error, now_ms)
        else:
            self._give_up(batch, error)
        self._finish_restart()

    def unanswered(self, batch: ProducerBatch, error: KafkaError, now_ms: int, *, was_sent: bool) -> None:
        """There will be no answer. ``was_sent``: the request may have reached the broker."""
        if batch.is_done:
            return
        batch.maybe_written = batch.maybe_written or was_sent
        self.in_flight.remove(batch)
        if is_passing(error):
            self._send_again(batch, error, now_ms)
        else:
            self._give_up(batch, error)
        self._finish_restart()

    def expire(self, now_ms: int) -> None:
        """Give up what has been tried for ``delivery.timeout.ms``."""
        timeout_ms = self._config.delivery_timeout_ms
        while not self.is_empty and self._oldest().created_ms + timeout_ms <= now_ms:
            batch = self._oldest()
            if self.in_flight and batch is self.in_flight[0]:
                self.in_flight.popleft()
                batch.maybe_written = True
            else:
                self.waiting.popleft()
            reason = "" if batch.last_error is None else f"; the last error was {batch.last_error}"
            message = f"not acknowledged within {timeout_ms} ms (delivery.timeout.ms){reason}"
            self._give_up(batch, KafkaError(ErrorCode.REQUEST_TIMED_OUT, message))
            self._finish_restart()

    def record_error(self, error: KafkaError) -> None:
        """Something needed for sending is missing: for now, or, if the error is not retriable, for good."""
        if is_passing(error):
            for batch in self.waiting:
                batch.last_error = error
            return
        self.give_up_waiting(error)

    def give_up_waiting(self, error: KafkaError) -> None:
        """Give up what is not in flight."""
        while self.waiting:
            self._give_up(self.waiting.popleft(), error)
        self._finish_restart()

    def give_up_all(self, error: KafkaError) -> None:
        """The end of the producer, or of what it writes as this one."""
        for batch in self.in_flight:
            batch.maybe_written = True
        for batch in [*self.in_flight, *self.waiting]:
            batch.fail(error)
        self.in_flight.clear()
        self.waiting.clear()

    def _oldest(self) -> ProducerBatch:
        if self.in_flight and (not self.waiting or self.in_flight[0].order < self.waiting[0].order):
            return self.in_flight[0]
        return self.waiting[0]

    def _send_at_ms(self) -> int:
        """When the first waiting batch may be sent; far in the future while that does not depend on time."""
        never_ms = 1 << 62
        if not self.waiting or self._is_restarting:
            return never_ms
        head = self.waiting[0]
        if head.attempts:
            return never_ms if self.in_flight else head.retry_at_ms
        if len(self.in_flight) >= self._config.max_in_flight_per_partition:
            return never_ms
        return head.created_ms if head.is_closed else head.created_ms + self._config.linger_ms

    def _sequence(self, record_count: int) -> BatchSequence:
        if not self._config.enable_idempotence:
            return NO_SEQUENCE
        assert self._producer is not None, "a producer id comes first"
        base = self._next_sequence
        self._next_sequence = (base + record_count) & _SEQUENCE_MASK
        return BatchSequence(*self._producer, base)

    def _follows_another(self, batch: ProducerBatch) -> bool:
        """Whether an earlier batch of the sequence has no outcome yet: the gap may then still be filled."""
        return any(
            other.order < batch.order and other.sequence is not None
            for other in (*self.in_flight, *self.waiting)
        )

    def _send_again(self, batch: ProducerBatch, error: KafkaError, now_ms: int) -> None:
        batch.last_error = error
        if self._is_restarting:
            if batch.maybe_written:
                batch.fail(error)
                return
            batch.forget_sequence()
        batch.attempts += 1
        pause_ms = self._client.retry_backoff_ms * 2 ** min(batch.attempts - 1, 16)
        batch.retry_at_ms = now_ms + min(pause_ms, self._client.retry_backoff_max_ms)
        place = sum(1 for other in self.waiting if other.order < batch.order)
        self.waiting.insert(place, batch)

    def _give_up(self, batch: ProducerBatch, error: KafkaError) -> None:
        batch.fail(error)
        has_sequence = batch.sequence is not None and batch.sequence != NO_SEQUENCE
        if self._transaction is not None:
            self._transaction.fail(error, leaves_gap=has_sequence)
        elif has_sequence:
            self._restart()

    def _restart(self, *, new_producer_id: bool = False) -> None:
        """Start to end this producer epoch of the partition; :meth:`_finish_restart` starts the next."""
        if new_producer_id and self._producer is not None:
            self.spent_producer_id = self._producer.producer_id
            self._producer = None
        self._is_restarting = True
        for batch in [batch for batch in self.waiting if batch.sequence is not None]:
            if batch.maybe_written:
                self.waiting.remove(batch)
                batch.fail(
                    KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "an earlier batch was given up")
                )
            else:
                batch.forget_sequence()

    def _finish_restart(self) -> None:
        if not self._is_restarting or self.in_flight:
            return
        self._is_restarting = False
        if self._producer is None:
            return
        producer_id, producer_epoch = self._producer
        if producer_epoch == _MAX_PRODUCER_EPOCH:
            self.spent_producer_id = producer_id
            self._producer = None
        else:
            self.adopt(ProducerIdentity(producer_id, producer_epoch + 1))
