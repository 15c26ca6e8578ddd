"""The producer for programs without an event loop: plain calls, from any number of threads.

It runs :class:`.Producer` or :class:`.TransactionalProducer` on a loop in a daemon thread. ``send`` returns
a :class:`concurrent.futures.Future` and keeps the order of the calls of a thread. Like Java's producer it
blocks for at most ``max.block.ms`` while the partitions of a topic are not known or ``buffer.memory`` is
full. A record that is refused before it is sent fails its transaction, since nobody may have looked at its
future.

A call that is interrupted (KeyboardInterrupt) goes on in the background, and the next one waits for it: a
commit must not be cut off between its request and its answer.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypeVar

from pykraft.kafka_client import network
from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.errors import NotWrittenError
from pykraft.kafka_client.group.config import GroupIdentity
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.loop_thread import LoopThread
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.producer.batch import (
    ProducerConfig,
    RecordMetadata,
    check_place,
    check_record,
    record_size_bound,
)
from pykraft.kafka_client.producer.prepared_transaction import PreparedTransaction
from pykraft.kafka_client.producer.producer import Producer
from pykraft.kafka_client.producer.transaction import TransactionConfig
from pykraft.kafka_client.producer.transactional import TransactionalProducer
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.primitives import Buffer
from pykraft.kafka_protocol.record_codec import EncodedRecords, RecordInput
from pykraft.kafka_protocol.records import NO_TIMESTAMP

T = TypeVar("T")

CLOSE_TIMEOUT_MS: Final = 30_000
_CLOSED = "the producer is closed"


class _Send:
    __slots__ = ("future", "partition", "record", "size_bytes", "topic")

    def __init__(
        self, topic: str, partition: int | None, record: RecordInput | EncodedRecords, size_bytes: int
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.record = record
        self.size_bytes = size_bytes
        self.future: Future[RecordMetadata] = Future()


class BlockingProducer:
    """With ``transaction`` a transactional one. Errors are those of the asynchronous producers.

    As a context manager it flushes at the end of the block, but not after an exception. Belongs to the
    process that made it: a fork of it is told so, and it cannot be pickled.
    """

    def __init__(
        self,
        client: ClientConfig,
        config: ProducerConfig | None = None,
        transaction: TransactionConfig | None = None,
    ) -> None:
        self._config = config or ProducerConfig()
        self._pid = os.getpid()
        self._room = threading.Condition()
        self._buffered_bytes = 0
        self._is_closed = False
        self._sends: deque[_Send] = deque()
        self._is_woken = False
        self._turn = asyncio.Lock()
        self._loop_thread = LoopThread("pykraft-producer")
        self._loop_thread.start()
        try:
            self._producer = self._loop_thread.call(partial(self._make, client, transaction))
        except BaseException:
            self._loop_thread.stop()
            raise

    def _make(
        self, client: ClientConfig, transaction: TransactionConfig | None
    ) -> Producer | TransactionalProducer:
        pick = random.Random().randrange
        if transaction is None:
            return Producer(AsyncioNetwork(), client, self._config, pick=pick)
        return TransactionalProducer(AsyncioNetwork(), client, self._config, transaction, pick=pick)

    def send(
        self,
        topic: str,
        partition: int | None,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        timestamp_ms: int = NO_TIMESTAMP,
    ) -> Future[RecordMetadata]:
        """Queue a record. ``partition`` None: by the key, or any.

        :class:`NotWrittenError` after max.block.ms; :class:`TypeError` or :class:`ValueError` at once for
        what is no record.
        Callbacks of the future run on the producer's thread; they may send, and must not wait.
        """
        self._check_usable()
        record = RecordInput(key, value, headers, timestamp_ms)
        check_record(record)
        self._learn_partitions(topic, partition)
        return self._queue(_Send(topic, partition, record, record_size_bound(record)))

    def send_encoded(
        self, topic: str, partition: int | None, content: EncodedRecords
    ) -> Future[RecordMetadata]:
        """Queue records as a batch of their own, as :meth:`send`; the future is that of the first.

        ``partition`` None: any.
        """
        self._check_usable()
        self._learn_partitions(topic, partition)
        return self._queue(_Send(topic, partition, content, len(content.body)))

    def _queue(self, send: _Send) -> Future[RecordMetadata]:
        with self._room:
            if not self._has_room(send.size_bytes):
                self._wait_for_room(send.size_bytes)
            if self._is_closed:
                raise RuntimeError(_CLOSED)
            self._buffered_bytes += send.size_bytes
            self._sends.append(send)
            if not self._is_woken:
                self._is_woken = True
                self._loop_thread.loop.call_soon_threadsafe(self._take)
        return send.future

    def flush(self, timeout_ms: int | None = None) -> bool:
        """Wait (None: without a limit) until all is answered that was sent; False if it took too long."""
        return self._run(self._producer.flush(timeout_ms))

    def partitions_for(self, topic: str) -> int:
        """The number of partitions."""
        return self._run(self._producer.partitions_for(topic))

    def init_transactions(self, timeout_ms: int | None = None) -> None:
        """As :meth:`.TransactionalProducer.init_transactions`, like all calls about transactions."""
        self._run_in_turn(partial(self._transactional().init_transactions, timeout_ms))

    def begin_transaction(self, timeout_ms: int | None = None) -> None:
        self._run_in_turn(partial(self._transactional().begin_transaction, timeout_ms))

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_id: str,
        member: GroupIdentity | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        send = self._transactional().send_offsets_to_transaction
        self._run_in_turn(partial(send, offsets, group_id, member, timeout_ms))

    def commit_transaction(self, timeout_ms: int | None = None) -> None:
        self._run_in_turn(partial(self._transactional().commit_transaction, timeout_ms))

    def prepare_transaction(self, timeout_ms: int | None = None) -> PreparedTransaction:
        """For another client to commit: see :meth:`.TransactionalProducer.prepare_transaction`."""
        return self._run_in_turn(partial(self._transactional().prepare_transaction, timeout_ms))

    def abort_transaction(self, timeout_ms: int | None = None) -> None:
        self._run_in_turn(partial(self._transactional().abort_transaction, timeout_ms))

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Flush for at most that long, give up the rest, and end the thread; not a second time."""
        if os.getpid() != self._pid:
            return
        if self._loop_thread.is_current:
            raise RuntimeError("a callback of a future must not wait for the producer")
        with self._room:
            if self._is_closed:
                return
            self._is_closed = True
            self._room.notify_all()
        try:
            self._loop_thread.run(self._producer.close(timeout_ms))
        except KeyboardInterrupt:
            self._loop_thread.run(self._producer.close(0))
            raise
        finally:
            self._loop_thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(CLOSE_TIMEOUT_MS if error is None else 0)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a producer cannot be pickled: create it in the process that uses it")

    # -- on the threads of callers ---------------------------------------------------------------------

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError("a producer does not survive a fork: create it in the process that uses it")
        if self._is_closed:
            raise RuntimeError(_CLOSED)

    def _learn_partitions(self, topic: str, partition: int | None) -> None:
        """The producer chooses among them where ``partition`` is None."""
        check_place(topic, partition)
        if partition is None and not self._producer.known_partitions(topic):
            self.partitions_for(topic)

    def _transactional(self) -> TransactionalProducer:
        if not isinstance(self._producer, TransactionalProducer):
            raise RuntimeError("the producer has no transactional.id")
        return self._producer

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._check_usable()
            if self._loop_thread.is_current:
                raise RuntimeError("a callback of a future must not wait for the producer")
            future = self._loop_thread.submit(work)
        except BaseException:
            work.close()
            raise
        return future.result()

    def _run_in_turn(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async def in_turn() -> T:
            async with self._turn:
                return await call()

        return self._run(in_turn())

    def _has_room(self, size_bytes: int) -> bool:
        return not self._buffered_bytes or (
            self._buffered_bytes + size_bytes <= self._config.buffer_memory_bytes
        )

    def _wait_for_room(self, size_bytes: int) -> None:
        limit_ms = self._config.max_block_ms
        until = monotonic() + limit_ms / 1000
        while not self._has_room(size_bytes) and not self._is_closed:
            left_s = until - monotonic()
            if left_s <= 0 or self._loop_thread.is_current:
                message = f"buffer.memory ({self._config.buffer_memory_bytes} bytes) is full"
                raise NotWrittenError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
            self._room.wait(left_s)

    # -- on the loop -----------------------------------------------------------------------------------

    def _take(self) -> None:
        """Append all that was sent meanwhile."""
        self._is_woken = False
        while self._sends:
            send = self._sends.popleft()
            try:
                appended = self._append(send)
            except (KafkaError, RuntimeError) as error:
                if isinstance(error, KafkaError) and isinstance(self._producer, TransactionalProducer):
                    self._producer.fail_transaction(error)
                self._release(send)
                if send.future.set_running_or_notify_cancel():
                    send.future.set_exception(error)
            else:
                assert isinstance(appended, asyncio.Future)
                appended.add_done_callback(partial(self._done, send))

    def _append(self, send: _Send) -> network.Future[RecordMetadata]:
        if isinstance(send.record, EncodedRecords):
            return self._producer.append_encoded(send.topic, send.partition, send.record)
        key, value, headers, timestamp_ms = send.record
        return self._producer.append(send.topic, send.partition, key, value, headers, timestamp_ms)

    def _done(self, send: _Send, appended: network.Future[RecordMetadata]) -> None:
        assert isinstance(appended, asyncio.Future)
        self._release(send)
        if not send.future.set_running_or_notify_cancel():
            return
        error = appended.exception()
        if error is None:
            send.future.set_result(appended.result())
        else:
            send.future.set_exception(error)

    def _release(self, send: _Send) -> None:
        with self._room:
            self._buffered_bytes -= send.size_bytes
            self._room.notify_all()
