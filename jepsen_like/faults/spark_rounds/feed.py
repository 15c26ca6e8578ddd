"""Writes numbered records all the time, and keeps what was acknowledged."""

import threading
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Final, Self

from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.errors import NotWrittenError
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_client.producer.batch import ProducerConfig, RecordMetadata
from pykraft.kafka_client.producer.blocking import BlockingProducer

PER_S: Final = 400
_PAUSE_S: Final = 0.05


class Feed:
    """``partitions`` may grow while it runs; records take turns among them. ``sent``: numbers below it were
    sent, ``acknowledged``: number and place. Leaving the block ends it."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        client = ClientConfig(parse_bootstrap_servers(bootstrap_servers), "feed", request_timeout_ms=5_000)
        self._producer = BlockingProducer(client, ProducerConfig())
        self._topic = topic
        self.partitions = partitions
        self.sent = 0
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self._running = threading.Event()
        self._ended = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._write, name="feed")
        self._thread.start()

    def resume(self) -> None:
        self._running.set()

    def pause(self) -> None:
        """Every record that was sent has its answer when this returns."""
        self._running.clear()
        with self._turn:
            self._producer.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._running.set()
        self._thread.join()
        self._producer.close(0)

    def _write(self) -> None:
        while not self._ended.wait(_PAUSE_S):
            self._running.wait()
            with self._turn:
                for _ in range(round(PER_S * _PAUSE_S)):
                    if self._running.is_set() and not self._ended.is_set():
                        self._send()

    def _send(self) -> None:
        """A record that the producer has no room for counts as sent, and not as acknowledged."""
        number, self.sent = self.sent, self.sent + 1
        partition = number % self.partitions
        with suppress(NotWrittenError):
            future = self._producer.send(self._topic, partition, None, b"%d" % number)
            future.add_done_callback(partial(self._answered, number, partition))

    def _answered(self, number: int, partition: int, answer: Future[RecordMetadata]) -> None:
        if answer.exception() is None and (offset := answer.result().offset) is not None:
            self.acknowledged[number] = partition, offset
