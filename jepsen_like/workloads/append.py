"""The append workload: idempotent producers, pollers during the run, and a last read of everything.

Producers are confluent-kafka clients with ``acks=all``; every value is unique and names its producer and its
place in the producer's order. Now and then a producer is abandoned and another takes its place. Pollers are
assigned, not subscribed, so that what they see must be gapless and in order. Decides what an answer means:
only an error that excludes that the record was written is a ``fail``; every other error is ``info``.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from pykraft.jepsen_like.awaiting import Deadline
from pykraft.jepsen_like.history import HistoryWriter

TICK_S = 0.02
MAX_POLLED = 500
PIPELINED_REQUESTS = 5
SETTLE_TIMEOUT_S = 10.0
FINAL_CHUNK = 5_000

# The broker refused the record itself: it cannot be in the log.
REFUSED = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD})

CLIENT_SETTINGS: Mapping[str, Any] = {
    "log_level": 0,
    "socket.timeout.ms": 5_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 1_000,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
}
PRODUCER_SETTINGS: Mapping[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "message.timeout.ms": 120_000,
    "request.timeout.ms": 5_000,
    "queue.buffering.max.messages": 20_000,
}
CONSUMER_SETTINGS: Mapping[str, Any] = {
    "group.id": "append-unused",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
    "fetch.queue.backoff.ms": 10,
}


@dataclass(frozen=True, slots=True)
class AppendConfig:
    """``sends_per_s`` is for all producers together; ``abandon_every_s`` the mean life of a producer.

    The first ``pipelined_producers`` have five requests in flight, the others one: see ``checkers/resends``.
    """

    topic: str = "append"
    partitions: int = 6
    producers: int = 3
    consumers: int = 2
    sends_per_s: int = 1_500
    abandon_every_s: float = 25.0
    pipelined_producers: int = 1


class AppendWorkload:
    """``start``, then ``stop_producers``, ``final_read``, ``stop_consumers``; all waits are bounded."""

    def __init__(
        self, bootstrap_servers: str, config: AppendConfig, seed: int, history: HistoryWriter
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._config = config
        self._history = history
        self._stop_producing = threading.Event()
        self._stop_consuming = threading.Event()
        self._flush_timeout_s = 60.0
        self._lock = threading.Lock()
        self._acknowledged = 0
        self._end_offsets = [0] * config.partitions
        self._rng = random.Random(seed)
        self._producers = [
            threading.Thread(target=self._produce, args=(n, self._rng.random()), daemon=True)
            for n in range(config.producers)
        ]
        self._consumers = [
            threading.Thread(target=self._poll, args=(f"consumer-{n}", n), daemon=True)
            for n in range(config.consumers)
        ]

    @property
    def acknowledged(self) -> int:
        """Sends answered ``ok`` so far."""
        return self._acknowledged

    def start(self) -> None:
        for thread in (*self._consumers, *self._producers):
            thread.start()

    def stop_producers(self, timeout_s: float = 60.0) -> bool:
        """Send no more and wait for the outstanding answers; False if some never came."""
        self._flush_timeout_s = timeout_s
        self._stop_producing.set()
        deadline = Deadline(timeout_s + 10.0)
        for thread in self._producers:
            thread.join(deadline.left_s())
        return not any(thread.is_alive() for thread in self._producers)

    def stop_consumers(self) -> None:
        self._stop_consuming.set()
        for thread in self._consumers:
            thread.join(15.0)

    def final_read(self, timeout_s: float = 30.0) -> list[int]:
        """Read every partition from the start up to the high watermark; partitions where that failed.

        ``timeout_s`` is for each partition, so that one that is stuck does not hide the others.
        """
        return [p for p in range(self._config.partitions) if not self._read_partition(p, timeout_s)]

    # --- producers -----------------------------------------------------------------------------------------

    def _produce(self, number: int, draw: float) -> None:
        rng = random.Random(draw)
        config, name = self._config, f"p{number}"
        in_flight = PIPELINED_REQUESTS if number < config.pipelined_producers else 1
        life, sequence = 0, 0
        while not self._stop_producing.is_set():
            process = f"{name}.{life}"
            fatal = threading.Event()
            producer = self._new_producer(process, in_flight, fatal)
            death = time.monotonic() + rng.uniform(0.4, 1.6) * config.abandon_every_s
            due = time.monotonic()
            while not self._stop_producing.is_set() and time.monotonic() < death and not fatal.is_set():
                due += TICK_S
                for _ in range(max(1, round(config.sends_per_s * TICK_S / config.producers))):
                    value = f"{name}-{sequence}"
                    if not self._send(producer, process, rng.randrange(config.partitions), value):
                        break
                    sequence += 1
                producer.poll(0)
                while (left_s := due - time.monotonic()) > 0:
                    producer.poll(left_s)  # returns as soon as it has delivered something
                due = max(due, time.monotonic() - 1.0)  # after a stall, catch up for a second at most
            if self._stop_producing.is_set() and not fatal.is_set():
                producer.flush(self._flush_timeout_s)
            producer.purge(in_queue=True, in_flight=True)  # what was not answered by now is answered `info`
            producer.flush(5.0)
            life += 1

    def _new_producer(self, process: str, in_flight: int, fatal: threading.Event) -> Producer:
        settings = {
            "bootstrap.servers": self._bootstrap_servers,
            "client.id": process,
            "error_cb": partial(self._note_fatal, process, fatal),
            "max.in.flight.requests.per.connection": in_flight,
            **CLIENT_SETTINGS,
            **PRODUCER_SETTINGS,
        }
        self._history.record("info", process, "producer", detail={"max_in_flight": in_flight})
        return Producer(settings)

    def _send(self, producer: Producer, process: str, partition: int, value: str) -> bool:
        """Hand one value to the client; False, with nothing recorded, while its queue is full."""
        key = f"{self._config.topic}-{partition}"
        sent_us = self._history.now_us()
        try:
            on_delivery = partial(self._answered, process, key, value)
            producer.produce(self._config.topic, value, partition=partition, on_delivery=on_delivery)
        except BufferError:
            return False
        except KafkaException as error:
            self._history.record("invoke", process, "send", time_us=sent_us, key=key, value=value)
            self._history.record("fail", process, "send", key=key, value=value, error=_name(error.args[0]))
            return True
        self._history.record("invoke", process, "send", time_us=sent_us, key=key, value=value)
        return True

    def _answered(
        self, process: str, key: str, value: str, error: KafkaError | None, message: Message
    ) -> None:
        if error is not None:
            kind = "fail" if error.code() in REFUSED else "info"
            self._history.record(kind, process, "send", key=key, value=value, error=_name(error))  # type: ignore[arg-type]
            return
        offset = message.offset()
        known = offset if offset is not None and offset >= 0 else None
        self._history.record("ok", process, "send", key=key, value=value, offset=known)
        partition = message.partition()
        with self._lock:
            self._acknowledged += 1
            if known is not None and partition is not None:
                self._end_offsets[partition] = max(self._end_offsets[partition], known + 1)

    def _note_fatal(self, process: str, fatal: threading.Event, error: KafkaError) -> None:
        """A fatal error means that the broker's idea of the producer's sequence is wrong: a finding."""
        if error.fatal() and not fatal.is_set():
            fatal.set()
            self._history.record("info", process, "producer-fatal", error=error.str())

    # --- consumers -----------------------------------------------------------------------------------------

    def _new_consumer(self, name: str) -> Consumer:
        settings = {
            "bootstrap.servers": self._bootstrap_servers,
            "client.id": name,
            "error_cb": _ignore_error,
            **CLIENT_SETTINGS,
            **CONSUMER_SETTINGS,
        }
        return Consumer(settings)

    def _poll(self, name: str, number: int) -> None:
        """Every poller follows every other partition, so that each partition has a poller."""
        config = self._config
        mine = [p for p in range(config.partitions) if p % config.consumers == number % config.consumers]
        consumer = self._new_consumer(name)
        consumer.assign([TopicPartition(config.topic, partition, 0) for partition in mine])
        self._history.record("ok", name, "assign", detail={"topic": config.topic, "partitions": mine})
        while not self._stop_consuming.is_set():
            asked_us = self._history.now_us()
            self._record_polled(name, "poll", asked_us, consumer.consume(MAX_POLLED, timeout=0.2))
        consumer.close()

    def _record_polled(self, name: str, op: str, asked_us: int, messages: list[Message]) -> int:
        """Write what one poll returned, a pair of events for each partition; the number of records."""
        by_key: dict[str, list[tuple[int, str]]] = {}
        for message in messages:
            key = f"{message.topic()}-{message.partition()}"
            error = message.error()
            offset, value = message.offset(), message.value()
            if error is not None:
                if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
                    self._history.record("info", name, op, key=key, offset=offset, error=str(error))
                continue
            assert offset is not None
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            by_key.setdefault(key, []).append((offset, text))
        for key, records in by_key.items():
            self._history.record("invoke", name, op, time_us=asked_us, key=key)
            self._history.record("ok", name, op, key=key, records=records)
        return sum(map(len, by_key.values()))

    def _read_partition(self, partition: int, timeout_s: float) -> bool:
        """Read up to a high watermark that covers every acknowledged offset; False if it was not reached.

        A new leader may for a moment know only an older high watermark, so one that lies below an
        acknowledgement is asked for again for a while; if it stays there, the checker tells what is missing.
        """
        deadline, settled = Deadline(timeout_s), Deadline(SETTLE_TIMEOUT_S)
        topic, name = self._config.topic, f"final-{partition}"
        consumer = self._new_consumer(name)
        position, end = 0, -1
        try:
            consumer.assign([TopicPartition(topic, partition, 0)])
            self._history.record("ok", name, "assign", detail={"topic": topic, "partitions": [partition]})
            while not deadline.passed:
                if position >= end:
                    end = max(end, self._high_watermark(consumer, partition))
                    if position >= end >= (0 if settled.passed else self._end_offsets[partition]):
                        break
                asked_us = self._history.now_us()
                messages = consumer.consume(FINAL_CHUNK, timeout=0.2)
                self._record_polled(name, "final", asked_us, messages)
                offsets = [o for m in messages if m.error() is None and (o := m.offset()) is not None]
                position = max(offsets, default=position - 1) + 1
        finally:
            consumer.close()
        if position >= end >= 0:
            self._history.record("ok", name, "final-end", key=f"{topic}-{partition}", offset=position)
        return position >= end >= self._end_offsets[partition]

    def _high_watermark(self, consumer: Consumer, partition: int) -> int:
        try:
            found = TopicPartition(self._config.topic, partition)
            _, high = consumer.get_watermark_offsets(found, timeout=2.0, cached=False)
        except KafkaException:
            return -1
        return int(high)


def _ignore_error(error: KafkaError) -> None:
    """Broker connections break all the time here; what matters arrives with the messages."""


def _name(error: KafkaError) -> str:
    return str(error.name())
