"""What the changes workload looks at in the end, with an administrator that never fails, in virtual time."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from pykraft.jepsen_like.faults.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.faults.checkers.registers import check_registers
from pykraft.jepsen_like.faults.clients.interface import UnknownOutcomeError
from pykraft.jepsen_like.faults.history import Event, MemoryHistory
from pykraft.jepsen_like.faults.workloads.changes import APPEND, CONFIG, ChangesConfig, ChangesWorkload
from pykraft.jepsen_like.faults.workloads.workload import Limits
from pykraft.runtime.simulated.virtual_loop import VirtualLoop

NO_OTHER_WRITES = replace(
    APPEND, partitions=0, producers=0, consumers=0, weak_sends_per_s=0, look_every_s=1_000.0
)


class Cluster:
    """The clients and the administrator, and the topics that there are.

    ``answers_creations``: else they get lost, and nobody knows it.
    """

    prefix = ""
    most_replicas = 3

    def __init__(self, *, answers_creations: bool = True) -> None:
        self._answers_creations = answers_creations
        self.counts: dict[str, int] = {}
        self.configs: dict[str, str] = {}
        self.repeats = 0

    def admin(self, name: str) -> "Cluster":
        return self

    def wall_ms(self) -> int:
        return 0

    async def create_topic(
        self, topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        if not self._answers_creations:
            raise UnknownOutcomeError("nobody answers")
        self.counts[topic], self.configs[topic] = partitions, configs[CONFIG]

    async def delete_topic(self, topic: str) -> None:
        del self.counts[topic]

    async def create_partitions(self, topic: str, total: int) -> None:
        self.counts[topic] = total

    async def alter_config(self, topic: str, name: str, value: str) -> None:
        self.configs[topic] = value

    async def partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    async def config(self, topic: str, name: str) -> str | None:
        return self.configs[topic]

    def requests(self, name: str) -> "AtBrokers":
        return AtBrokers(self)

    async def close(self) -> None: ...


class AtBrokers:
    """Broker 2 has forgotten the oldest topic."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def brokers(self) -> list[int]:
        return [1, 2]

    async def partition_count(self, broker: int, topic: str) -> int | None:
        forgotten = broker == 2 and topic == next(iter(self._cluster.counts))
        return None if forgotten else self._cluster.counts.get(topic)

    async def config(self, broker: int, topic: str, name: str) -> str | None:
        return self._cluster.configs[topic]

    async def close(self) -> None: ...


def change_for(
    duration_s: float, cluster: Cluster | None = None, *, every_broker: bool = False
) -> list[Event]:
    loop = VirtualLoop()
    history = MemoryHistory(lambda: int(loop.time() * 1e6))
    config = ChangesConfig(append=NO_OTHER_WRITES, change_every_s=1.0, every_broker=every_broker)

    async def run() -> None:
        workload = ChangesWorkload(cluster or Cluster(), config, 1, history)  # type: ignore[arg-type]
        workload.start()
        await asyncio.sleep(duration_s)
        await workload.finish(Limits())

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    return history.events


def test_a_topic_that_was_never_created_is_not_looked_for() -> None:
    assert [event for event in change_for(0.4) if event.op == "get"] == []


def test_a_creation_that_got_lost_may_be_found_to_have_come_to_nothing() -> None:
    events, findings = change_for(5.0, Cluster(answers_creations=False)), Findings()
    check_registers(events, findings)
    assert {event.value for event in events if event.op == "get"} == {"none"}
    assert findings.result() == ()


class LosingCluster(Cluster):
    """It answers, and creates nothing."""

    async def partition_count(self, topic: str) -> int | None:
        return None


def test_a_topic_that_was_created_and_is_not_there_is_a_lost_change() -> None:
    findings = Findings()
    check_registers(change_for(5.0, LosingCluster()), findings)
    assert {finding.kind for finding in findings.result()} == {Anomaly.LOST_CHANGE}


def test_change_that_one_broker_has_forgotten_is_found_at_that_broker() -> None:
    findings = Findings()
    check_registers(change_for(5.0, every_broker=True), findings)
    (finding,) = findings.result()
    assert finding.kind is Anomaly.LOST_CHANGE
    assert "at broker 2" in str(finding)


class DelayingCluster(Cluster):
    """A creation is sent twice, and carried out a second time after the topic was deleted."""

    def __init__(self, *, tells: bool) -> None:
        super().__init__()
        self._tells = tells
        self._created: dict[str, tuple[int, str]] = {}

    async def create_topic(
        self, topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        self.repeats += self._tells
        await super().create_topic(topic, partitions, replication_factor, configs)
        self._created[topic] = partitions, configs[CONFIG]

    async def delete_topic(self, topic: str) -> None:
        self.counts[topic], self.configs[topic] = self._created[topic]


@pytest.mark.parametrize("tells", [False, True])
def test_change_that_was_repeated_may_take_effect_once_more(tells: bool) -> None:
    findings = Findings()
    check_registers(change_for(20.0, DelayingCluster(tells=tells)), findings)
    assert {finding.kind for finding in findings.result()} == (set() if tells else {Anomaly.LOST_CHANGE})


def test_final_configuration_is_the_last_one_set() -> None:
    for duration_s in range(10, 30):
        events, findings = change_for(duration_s), Findings()
        check_registers(events, findings)
        assert [event for event in events if event.op == "get"]
        assert findings.result() == ()
