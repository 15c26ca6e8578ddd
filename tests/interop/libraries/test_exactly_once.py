"""Exactly once from read to write, by unmodified clients, while brokers and clients are killed.

Three brokers of their own, which are killed (SIGKILL) and started again while the tests go on. A silent
broker is replaced, and the transaction of a dead producer aborted, within seconds.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER
from pykraft.runtime.free_ports import free_ports
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, Deadline, wait_until
from tests.interop.clusters import create_in_sync, own_cluster, probing, wait_ready
from tests.interop.java_jars import compile_java, fetch_jars, need
from tests.interop.processors import Processor
from tests.narrowing import present

pytestmark = pytest.mark.interop

Fresh = Callable[[str], str]
KAFKA_VERSION = "4.3.0"
PARTITIONS = 6
CONNECT_PATIENCE_S = 3 * PATIENCE_S
"""A worker's clients may wait for a minute twice."""
PROPERTIES = {
    **FAST_FAILOVER,
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "group.min.session.timeout.ms": "1000",
    "transaction.state.log.num.partitions": "5",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with own_cluster(3, PROPERTIES) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def whole(cluster: Cluster) -> None:
    """A test that failed may have left a broker dead: the next one is not to fail for it."""
    cluster.heal()
    wait_ready(cluster)


def leader_of(cluster: Cluster, topic: str) -> int:
    """The broker that leads most of its partitions."""
    with probing(cluster) as probe:
        views = [present(probe.topic(node, topic)) for node in cluster.running_nodes]
    led = Counter(one.leader for view in views for one in view.partitions.values())
    return led.most_common(1)[0][0]


def restart(cluster: Cluster, topic: str) -> None:
    """What was killed is started again, and has caught up."""
    cluster.heal()
    cluster.wait_in_sync(topic, PATIENCE_S)


class Source:
    """What ``text`` makes of 0, 1, … and the partition, in this order, in each partition of a topic."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        text: Callable[[int, int], str] = lambda number, _: str(number),
    ) -> None:
        self.topic, self.each, self._text = topic, 0, text
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
        )

    def write(self, each: int) -> None:
        for number in range(self.each, self.each + each):
            for partition in range(PARTITIONS):
                value = self._text(number, partition).encode()
                self._producer.produce(self.topic, value, partition=partition)
        assert self._producer.flush(PATIENCE_S) == 0
        self.each += each


@contextmanager
def started(command: Sequence[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block; what it has printed is shown if the block fails."""
    with (
        output.open("wb") as file,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield process
        except BaseException:
            print(output.read_text("utf-8", "replace")[-8000:])
            raise
        finally:
            process.kill()


class Progress:
    """How many records of a topic a group has taken, by the committed offsets that its members would read.

    It asks through a consumer that is no member: confluent-kafka's admin client (2.16.1) crashes if a broker
    answers that it is not the coordinator.
    """

    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        settings = {"isolation.level": "read_committed", "log_level": 0}
        self._consumer = Consumer(
            settings | {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}
        )
        self._partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]

    def reaches(self, count: int) -> bool:
        """Offsets of open transactions count for nothing."""
        try:
            return sum(max(0, it.offset) for it in self._consumer.committed(self._partitions, 5)) >= count
        except KafkaException:
            return False

    def close(self) -> None:
        self._consumer.close()


def read_committed(
    cluster: Cluster,
    topic: str,
    partitions: int,
    count: int,
    *,
    to_the_end: bool = True,
    patience_s: float = PATIENCE_S,
) -> list[list[bytes]]:
    """The values of each partition, as soon as there are ``count`` in all, up to its end."""
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    at_end: set[int] = set()
    deadline = Deadline(patience_s)
    with closing(
        Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "none",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
    ) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        while sum(map(len, found)) < count or (to_the_end and len(at_end) < partitions):
            assert not deadline.passed, f"{sum(map(len, found))} of {count} records"
            for message in consumer.consume(500, 0.1):
                partition = present(message.partition())
                if message.error() is not None:
                    at_end.add(partition)
                else:
                    at_end.discard(partition)
                    found[partition].append(present(message.value()))
    return found


def test_processors_of_confluent_kafka_write_each_record_once(cluster: Cluster, fresh: Fresh) -> None:
    """Processors join, leave and crash in the middle of transactions, and the busiest broker is killed."""
    topic, sink, group = fresh("source"), fresh("sink"), fresh("group")
    for name in (topic, sink):
        create_in_sync(cluster, name, PARTITIONS)
    source = Source(cluster, topic)

    def more(each: int) -> None:
        """Half of the new records are processed before this returns."""
        wanted = (source.each + each // 2) * PARTITIONS
        source.write(each)
        wait_until("half of them processed", lambda: progress.reaches(wanted), PATIENCE_S)

    def start(name: str) -> Processor:
        processor = Processor(cluster.bootstrap_servers, f"{group}-{name}", group, topic, sink)
        processors.append(processor)
        return processor

    processors: list[Processor] = []
    with closing(Progress(cluster, group, topic)) as progress:
        crashing, leaving = start("a"), start("b")
        more(60)
        victim = leader_of(cluster, "__transaction_state")
        cluster.kill(victim)
        start("c")
        more(60)
        crashing.crash(lambda: source.write(60))
        restart(cluster, sink)
        more(60)
        leaving.leave()
        start("a")
        more(20)
        count = source.each * PARTITIONS
        wait_until("all processed", lambda: progress.reaches(count), PATIENCE_S)
        for processor in processors[2:]:
            processor.leave()
    everything = [b"%d" % number for number in range(source.each)]
    assert read_committed(cluster, sink, PARTITIONS, count) == [everything] * PARTITIONS


def test_kafka_streams_counts_each_word_once(cluster: Cluster, fresh: Fresh, tmp_path: Path) -> None:
    """The busiest transaction coordinator is killed, then the busiest group coordinator.

    The counts of each word that are read are 1, 2, 3, …: none is missing, and none appears twice.
    """
    classpath = compile_java("KAFKA STREAMS", "WordCount", "kafka-streams", KAFKA_VERSION)
    topic, sink, application = fresh("lines"), fresh("counts"), fresh("word-count")
    for name in (topic, sink):
        create_in_sync(cluster, name, PARTITIONS)
    source = Source(cluster, topic, lambda number, partition: f"all p{partition} n{number % 5}")

    def more(each: int) -> None:
        """Half of the new lines are processed before this returns."""
        wanted = (source.each + each // 2) * PARTITIONS
        source.write(each)
        wait_until("half of them", lambda: progress.reaches(wanted), PATIENCE_S)

    arguments = [cluster.bootstrap_servers, application, topic, sink, str(tmp_path / "state")]
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, "WordCount", *arguments]
    with (
        closing(Progress(cluster, application, topic)) as progress,
        started(command, tmp_path / "streams.log") as streams,
    ):
        more(20)
        for coordinators in ("__transaction_state", "__consumer_offsets"):
            victim = leader_of(cluster, coordinators)
            cluster.kill(victim)
            more(20)
            restart(cluster, coordinators)
        source.write(20)
        lines = source.each * PARTITIONS
        found = read_committed(cluster, sink, PARTITIONS, 3 * lines)
        present(streams.stdin).close()
        assert streams.wait(PATIENCE_S) == 0
    counts: dict[str, list[int]] = {}
    for word, count in (value.decode().split() for values in found for value in values):
        counts.setdefault(word, []).append(int(count))
    each = (
        {"all": lines}
        | {f"p{n}": source.each for n in range(PARTITIONS)}
        | {f"n{n}": lines // 5 for n in range(5)}
    )
    assert counts == {word: list(range(1, count + 1)) for word, count in each.items()}


def test_kafka_connect_takes_each_line_of_a_file_once(cluster: Cluster, fresh: Fresh, tmp_path: Path) -> None:
    """A worker is killed while it writes, and the busiest transaction coordinator while its successor does.

    Not both at once: Java's admin client, which a worker that starts needs, may wait a minute for a broker
    that was lost between two of its attempts.
    """
    what = "KAFKA CONNECT"
    need(what, "java")
    artifacts = [f"org.apache.kafka:{name}:{KAFKA_VERSION}" for name in ("connect-runtime", "connect-file")]
    jars = fetch_jars(what, f"connect-{KAFKA_VERSION}", artifacts)
    topic, group, (port,) = fresh("file"), fresh("connect"), free_ports(1)
    create_in_sync(cluster, topic, 1)
    file, properties = tmp_path / "lines.txt", tmp_path / "worker.properties"
    lines = [f"line {number}" for number in range(6000)]
    file.write_text("".join(f"{line}\n" for line in lines[:5000]))
    properties.write_text(worker_properties(cluster, group, port))
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", main, str(properties)]
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "exactly.once.support": "required",
        "file": str(file),
        "topic": topic,
        "batch.size": "20",
    }

    def configured() -> bool:
        url = f"http://127.0.0.1:{port}/connectors/{topic}/config"
        content = {"Content-Type": "application/json"}
        try:
            with urlopen(
                Request(url, json.dumps(config).encode(), content, method="PUT"), timeout=10
            ) as answer:
                return bool(answer.status == 201)
        except (URLError, TimeoutError, ConnectionError):
            return False

    with started(command, tmp_path / "killed.log") as worker:
        wait_until("the connector", configured, PATIENCE_S)
        read_committed(cluster, topic, 1, 100, to_the_end=False)
        worker.kill()
    assert len(read_committed(cluster, topic, 1, 100)[0]) < 5000, "it was killed too late"
    with file.open("a") as longer:
        longer.writelines(f"{line}\n" for line in lines[5000:])
    with started(command, tmp_path / "successor.log"):
        read_committed(cluster, topic, 1, 2500, to_the_end=False)
        cluster.kill(leader_of(cluster, "__transaction_state"))
        # At the end of its file, FileStreamSource keeps back some lines: up to a buffer of 1,024 bytes.
        (found,) = read_committed(cluster, topic, 1, 5800, patience_s=CONNECT_PATIENCE_S)
    restart(cluster, topic)
    assert found == [line.encode() for line in lines[: len(found)]]


def worker_properties(cluster: Cluster, group: str, port: int) -> str:
    """Of a distributed worker. The tasks of a worker that is lost are given to others at once."""
    storage = {
        f"{kind}.storage.{key}": value
        for kind in ("config", "offset", "status")
        for key, value in (("topic", f"{group}-{kind}"), ("replication.factor", "3"))
    }
    converter = "org.apache.kafka.connect.storage.StringConverter"
    settings = storage | {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "exactly.once.source.support": "enabled",
        "key.converter": converter,
        "value.converter": converter,
        "offset.storage.partitions": "3",
        "status.storage.partitions": "1",
        # A successor reads offsets once the transaction that its predecessor left open is aborted. None may
        # be aborted while the session of a killed coordinator still runs: that would fail the task for good.
        "producer.transaction.timeout.ms": "30000",
        "session.timeout.ms": "3000",
        "heartbeat.interval.ms": "500",
        "scheduled.rebalance.max.delay.ms": "0",
        "plugin.discovery": "service_load",
        "listeners": f"http://127.0.0.1:{port}",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())
