"""Processors of confluent-kafka: each reads as a member of one group and writes in transactions.

A processor does what librdkafka's documentation asks of an application: it takes a batch, writes its results
and its offsets in one transaction, aborts what could not be written and reads it again from the committed
offsets, and makes another producer when its own cannot go on, or never comes back from a call. Partitions
are given up between transactions only, because rebalances happen while it polls.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

from pykraft.testing.processes.waits import PATIENCE_S, Deadline
from tests.narrowing import present

Result = TypeVar("Result")
BATCH = 10
TRANSACTION_TIMEOUT_MS = 3000
CALL_TIMEOUT_S = 20.0
HANGING_AFTER_S = CALL_TIMEOUT_S + 5


class Processor:
    """Copies the records of ``source`` to the same partitions of ``sink`` in a thread of its own."""

    def __init__(self, servers: str, name: str, group: str, source: str, sink: str) -> None:
        self._servers, self._name, self._sink = servers, name, sink
        self._stopping, self._crashing = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        self.assigned = threading.Event()
        self.commits = self.failures = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "partition.assignment.strategy": "range",
                "session.timeout.ms": 3000,
                "heartbeat.interval.ms": 300,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )

        # With a callback rebalances wait for the next poll.
        def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
            if partitions:
                self.assigned.set()

        self._consumer.subscribe([source], on_assign=on_assign)
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """After the transaction at hand."""
        self._end(self._stopping)

    def crash(self, feed: Callable[[], None]) -> None:
        """Leave a transaction open, records, offsets and all, and end. ``feed`` writes records to do it with:
        it may have processed all there were."""
        self._crashing.set()
        deadline = Deadline(PATIENCE_S)
        while self._thread.is_alive() and not deadline.passed:
            feed()
            self._thread.join(1.0)
        self._end(self._crashing)

    def _end(self, how: threading.Event) -> None:
        how.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"{self._name} hangs"
        if self.error is not None:
            raise self.error

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:  # for whoever ends it
            self.error = error
        finally:
            self._consumer.close()

    def _run(self) -> None:
        producer = self._new_producer()
        while not self._stopping.is_set():
            batch = [message for message in self._consumer.consume(BATCH, 0.1) if message.error() is None]
            if not batch:
                continue
            try:
                producer.begin_transaction()
                self._write(producer, batch)
                if self._crashing.is_set():
                    return
                producer.commit_transaction(CALL_TIMEOUT_S)
                self.commits += 1
            except ProducerHangsError:
                self.failures += 1
                producer = self._new_producer()
                self._rewind()
            except KafkaException as error:
                self.failures += 1
                if error.args[0].fatal() or not self._aborted(producer):
                    producer = self._new_producer()
                self._rewind()

    def _new_producer(self) -> Producer:
        def made() -> Producer:
            producer = Producer(
                {
                    "bootstrap.servers": self._servers,
                    "transactional.id": self._name,
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "log_level": 0,
                }
            )
            producer.init_transactions(CALL_TIMEOUT_S)
            return producer

        return insist(made)

    def _write(self, producer: Producer, batch: list[Message]) -> None:
        ends: dict[tuple[str, int], int] = {}
        for message in batch:
            partition = present(message.partition())
            producer.produce(self._sink, message.value(), partition=partition)
            ends[present(message.topic()), partition] = present(message.offset()) + 1
        positions = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
        group = self._consumer.consumer_group_metadata()
        send_offsets(producer, positions, group)

    @staticmethod
    def _aborted(producer: Producer) -> bool:
        with suppress(KafkaException):
            producer.abort_transaction(CALL_TIMEOUT_S)
            return True
        return False

    def _rewind(self) -> None:
        """Read on from what the group has committed."""
        owned = self._consumer.assignment()
        for committed in insist(lambda: self._consumer.committed(owned, CALL_TIMEOUT_S)) if owned else []:
            if committed.offset < 0:
                committed.offset = OFFSET_BEGINNING
            self._consumer.seek(committed)


class ProducerHangsError(Exception):
    """A call has outlived its own time limit: its producer is lost, and whatever waits in it."""


def send_offsets(producer: Producer, positions: list[TopicPartition], group: object) -> None:
    """Add offsets to the transaction; :class:`ProducerHangsError` if librdkafka forgets its time limit.

    librdkafka 2.16.1 waits for ever if the coordinator of the group, not connected just then, leaves the
    cluster's metadata: it drops the broker and keeps the request. Any broker that dies may bring that about.
    """
    outcome: Future[None] = Future()

    def call() -> None:
        try:
            producer.send_offsets_to_transaction(positions, group, CALL_TIMEOUT_S)
        except KafkaException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(None)

    threading.Thread(target=call, daemon=True).start()
    try:
        outcome.result(HANGING_AFTER_S)
    except TimeoutError:
        raise ProducerHangsError from None


def insist(call: Callable[[], Result]) -> Result:
    """The result of a call that may fail while brokers are away."""
    deadline = Deadline(PATIENCE_S)
    while True:
        try:
            return call()
        except KafkaException:
            if deadline.passed:
                raise
