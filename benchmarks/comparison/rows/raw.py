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
from dataclasses import dataclass
from functools import partial

from comparison.cluster import Cluster, Cost
from comparison.frames import (
    GB,
    MIB,
    RECORD_BYTES,
    connect,
    create_topic,
    in_parallel,
    produce_frame,
    pump,
    replay_fetch,
)
from comparison.requests import end_offset
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
    load = _Load(turn, cluster, size)
    try:
        turn.warm_up(cluster, load.produce_anew)
        _note(figures, load, Cost.of_all(load.produce_anew() for _ in range(_TIMES)), _TIMES)
    finally:
        load.delete()


def _fetch(turn: Turn, cluster: Cluster, size: _Size, figures: Figures) -> None:
    load = _Load(turn, cluster, size)
    try:
        load.produce()
        turn.warm_up(cluster, load.fetch)
        _note(figures, load, Cost.of_all(cluster.cost(load.fetch) for _ in range(_TIMES)), _TIMES)
    finally:
        load.delete()


def _note(figures: Figures, load: _Load, cost: Cost, times: int) -> None:
    requests = times * load.requests
    if load.size.is_small:
        figures.per_request(cost, requests)
    else:
        figures.per_gb(cost, requests * len(load.batch))


class _Load:
    """One topic at a time; each load moves ``requests`` batches."""

    def __init__(self, turn: Turn, cluster: Cluster, size: _Size) -> None:
        self.size = size
        self._cluster = cluster
        self._node = cluster.nodes[0]
        self._count = turn.scaled(size.requests) // len(_PARTITIONS)
        self.requests = self._count * len(_PARTITIONS)
        self.batch, self._records = (record_of(size.bytes), 1) if size.is_small else batch_of(size.bytes)
        self._turn = turn
        self._create()

    def _create(self) -> None:
        self._topic = f"raw-{self.size.bytes}-{self._turn.next_number()}"
        self._produced = 0
        create_topic([self._node], self._topic, len(_PARTITIONS), 1)

    def produce_anew(self) -> Cost:
        """Write to a new topic, whose log gets the memory of the last one's."""
        self.delete()
        self._create()
        cost = self._cluster.cost(self.produce)
        self._check()
        return cost

    def produce(self) -> None:
        frames = [produce_frame(self._topic, index, self.batch, 1) for index in _PARTITIONS]
        in_parallel([partial(self._pump, frame) for frame in frames])
        self._produced += self._count * self._records

    def _pump(self, frame: bytes) -> int:
        return pump(self._node.port, lambda _: frame, self._count, self.size.depth)

    def fetch(self) -> None:
        """From the first batch on; the record before it probed whether the topic was ready."""
        received = in_parallel(
            [
                partial(
                    replay_fetch,
                    self._node.port,
                    self._topic,
                    index,
                    len(self.batch),
                    self._records,
                    self._count,
                )
                for index in _PARTITIONS
            ]
        )
        if sum(received) < self.requests * len(self.batch):
            raise RuntimeError(f"fetched {sum(received)} bytes of {self.requests * len(self.batch)}")

    def _check(self) -> None:
        for index in _PARTITIONS:
            end = end_offset(self._node.port, self._topic, index)
            if end != 1 + self._produced:
                raise RuntimeError(f"partition {index} ends at {end}, not {1 + self._produced}")

    def delete(self) -> None:
        self._cluster.delete_topic(self._topic)


def _metadata(turn: Turn, cluster: Cluster, figures: Figures) -> None:
    """Latency of a small request while two producers send as fast as they can."""
    load = _Load(turn, cluster, _SIZES[-1])
    request = frame_of(cluster_messages.MetadataRequest(topics=[]), 9)
    latencies: list[float] = []
    try:
        with connect(cluster.port) as client, ThreadPoolExecutor(1) as pool:
            bulk = pool.submit(load.produce)
            while not bulk.done() or len(latencies) < 2:
                started = time.perf_counter()
                client.socket.sendall(request)
                client.answer()
                latencies.append(time.perf_counter() - started)
                time.sleep(0.002)
            bulk.result()
    finally:
        load.delete()
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
