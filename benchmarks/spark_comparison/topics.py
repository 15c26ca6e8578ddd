"""Topics to read: records with keys of 16 bytes and values like log lines, in several partitions."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from comparison.values import values_of
from confluent_kafka import Producer

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import NewTopic

KEY_BYTES: Final = 16
PARTITIONS: Final = 4
BATCH_BYTES: Final = 64 << 10
"""The most that the producer puts into a batch."""

_NAMES: Final = {100: "100 B", 1024: "1 KiB", 10240: "10 KiB"}


@dataclass(frozen=True, slots=True)
class Load:
    """``count`` records of ``value_bytes`` on average, compressed by ``codec``."""

    value_bytes: int
    codec: str
    count: int

    @property
    def name(self) -> str:
        return f"{_NAMES[self.value_bytes]}, {self.codec}"

    @property
    def topic(self) -> str:
        return f"load-{self.value_bytes}-{self.codec}"

    @property
    def size_bytes(self) -> int:
        return self.count * (KEY_BYTES + self.value_bytes)


def loads(*, quick: bool) -> list[Load]:
    """Of 100 B, 1 KiB and 10 KiB, some 200 to 400 MB each."""
    counts = {100: 2_000_000, 1024: 400_000, 10240: 40_000}
    share = 50 if quick else 1
    return [
        Load(size, codec, count // share)
        for size, count in counts.items()
        for codec in ("none", "lz4", "zstd")
    ]


def create_topic(servers: str, name: str, partitions: int) -> None:
    with AdminClient(servers) as admin:
        admin.create_topics([NewTopic(name, partitions, 1, configs={"retention.ms": "-1"})])[0].check()


def delete_topic(servers: str, name: str) -> None:
    with AdminClient(servers) as admin:
        admin.delete_topics([name])[0].check()


def fill(servers: str, load: Load) -> None:
    create_topic(servers, load.topic, PARTITIONS)
    values = values_of(load.value_bytes)
    produce(
        servers,
        load.topic,
        load.codec,
        (
            (number // 500 % PARTITIONS, b"%016d" % number, values[number % len(values)])
            for number in range(load.count)
        ),
    )


def produce(servers: str, topic: str, codec: str, records: Iterable[tuple[int, bytes, bytes]]) -> None:
    """``records``: partition, key, value."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "linger.ms": 20,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    failed: list[Any] = []

    def done(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    for number, (partition, key, value) in enumerate(records):
        while True:
            try:
                producer.produce(topic, value, key, partition, on_delivery=done)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    if failed:
        raise RuntimeError(f"{len(failed)} records were not written: {failed[0]}")
