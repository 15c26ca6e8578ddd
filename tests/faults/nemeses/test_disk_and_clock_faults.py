"""Faults of disks and clocks on real nodes: each is felt, and then every node serves and has its data."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.jepsen_like.faults.nemeses.choice import KINDS
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import NotPossibleNowError
from pykraft.jepsen_like.faults.nemeses.kinds import clocks, disks
from pykraft.jepsen_like.faults.surroundings.shim import Shim, ShimError, build_shim, why_unavailable
from pykraft.jepsen_like.faults.surroundings.surroundings import Surroundings
from pykraft.testing.processes.listeners import Listeners
from pykraft.testing.processes.node_process import NodeProcess
from pykraft.testing.processes.waits import PATIENCE_S, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_unavailable() is not None, reason=f"no shim: {why_unavailable()}"),
]

TOPIC, PARTITIONS = "t", 3
FAR_MS: Final = 100_000.0
"""More than a busy machine takes for anything here."""


class Shims(Surroundings):
    """Nothing but a shim for each node."""

    def open(self, directory: Path, listeners: Mapping[int, Listeners]) -> None:
        library = build_shim(directory)
        self.shims = {node_id: Shim(library, directory / f"shim-{node_id}") for node_id in listeners}


class Records:
    """What was written, and must be there. ``ahead_ms``: by how much the brokers' clocks were ahead of this
    one when they took a record."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self._servers = cluster.bootstrap_servers
        self._producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True})
        self._written: Counter[int | None] = Counter()
        self.ahead_ms: list[float] = []

    def write(self) -> None:
        for partition in range(PARTITIONS):
            self._producer.produce(TOPIC, "x", partition=partition, on_delivery=self._delivered)
        self._producer.poll(0.05)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self._written[message.partition()] += 1
        self.ahead_ms.append(message.timestamp()[1] - time.time() * 1000)

    def check(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "unused"})
        try:
            consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
            read: Counter[int | None] = Counter()
            while read.total() < self._written.total():
                message = consumer.poll(PATIENCE_S)
                assert message is not None and message.error() is None
                assert message.offset() == read[message.partition()]
                read[message.partition()] += 1
            assert read == self._written
        finally:
            consumer.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    directory = tmp_path_factory.mktemp("faults") / "cluster"
    with ProcessCluster(directory, 3, FAST_FAILOVER, surroundings=Shims()) as cluster:
        cluster.format()
        cluster.start()
        configs = {"min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime"}
        cluster.create_topic(TOPIC, PARTITIONS, configs=configs)
        yield cluster
        assert cluster.stop() == [], cluster.output_tails()


@pytest.fixture(scope="module")
def records(cluster: ProcessCluster) -> Records:
    return Records(cluster)


def a_follower(cluster: ProcessCluster) -> int:
    """A node that is not the active controller: without that the others notice a fault later."""
    probe = cluster.probe("test")
    try:
        wait_until("a controller", lambda: cluster.active_controller(probe) is not None, PATIENCE_S)
        leader = cluster.active_controller(probe)
        return next(node_id for node_id in cluster.members if node_id != leader)
    finally:
        probe.close()


@dataclass(frozen=True, slots=True)
class Victim:
    """A node and what it shows of a fault."""

    node: NodeProcess
    shim: Shim
    hits_before: int
    ahead_ms: Sequence[float]

    def has_ended(self) -> bool:
        return not self.node.running

    def is_hit(self) -> bool:
        return self.shim.hits > self.hits_before

    def is_far_ahead(self) -> bool:
        return max(self.ahead_ms, default=0) > FAR_MS / 2

    def runs_ahead(self) -> bool:
        return max(self.ahead_ms, default=0) > 500


ALWAYS: Final = {"probability": 1.0}
SLOW: Final = {"write_delay_ms": 1, "fsync_delay_ms": 20, "read_delay_ms": 1}
FAULTS: Final[Mapping[str, tuple[Mapping[str, float], Callable[[Victim], bool]]]] = {
    "clock-jump": ({"offset_ms": FAR_MS}, Victim.is_far_ahead),
    "clock-rate": ({"rate": 2.0}, Victim.runs_ahead),
    "clock-strobe": ({"offset_ms": FAR_MS, "period_ms": 100}, Victim.is_far_ahead),
    "short-writes": (ALWAYS, Victim.is_hit),
    "slow-disk": (SLOW, Victim.is_hit),
    "disk-full": ({}, Victim.has_ended),
    "disk-read-only": ({}, Victim.has_ended),
    "eio-write": (ALWAYS, Victim.has_ended),
    "eio-fsync": (ALWAYS, Victim.has_ended),
    "eio-read": (ALWAYS, Victim.has_ended),
}


def test_every_kind_is_tried() -> None:
    assert {kind.name for kind in (*clocks.KINDS, *disks.KINDS)} == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_felt_and_passes(cluster: ProcessCluster, records: Records, name: str) -> None:
    kind, (settings, is_felt) = KINDS[name], FAULTS[name]
    cluster.wait_in_sync(TOPIC, PATIENCE_S)
    node_id = a_follower(cluster)
    shim = cluster.surroundings.shims[node_id]
    records.ahead_ms.clear()
    victim = Victim(cluster.nodes[node_id], shim, shim.hits, records.ahead_ms)
    assert kind.why_unavailable(cluster) is None
    repair = kind.inflict(cluster, Fault(0, name, Target.ANY, 0.0, 1.0, settings=settings), [node_id])

    def is_felt_now() -> bool:
        records.write()
        return is_felt(victim)

    cluster.admin().create_topics([NewTopic(name, 1, 3)])  # the metadata log is written, flushed and read
    wait_until(f"{name} is felt", is_felt_now, PATIENCE_S)
    repair()
    assert kind.may_end or victim.node.running
    cluster.ensure_running([node_id])
    cluster.wait_in_sync(TOPIC, PATIENCE_S)
    records.check()
    records.ahead_ms.clear()
    records.write()
    records.check()
    assert abs(max(records.ahead_ms, key=abs)) < FAR_MS / 2


def test_without_shims_a_kind_says_why(tmp_path: Path) -> None:
    cluster = ProcessCluster(tmp_path, 1)
    for kind in (*clocks.KINDS, *disks.KINDS):
        assert kind.why_unavailable(cluster) == "no shim: the tier bare has none here"


def test_node_that_has_just_been_started_may_load_its_shim_later(tmp_path: Path) -> None:
    cluster = ProcessCluster(tmp_path, 1)
    shim = Shim(build_shim(tmp_path), tmp_path / "shim")
    cluster.surroundings.shims = {1: shim}
    node = cluster.nodes[1]
    node.command = ("sh", "-c", 'sleep 0.2; export LD_PRELOAD="$LATER"; exec sleep 600')
    preloaded = shim.environment()
    node.environment = {**preloaded, "LD_PRELOAD": "", "LATER": preloaded["LD_PRELOAD"]}
    node.start()
    try:
        fault = Fault(0, "clock-jump", Target.ANY, 0.0, 1.0, settings={"offset_ms": 1.0})
        KINDS["clock-jump"].inflict(cluster, fault, [1])()
        assert shim.loaded
    finally:
        node.kill()


def test_node_without_its_shim_is_refused(tmp_path: Path) -> None:
    """A fault of which it feels nothing would pass every check."""
    cluster = ProcessCluster(tmp_path, 1)
    cluster.surroundings.shims = {1: Shim(tmp_path / "shim.so", tmp_path / "shim")}
    fault = Fault(0, "clock-jump", Target.ANY, 0.0, 1.0, settings={"offset_ms": 1.0})
    with pytest.raises(NotPossibleNowError, match="does not run"):
        KINDS["clock-jump"].inflict(cluster, fault, [1])
    node = cluster.nodes[1]
    node.command = ("sleep", "600")
    node.start()
    try:
        with pytest.raises(ShimError, match="has not loaded its shim"):
            KINDS["clock-jump"].inflict(cluster, fault, [1])
    finally:
        node.kill()
