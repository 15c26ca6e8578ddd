"""Power losses: ``python -m pykraft.jepsen_like.faults.runs.power_loss --nodes 3 --rounds 5``.

Real nodes, each on a file system of its own (:mod:`.surroundings.loop_disk`). Clients create topics and count
one topic's setting upwards; then the power of one node, or of all nodes at once, is cut, the processes are
killed, the file systems mounted again and the nodes started. Every acknowledged change must be there, on
every broker. Prints what was acknowledged and what was lost; exit status 0 clean, 1 lost, 3 not available
here.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.jepsen_like.faults.nemeses.kinds.power import cut_power, restore_power
from pykraft.jepsen_like.faults.surroundings.loop_disk import why_unavailable
from pykraft.jepsen_like.faults.surroundings.loop_disks import LoopDisks
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import ConfigChange, NewTopic
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.testing.processes.waits import WaitError, wait_until

EXIT_CLEAN, EXIT_LOST, EXIT_UNAVAILABLE = 0, 1, 3
WRITERS = 3
COUNTED_TOPIC = "counted"
COUNTED_KEY = "retention.ms"
_CALL_TIMEOUT_MS = 3_000
_KNOWN_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Acknowledged:
    """What the cluster has said yes to, and the last value that was asked for."""

    topics: list[str] = field(default_factory=list)
    counted: int = 0
    asked: int = 0
    counts: int = 0

    @property
    def changes(self) -> int:
        return len(self.topics) + self.counts


@dataclass(frozen=True, slots=True)
class PowerLossResult:
    """Totals of all rounds; ``lost`` names each acknowledged change that was gone."""

    rounds: int
    power_cuts: int
    acknowledged: int
    lost: tuple[str, ...]


def run(directory: Path, nodes: int, rounds: int, seed: int, all_at_once: bool) -> PowerLossResult:
    """Cut every node's power in each round (``all_at_once``), else one node's, often the active controller's.

    :class:`WaitError` if the cluster does not come back.
    """
    rng = random.Random(seed)
    directory.mkdir(parents=True, exist_ok=True)
    lost: list[str] = []
    cuts = 0
    with ProcessCluster(directory, nodes, FAST_FAILOVER, surroundings=LoopDisks()) as cluster:
        cluster.format()
        cluster.start()
        cluster.create_topic(COUNTED_TOPIC, 1, min(nodes, 3))
        done = Acknowledged()
        for number in range(rounds):
            victims = list(cluster.nodes) if all_at_once else [_victim(cluster, rng)]
            _write_until_cut(cluster, done, number, victims, rng)
            cuts += len(victims)
            restore_power(cluster, victims)
            cluster.wait_ready()
            lost += _missing(cluster, done)
        cluster.stop()
    return PowerLossResult(rounds, cuts, done.changes, tuple(lost))


def _victim(cluster: ProcessCluster, rng: random.Random) -> int:
    if rng.random() < 0.5:
        probe = cluster.probe("power-loss")
        try:
            leader = cluster.active_controller(probe)
        finally:
            probe.close()
        if leader is not None:
            return leader
    return rng.choice(sorted(cluster.nodes))


def _write_until_cut(
    cluster: ProcessCluster, done: Acknowledged, number: int, victims: Sequence[int], rng: random.Random
) -> None:
    """Start the writers, wait until they are well under way, cut the power, and end them."""
    stopped = threading.Event()
    before = done.changes
    wanted = before + rng.randrange(20, 80)
    threads = [
        threading.Thread(target=_create_topics, args=(cluster, done, f"r{number}-w{n}", stopped))
        for n in range(WRITERS)
    ]
    threads.append(threading.Thread(target=_count, args=(cluster, done, stopped)))
    for thread in threads:
        thread.start()
    try:
        wait_until("changes are acknowledged", lambda: done.changes >= wanted, 60, interval_s=0.002)
        cut_power(cluster, victims)
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def _create_topics(
    cluster: ProcessCluster, done: Acknowledged, prefix: str, stopped: threading.Event
) -> None:
    replicas = min(len(cluster.nodes), 3)
    with AdminClient(cluster.bootstrap_servers) as admin:
        for number in range(1_000_000):
            if stopped.is_set():
                return
            name = f"{prefix}-{number}"
            try:
                (created,) = admin.create_topics([NewTopic(name, 1, replicas)], timeout_ms=_CALL_TIMEOUT_MS)
            except (KafkaError, OSError):
                continue
            if created.error is None:
                done.topics.append(name)


def _count(cluster: ProcessCluster, done: Acknowledged, stopped: threading.Event) -> None:
    """Ends with the first value whose fate is unknown: it might still come true after a later one."""
    with AdminClient(cluster.bootstrap_servers) as admin:
        while not stopped.is_set():
            done.asked += 1
            change = ConfigChange(COUNTED_KEY, ConfigOperation.SET, str(done.asked))
            try:
                admin.alter_configs(
                    ConfigResourceType.TOPIC, COUNTED_TOPIC, [change], timeout_ms=_CALL_TIMEOUT_MS
                )
            except (KafkaError, OSError):
                return
            done.counted = done.asked
            done.counts += 1


def _missing(cluster: ProcessCluster, done: Acknowledged) -> list[str]:
    """Acknowledged changes that some broker does not come to know."""
    lost = []
    for node_id, address in cluster.addresses.items():
        with AdminClient(str(address)) as admin:
            view = _View(admin, done)
            try:
                wait_until("everything acknowledged is known", view.is_complete, _KNOWN_TIMEOUT_S)
            except WaitError:
                lost += [f"{what} on broker {node_id}" for what in view.missing]
    return lost


class _View:
    """What one broker does not know yet of what was acknowledged."""

    def __init__(self, admin: AdminClient, done: Acknowledged) -> None:
        self._admin = admin
        self._done = done
        self.missing: list[str] = []

    def is_complete(self) -> bool:
        known = {topic.name for topic in self._admin.list_topics(timeout_ms=_CALL_TIMEOUT_MS)}
        self.missing = [f"topic {name}" for name in sorted({COUNTED_TOPIC, *self._done.topics} - known)]
        if COUNTED_TOPIC in known and self._done.counts:
            value = self._counted()
            if not self._done.counted <= value <= self._done.asked:
                self.missing.append(f"{COUNTED_KEY}={self._done.counted} (found {value})")
        return not self.missing

    def _counted(self) -> int:
        (entry,) = self._admin.describe_configs(
            ConfigResourceType.TOPIC, COUNTED_TOPIC, [COUNTED_KEY], timeout_ms=_CALL_TIMEOUT_MS
        )
        return int(entry.value or 0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", action="store_true", help="cut one node's power a round, not all at once")
    options = parser.parse_args(arguments)
    reason = why_unavailable()
    if reason is not None:
        print(f"power losses cannot be made here: {reason}")
        return EXIT_UNAVAILABLE
    with tempfile.TemporaryDirectory(prefix="pykraft-power-") as directory:
        result = run(Path(directory), options.nodes, options.rounds, options.seed, not options.one)
    for change in result.lost:
        print(f"LOST: {change}")
    print(
        f"{result.rounds} rounds, {result.power_cuts} power cuts, {result.acknowledged} acknowledged changes,"
        f" {len(result.lost)} lost"
    )
    return EXIT_LOST if result.lost else EXIT_CLEAN


if __name__ == "__main__":
    sys.exit(main())
