"""One producer or consumer of librdkafka.

Four partitions, acks=all with one replica. Default batches hold up to 1,000,000 bytes or 10,000 records. The
consumer fetches ahead without a pause (`queued.min.messages=2000000`, `fetch.queue.backoff.ms=2`). Per GB of
values before compression; the time is bounded by the client. Before it is measured each load runs once, and
for 20 s on a new process.
"""

import itertools
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from comparison.cluster import Cluster, Cost
from comparison.frames import create_topic
from comparison.requests import end_offset
from comparison.turn import Figures, Turn
from comparison.values import values_of

_PARTITIONS = 4
_TIMES = 3
"""How often a load is measured; all of them together are the figure."""
_GIVE_UP_S = 120
_AT_A_TIME = 10_000
_BATCHES: dict[str, dict[str, Any]] = {"default": {}, "16 KiB": {"batch.size": 16384}}
_CODECS = ("none", "lz4", "zstd")


@dataclass(frozen=True)
class _Kind:
    size_name: str
    size_bytes: int
    records: int
    codec: str
    batches: str

    @property
    def name(self) -> str:
        return f"{self.size_name}, {self.codec}, {self.batches} batches"


_SIZES = (("100 B", 100, 2_000_000), ("1 KiB", 1024, 300_000), ("10 KiB", 10_240, 30_000))


def run(turn: Turn) -> None:
    with turn.cluster(1) as cluster:
        for (size_name, size_bytes, records), codec, batches in itertools.product(_SIZES, _CODECS, _BATCHES):
            kind = _Kind(size_name, size_bytes, records, codec, batches)
            turn.row(f"produce {kind.name}", partial(_produce, turn, cluster, kind))
            turn.row(f"consume {kind.name}", partial(_consume, turn, cluster, kind))


def _produce(turn: Turn, cluster: Cluster, kind: _Kind, figures: Figures) -> None:
    load = _Load(turn, cluster, kind)
    try:
        turn.warm_up(cluster, load.produce_anew)
        figures.per_gb(Cost.of_all(load.produce_anew() for _ in range(_TIMES)), _TIMES * load.size_bytes)
    finally:
        load.delete()


def _consume(turn: Turn, cluster: Cluster, kind: _Kind, figures: Figures) -> None:
    load = _Load(turn, cluster, kind)
    try:
        load.produce()
        turn.warm_up(cluster, load.consume)
        figures.per_gb(Cost.of_all(load.consume() for _ in range(_TIMES)), _TIMES * load.size_bytes)
    finally:
        load.delete()


class _Load:
    """One topic at a time; ``size_bytes`` of values are written to it, or read from its start."""

    def __init__(self, turn: Turn, cluster: Cluster, kind: _Kind) -> None:
        import confluent_kafka  # without it only these rows fail

        self._library = confluent_kafka
        self._cluster = cluster
        self._node = cluster.nodes[0]
        self._kind = kind
        self._turn = turn
        self._count = turn.scaled(kind.records)
        values = values_of(kind.size_bytes)
        self._values = list(itertools.islice(itertools.cycle(values), self._count))
        self.size_bytes = sum(map(len, self._values))
        self._address = {"bootstrap.servers": f"127.0.0.1:{self._node.port}"}
        self._create()

    def _create(self) -> None:
        self._topic = f"librdkafka-{self._turn.next_number()}"
        self._produced = 0
        create_topic([self._node], self._topic, _PARTITIONS, 1)

    def produce_anew(self) -> Cost:
        """Write to a new topic, whose log gets the memory of the last one's."""
        self.delete()
        self._create()
        cost = self._cluster.cost(self.produce)
        self._check()
        return cost

    def produce(self) -> None:
        errors: list[object] = []
        config = self._address | {"compression.type": self._kind.codec} | _BATCHES[self._kind.batches]
        config |= {
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: errors.append(error),
        }
        producer = self._library.Producer(config)
        for value in self._values:
            while True:
                try:
                    producer.produce(self._topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
        left = producer.flush(_GIVE_UP_S)
        if left or errors:
            raise RuntimeError(f"{left} records were not delivered, {len(errors)} failed: {errors[:1]}")
        self._produced += self._count

    def consume(self) -> Cost:
        """Read from the start; the time to connect is not counted."""
        config = self._address | {"group.id": "unused", "enable.auto.commit": False}
        config |= {
            "queued.min.messages": 2_000_000,
            "queued.max.messages.kbytes": 1 << 20,
            "fetch.queue.backoff.ms": 2,
        }
        consumer = self._library.Consumer(config)
        try:
            consumer.list_topics(self._topic, timeout=_GIVE_UP_S)
            places = [self._library.TopicPartition(self._topic, index, 0) for index in range(_PARTITIONS)]
            consumer.assign(places)
            return self._cluster.cost(partial(self._read, consumer))
        finally:
            consumer.close()

    def _read(self, consumer: Any) -> None:
        left, deadline = self._count, time.monotonic() + _GIVE_UP_S
        while left > 0:
            messages = consumer.consume(min(left, _AT_A_TIME), timeout=1)
            left -= sum(message.error() is None for message in messages)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} records were not read")

    def _check(self) -> None:
        ends = [end_offset(self._node.port, self._topic, index) for index in range(_PARTITIONS)]
        if sum(ends) != _PARTITIONS + self._produced:  # each partition begins with the record that probed it
            raise RuntimeError(f"the partitions end at {ends} after {self._produced} records")

    def delete(self) -> None:
        self._cluster.delete_topic(self._topic)
