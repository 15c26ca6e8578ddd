"""Consumers of librdkafka in threads of this process, and a process that produces at a steady rate."""

import contextlib
import multiprocessing
import threading
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from typing import Any, Final

from comparison.cluster import Cluster
from comparison.frames import connect, produce_frame
from comparison.requests import check_produced
from comparison.values import batch_of
from coordination.fleet import Shares

from pykraft.testing.processes.waits import wait_until

CONSUMER: Final = {"group.protocol": "consumer"}
EAGER: Final = {"group.protocol": "classic", "partition.assignment.strategy": "range"}

_AT_A_TIME: Final = 1_000
_POLL_S: Final = 0.05
_PAUSE_S: Final = 0.05
_BATCH_BYTES: Final = 4_000
_VALUE_BYTES: Final = 100


class Reader(threading.Thread):
    """One consumer. ``counts`` are the records of each poll with its time, ``seen`` their partitions."""

    def __init__(self, cluster: Cluster, group: str, topic: str, protocol: dict[str, str]) -> None:
        super().__init__(daemon=True)
        import confluent_kafka  # without it only these rows fail

        config = {
            "bootstrap.servers": f"127.0.0.1:{cluster.port}", "group.id": group,
            "auto.offset.reset": "earliest", "log_level": 3,
        } | protocol  # fmt: skip
        self.owned: frozenset[int] = frozenset()
        self.counts: list[tuple[float, int]] = []
        self.seen: set[int] = set()
        self._topic = topic
        self._consumer: Any = confluent_kafka.Consumer(config)
        self._stopped = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._consumer.subscribe([self._topic], on_assign=self._gain, on_revoke=self._lose)
            while not self._stopped.is_set():
                messages = self._consumer.consume(_AT_A_TIME, _POLL_S)
                good = [message for message in messages if message.error() is None]
                self.counts.append((time.monotonic(), len(good)))
                self.seen.update(message.partition() for message in good)
            self._consumer.close()
        except Exception as error:
            self._error = error

    def stop(self) -> None:
        """Leave the group; the thread ends once that is done."""
        self._stopped.set()

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def _gain(self, _: Any, partitions: list[Any]) -> None:
        self.owned |= {one.partition for one in partitions}

    def _lose(self, _: Any, partitions: list[Any]) -> None:
        self.owned -= {one.partition for one in partitions}


def are_stable(readers: list[Reader], partitions: int) -> bool:
    shares = Shares(partitions)
    for reader in readers:
        reader.check()
        shares.enter()
        shares.change(frozenset(), reader.owned)
    return shares.are_final()


def consumed(readers: list[Reader], begin_s: float, end_s: float) -> int:
    """Records that arrived in that time."""
    return sum(count for reader in readers for at_s, count in list(reader.counts) if begin_s <= at_s < end_s)


def longest_silence_s(readers: list[Reader], begin_s: float, end_s: float) -> float:
    """The longest time in which no reader got a record."""
    times = sorted(
        at_s for reader in readers for at_s, count in list(reader.counts) if count and begin_s <= at_s < end_s
    )
    return max(late - early for early, late in zip([begin_s, *times], [*times, end_s], strict=True))


@contextlib.contextmanager
def reading(
    cluster: Cluster, group: str, topic: str, partitions: int, protocol: dict[str, str], count: int
) -> Iterator[list[Reader]]:
    """A stable group; whoever is added to the list is stopped with the others."""
    readers = [Reader(cluster, group, topic, protocol) for _ in range(count)]
    try:
        for reader in readers:
            reader.start()
        wait_until(f"{group} to be stable", lambda: are_stable(readers, partitions))
        yield readers
    finally:
        for reader in readers:
            reader.stop()
        for reader in readers:
            reader.join()


@contextlib.contextmanager
def steady_production(cluster: Cluster, topic: str, partitions: int) -> Iterator[None]:
    """A process of its own writes a small batch to every partition, 20 times a second."""
    spawn = multiprocessing.get_context("spawn")
    stopped = spawn.Event()
    process = spawn.Process(target=_produce, args=(cluster.port, topic, partitions, stopped), daemon=True)
    process.start()
    try:
        yield
    finally:
        stopped.set()
        process.join()


def _produce(port: int, topic: str, partitions: int, stopped: Event) -> None:
    client = connect(port)
    batch, _ = batch_of(_BATCH_BYTES, _VALUE_BYTES)
    frames = b"".join(produce_frame(topic, index, batch, 1) for index in range(partitions))
    due_s = time.monotonic()
    while not stopped.wait(max(0.0, due_s - time.monotonic())):
        client.socket.sendall(frames)
        for _ in range(partitions):
            check_produced(client.answer())
        due_s += _PAUSE_S
