"""Prebuilt batches over plain sockets.

Uncompressed batches of records of 1 KiB, acks=1, two connections to two partitions; produce: 5 requests in
flight on each (20 of 1 KiB), fetch: 2. A batch of 1 KiB is one record. Per GB of batches, or per request.
Before it is measured each load runs once, and for 20 s on a new process; a produce load always
writes to a new topic.
"""

from __future__ import annotations

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from comparison.cluster import Cluster, Cost
from comparison.frames import GB, MIB, RECORD_BYTES, connect, create_topic, produce_frame
from comparison.load import Load, load, load_fetches
from comparison.requests import check_produced, end_offset
from comparison.systems import Pykraft
from comparison.turn import Figures, Turn
from comparison.values import batch_of, record_of

from pykraft.kafka_protocol.messages import cluster as cluster_messages
from pykraft.testing.processes.listeners import LOOPBACK
from pykraft.testing.processes.wire_client import frame_of

_PARTITIONS = (0, 1)
_TIMES = 3
"""How often a load is measured; all of them together are the figure."""


@dataclass(frozen=True)
class _Size:
    name: str
    bytes: int
    requests: int
    depth: int

    @property
    def is_small(self) -> bool:
        """Whether a batch is one record, and the cost is that of a request."""
        return self.bytes <= RECORD_BYTES


_SIZES = (
    _Size("1 KiB", RECORD_BYTES, 100_000, 20),
    _Size("16 KiB", 16 << 10, 20_000, 5),
    _Size("64 KiB", 64 << 10, 5_000, 5),
    _Size("1 MiB", MIB - 512, 300, 5),
)
"""The largest is a little less than the limit of a topic, ``max.message.bytes``."""


def run(turn: Turn) -> None:
    with turn.cluster(1) as cluster:
        for size in _SIZES:
            turn.row(f"produce {size.name}", partial(_produce, turn, cluster, size))
            turn.row(f"fetch {size.name}", partial(_fetch, turn, cluster, size))
        turn.row("Metadata beside produce 1 MiB", partial(_metadata, turn, cluster))
    if turn.system.name == Pykraft.name:
        turn.row("a socket without a broker", partial(_socket, turn))


def _produce(turn: Turn, cluster: Cluster, size: _Size, figures: Figures) -> None:
    topic = _Topic(turn, cluster, size)
    try:
        turn.warm_up(cluster, topic.produce_anew)
        _note(figures, topic, Cost.of_all(topic.produce_anew() for _ in range(_TIMES)), _TIMES)
    finally:
        topic.delete()


def _fetch(turn: Turn, cluster: Cluster, size: _Size, figures: Figures) -> None:
    topic = _Topic(turn, cluster, size)
    try:
        topic.produce()
        with topic.fetchers() as fetchers:
            fetch = partial(topic.fetch, fetchers)
            turn.warm_up(cluster, fetch)
            _note(figures, topic, Cost.of_all(cluster.cost(fetch) for _ in range(_TIMES)), _TIMES)
    finally:
        topic.delete()


def _note(figures: Figures, topic: _Topic, cost: Cost, times: int) -> None:
    requests = times * topic.requests
    if topic.size.is_small:
        figures.per_request(cost, requests)
    else:
        figures.per_gb(cost, requests * len(topic.batch))


class _Topic:
    """One at a time; each load moves ``requests`` batches."""

    def __init__(self, turn: Turn, cluster: Cluster, size: _Size) -> None:
        self.size = size
        self._cluster = cluster
        self._node = cluster.nodes[0]
        self._each = turn.scaled(size.requests) // len(_PARTITIONS)
        self.requests = self._each * len(_PARTITIONS)
        self.batch, self._records = (record_of(size.bytes), 1) if size.is_small else batch_of(size.bytes)
        self._turn = turn
        self._create()

    def _create(self) -> None:
        self._name = f"raw-{self.size.bytes}-{self._turn.next_number()}"
        create_topic([self._node], self._name, len(_PARTITIONS), 1)

    def produce_anew(self) -> Cost:
        """Write to a new topic, whose log gets the memory of the last one's."""
        self.delete()
        self._create()
        with self._producers() as producers:
            cost = self._cluster.cost(lambda: producers.run(self.requests))
        for index in _PARTITIONS:
            end = end_offset(self._node.port, self._name, index)
            if end != 1 + self._each * self._records:
                raise RuntimeError(f"partition {index} ends at {end}, not {1 + self._each * self._records}")
        return cost

    def produce(self) -> None:
        with self._producers() as producers:
            producers.run(self.requests)

    def _producers(self) -> AbstractContextManager[Load]:
        frames = [produce_frame(self._name, index, self.batch, 1) for index in _PARTITIONS]
        return load(self._node.port, frames, check_produced, depth=self.size.depth)

    def fetchers(self) -> AbstractContextManager[Load]:
        return load_fetches(self._node.port, self._name, _PARTITIONS, len(self.batch), self._records)

    def fetch(self, fetchers: Load) -> None:
        received_bytes = fetchers.run(self.requests).received_bytes
        if received_bytes < self.requests * len(self.batch):
            raise RuntimeError(f"fetched {received_bytes} bytes of {self.requests * len(self.batch)}")

    def delete(self) -> None:
        self._cluster.delete_topic(self._name)


def _metadata(turn: Turn, cluster: Cluster, figures: Figures) -> None:
    """Latency of a small request while two producers send as fast as they can."""
    topic = _Topic(turn, cluster, _SIZES[-1])
    request = frame_of(cluster_messages.MetadataRequest(topics=[]), 9)
    latencies: list[float] = []
    try:
        with connect(cluster.port) as client, ThreadPoolExecutor(1) as pool:
            bulk = pool.submit(topic.produce)
            while not bulk.done() or len(latencies) < 2:
                started = time.perf_counter()
                client.socket.sendall(request)
                client.answer()
                latencies.append(time.perf_counter() - started)
                time.sleep(0.002)
            bulk.result()
    finally:
        topic.delete()
    figures.latencies(latencies)


def _socket(turn: Turn, figures: Figures) -> None:
    """From one process to another over loopback, 1 MiB at a time: what the machine can do."""
    total_bytes = turn.scaled(10_000) * MIB
    listener = socket.create_server((LOOPBACK, 0))
    child = os.fork()
    if child == 0:
        sender = socket.create_connection(listener.getsockname())
        block = bytes(MIB)
        for _ in range(total_bytes // MIB):
            sender.sendall(block)
        sender.close()
        os._exit(0)
    connection, _ = listener.accept()
    view = memoryview(bytearray(MIB))
    started = time.monotonic()
    while connection.recv_into(view):
        pass
    figures.note("wall", "s/GB", (time.monotonic() - started) / total_bytes * GB)
    connection.close()
    listener.close()
    os.waitpid(child, 0)
