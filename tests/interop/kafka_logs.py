"""Logs that Apache Kafka writes and compacts, and what a reader of committed records must find in them."""

import random
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pykraft.jepsen_like.faults.clusters.process_cluster import HOST
from pykraft.runtime.free_ports import free_ports
from pykraft.testing.processes.node_process import NodeProcess
from pykraft.testing.processes.waits import Deadline, wait_until
from tests.interop.java_jars import KafkaTools

PATIENCE_S: Final = 60
CLUSTER_ID: Final = "JEXY6aqzQY-32P5TStzaFg"
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
COMPACT: Final = {"cleanup.policy": "compact", "internal.segment.bytes": "16384"}
KEYS: Final = 60

Committed = dict[int, tuple[bytes, bytes | None]]
"""Offset → key and value of each committed record."""


class KafkaBroker:
    """A node of Apache Kafka with one log directory, ``data``. Its cleaner runs all the time, and compacts
    what a topic's ``min.cleanable.dirty.ratio`` lets it.
    """

    def __init__(self, tools: KafkaTools, directory: Path) -> None:
        self.data = directory / "data"
        self._tools = tools
        self._properties = directory / "server.properties"
        client, controller = free_ports(2)
        self._port = client
        self.address = f"{HOST}:{client}"
        self._values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{HOST}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "log.cleaner.backoff.ms": "50",
            "log.cleaner.min.cleanable.ratio": "1",
            "log.cleaner.dedupe.buffer.size": str(1 << 21),
            "log.cleaner.io.buffer.size": str(1 << 14),
        }
        java = ("java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{tools.jars}/*")
        command = (*java, "kafka.Kafka", str(self._properties))
        self._process = NodeProcess(1, command, directory / "kafka.log")

    def partition(self, topic: str) -> Path:
        """The directory of its first partition."""
        return self.data / f"{topic}-0"

    def start(self, **values: str) -> None:
        """Start it with these settings changed; names have ``_`` in place of ``.``."""
        self._values.update({name.replace("_", "."): value for name, value in values.items()})
        lines = (f"{name}={value}\n" for name, value in self._values.items())
        self._properties.write_text("".join(lines), encoding="utf-8")
        if not self.data.exists():
            tool = "kafka.tools.StorageTool"
            self._tools.check(tool, "format", "-t", CLUSTER_ID, "-c", self._properties)
        self._process.start()
        wait_until("Kafka listens", self._listens, PATIENCE_S)

    def _listens(self) -> bool:
        assert self._process.unordered_exit is None, self._process.output_tail()
        try:
            socket.create_connection((HOST, self._port), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        self._process.stop(PATIENCE_S)
        assert (self.data / ".kafka_cleanshutdown").exists(), self._process.output_tail()

    def kill(self) -> None:
        self._process.kill()

    def create_topic(self, topic: str, **configs: str) -> None:
        given = COMPACT | {name.replace("_", "."): value for name, value in configs.items()}
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(topic, 1, 1, config=given)])[topic].result(PATIENCE_S)

    def read_committed(self, topic: str) -> Committed:
        """What Kafka's own fetches give a consumer that reads the topic from its start."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        found: Committed = {}
        deadline = Deadline(PATIENCE_S)
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            while True:
                message = consumer.poll(PATIENCE_S)
                assert message is not None, "nothing was read"
                error = message.error()
                if error is None:
                    note(found, message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:  # of a broker that has just started
                    assert not deadline.passed, error
        finally:
            consumer.close()


def note(found: Committed, message: Message) -> None:
    offset, key = message.offset(), message.key()
    assert offset is not None and key is not None
    found[offset] = _bytes(key), None if message.value() is None else _bytes(message.value())


def _bytes(value: str | bytes | None) -> bytes:
    assert isinstance(value, bytes)
    return value


@contextmanager
def kafka(tools: KafkaTools, directory: Path) -> Iterator[KafkaBroker]:
    """A broker that is not yet started. Nothing of it runs after the block."""
    broker = KafkaBroker(tools, directory)
    try:
        yield broker
    finally:
        broker.kill()


@dataclass
class Writer:
    """Writes to a topic as several producers, and notes what is committed."""

    address: str
    topic: str
    rng: random.Random

    def __post_init__(self) -> None:
        self.committed: Committed = {}
        self._number = 0

    def producer(self, codec: str = "none", **settings: Any) -> Producer:
        """An idempotent producer, transactional if ``transactional_id`` is set."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer(
            {
                "bootstrap.servers": self.address,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 5,
            }
            | given
        )

    def send(self, producer: Producer, count: int, into: Committed) -> None:
        """Some records, one in eight a tombstone, acknowledged on return."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            note(into, message)

        for _ in range(count):
            self._number += 1
            key = b"key-%d" % self.rng.randrange(KEYS)
            value = b"%d" % self._number * self.rng.randrange(1, 60) if self.rng.randrange(8) else None
            producer.produce(
                self.topic, value, key, headers={"n": b"%d" % self._number}, on_delivery=delivered
            )
        assert producer.flush(PATIENCE_S) == 0

    def write(self, rounds: int) -> None:
        """In turns: batches of every codec, and transactions, committed and aborted, among other records."""
        plain = {codec: self.producer(codec) for codec in CODECS}
        transactional = []
        for number, codec in enumerate(CODECS):
            producer = self.producer(codec, transactional_id=f"{self.topic}-{number}")
            producer.init_transactions(PATIENCE_S)
            transactional.append(producer)
        for _ in range(rounds):
            self.send(plain[self.rng.choice(CODECS)], self.rng.randrange(1, 30), self.committed)
            open_ones = self.rng.sample(transactional, 2)
            sent: list[Committed] = [{}, {}]
            for producer in open_ones:
                producer.begin_transaction()
            for _ in range(self.rng.randrange(1, 4)):
                which = self.rng.randrange(2)
                self.send(open_ones[which], self.rng.randrange(1, 12), sent[which])
                self.send(plain[self.rng.choice(CODECS)], self.rng.randrange(1, 4), self.committed)
            for producer, records in zip(open_ones, sent, strict=True):
                if self.rng.randrange(2):
                    producer.commit_transaction(PATIENCE_S)
                    self.committed.update(records)
                else:
                    producer.abort_transaction(PATIENCE_S)

    def refused_without_key(self) -> bool:
        """Whether the topic refuses a record without a key."""
        errors: list[KafkaError | None] = []
        producer = self.producer()
        producer.produce(self.topic, b"no key", on_delivery=lambda error, _: errors.append(error))
        producer.flush(PATIENCE_S)
        return [error.code() for error in errors if error is not None] == [KafkaError.INVALID_RECORD]


def newest_of_each_key(committed: Mapping[int, tuple[bytes, bytes | None]], end_offset: int) -> Committed:
    """What compaction up to ``end_offset`` leaves of committed records, none of them deleted for long."""
    newest = {committed[offset][0]: offset for offset in sorted(committed) if offset < end_offset}
    return {
        offset: record
        for offset, record in committed.items()
        if offset >= end_offset or newest[record[0]] == offset
    }


def log_files(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))
