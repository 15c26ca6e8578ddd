"""The cluster of the fleets, and the processes that host their members."""

from collections.abc import Collection
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from pykraft.group_coordinator.state.codec import decode_record
from pykraft.group_coordinator.state.records import GroupMetadataKey, GroupMetadataValue
from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_protocol.enums import ElectionType
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.interop.clusters import create_in_sync, probing
from tests.interop.fleet import KINDS, SESSION_MS, Fleet, MemberProcess, Produced, group_at, program_command
from tests.interop.java_jars import compile_client
from tests.interop.node_packages import node_packages
from tests.narrowing import present

OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 3
COORDINATOR: Final = 1
"""The partition of the offsets topic that coordinates every group."""
PROPERTIES: Final = {
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": "5000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "300",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    **FAST_FAILOVER,
}


class Hall:
    """The cluster, and the processes that host the members of the fleets of these kinds."""

    def __init__(self, cluster: Cluster, directory: Path, kinds: Collection[str]) -> None:
        self.cluster = cluster
        self._kinds = {name: kind for name, kind in KINDS.items() if name in kinds}
        self.directory = directory
        self.missing: dict[str, str] = {}
        """Programs that cannot run here, and why."""
        self._commands: dict[str, list[str]] = {}
        self._processes: dict[tuple[str, int], MemberProcess] = {}
        for program in sorted({kind.program for kind in self._kinds.values()}):
            try:
                self._commands[program] = self._command(program)
            except pytest.skip.Exception as reason:
                self.missing[program] = str(reason)

    def process(self, program: str, number: int) -> MemberProcess:
        """One of a program's processes, started when it is first needed."""
        if (program, number) not in self._processes:
            where = self.directory / f"{program}-{number}"
            self._processes[program, number] = MemberProcess(self._commands[program], where)
        return self._processes[program, number]

    def topic(self, name: str, partitions: int) -> Produced:
        create_in_sync(self.cluster, name, partitions)
        return Produced(self.cluster.bootstrap_servers, name, partitions)

    def fleets(self, scenario: str, produced: Produced) -> dict[str, Fleet]:
        """A fleet of each client that can run here; one broker coordinates all of them."""
        return {
            name: Fleet(name, kind, group_at(COORDINATOR, OFFSETS_PARTITIONS, f"{scenario}-{name}"), produced)
            for name, kind in self._kinds.items()
            if kind.program not in self.missing
        }

    def admin(self) -> AdminClient:
        return AdminClient(self.cluster.bootstrap_servers)

    def coordinator(self) -> int:
        """The broker that leads the groups' partition."""
        found: list[int] = []

        def known() -> bool:
            for node_id in self.cluster.running_nodes:
                view = probe.topic(node_id, OFFSETS_TOPIC)
                partition = None if view is None else view.partitions.get(COORDINATOR)
                if partition is not None and partition.leader == node_id:
                    found.append(node_id)
            return bool(found)

        with probing(self.cluster) as probe:
            wait_until("a coordinator", known, PATIENCE_S)
        return found[0]

    def settle(self, topic: str) -> None:
        """Every replica in sync, and every partition led by its preferred replica."""
        for name in (topic, OFFSETS_TOPIC):
            self.cluster.wait_in_sync(name, PATIENCE_S)

        def preferred() -> bool:
            try:
                with self.admin() as admin:
                    admin.elect_leaders(ElectionType.PREFERRED, timeout_ms=5000)
            except KafkaError:
                return False
            for node_id in self.cluster.running_nodes:
                for name in (topic, OFFSETS_TOPIC):
                    view = probe.topic(node_id, name)
                    if view is None or any(p.leader != p.replicas[0] for p in view.partitions.values()):
                        return False
            return True

        with probing(self.cluster) as probe:
            wait_until("preferred leaders", preferred, PATIENCE_S)

    def generations(self) -> dict[str, set[int]]:
        """Of each classic group: every generation that its coordinator has recorded."""
        where = ConfluentPartition(OFFSETS_TOPIC, COORDINATOR, 0)
        found: dict[str, set[int]] = {}
        reader = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "group.id": "reader",
                "enable.auto.commit": False,
            }
        )
        try:
            _, end = reader.get_watermark_offsets(where, timeout=PATIENCE_S)
            reader.assign([where])
            at = 0
            while at < end:
                for message in reader.consume(1000, 1):
                    assert message.error() is None, message.error()
                    at = present(message.offset()) + 1
                    record = decode_record(present(message.key()), message.value())
                    if record is None or record.value is None:
                        continue
                    if isinstance(record.key, GroupMetadataKey):
                        assert isinstance(record.value, GroupMetadataValue)
                        found.setdefault(record.key.group_id, set()).add(record.value.generation)
        finally:
            reader.close()
        return found

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()

    def _command(self, program: str) -> list[str]:
        if program == "java":
            path = compile_client("GroupMembers")
            return [
                "java",
                "-XX:TieredStopAtLevel=1",
                "-Xmx512m",
                "-cp",
                path,
                "GroupMembers",
            ]
        if program in ("kafkajs", "platformatic"):
            return node_packages().copy(f"member_{program}.mjs", self.directory)
        return program_command(program)
