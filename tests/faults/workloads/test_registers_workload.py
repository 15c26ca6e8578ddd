"""The registers workload in virtual time, on a cluster that keeps its promises, and on some that do not."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from pykraft.jepsen_like.faults.checkers.counting import count_run
from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.history import examine
from pykraft.jepsen_like.faults.clients.interface import Commit, RefusedError, UnknownOutcomeError
from pykraft.jepsen_like.faults.history import Event, MemoryHistory
from pykraft.jepsen_like.faults.workloads.registers import (
    CONFIGS,
    FIRST_MS,
    RegistersConfig,
    RegistersWorkload,
)
from pykraft.kafka_client.metadata import TopicPartition
from tests.faults.played import kinds, play

BROKERS = (1, 2, 3)
CONFIG = RegistersConfig(committers=4, groups=1, rest_s=0.1)
RUN_S = 20.0


class Cluster:
    """Every client in one. Operations take some time and are often not answered; broker 2 lags behind."""

    prefix = ""
    most_replicas = 3

    fails = 0.1

    def __init__(self) -> None:
        self.lag = {1: 0, 2: 5, 3: 1}
        self.rng = random.Random(1)
        self.offsets: dict[tuple[str, TopicPartition], Commit] = {}
        self.configs = {name: [str(FIRST_MS)] for name in CONFIGS}
        self.ids = iter(range(10**6))
        self.is_settled = False

    def requests(self, name: str) -> "Cluster":
        self.is_settled |= name == "last-look"
        return self

    async def _network(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.0, 0.1))

    async def _answer(self) -> None:
        await self._network()
        if self.rng.random() < self.fails and not self.is_settled:
            raise UnknownOutcomeError("no answer")

    async def commit(self, group: str, partition: TopicPartition, commit: Commit) -> None:
        if self.rng.random() < self.fails:
            raise RefusedError("no coordinator")
        await self._network()
        if self.rng.random() > self.fails:
            self.write(group, partition, commit)
        else:  # it is not lost, but late
            asyncio.get_running_loop().call_later(3.0, self.write, group, partition, commit)
            raise UnknownOutcomeError("no answer")
        await self._answer()

    def write(self, group: str, partition: TopicPartition, commit: Commit) -> None:
        self.offsets[group, partition] = commit

    async def committed(self, group: str, partition: TopicPartition) -> Commit | None:
        await self._network()
        found = self.offsets.get((group, partition))
        await self._answer()
        return found

    async def brokers(self) -> Sequence[int]:
        await self._answer()
        return BROKERS

    async def set_config(self, broker: int, topic: str, name: str, value: str) -> None:
        await self._network()
        if self.rng.random() < self.fails:
            raise UnknownOutcomeError("lost")
        self.configs[name].append(value)
        await self._answer()

    async def config(self, broker: int, topic: str, name: str) -> str | None:
        await self._network()
        known = self.configs[name]
        lag = 0 if self.is_settled else self.lag[broker]
        shown = known[max(0, len(known) - 1 - lag)]
        await self._answer()
        return shown

    async def producer_id(self, broker: int) -> int:
        await self._network()
        found = next(self.ids)
        await self._answer()
        return found

    async def close(self) -> None: ...


def run(cluster: Cluster, seed: int = 1) -> list[Event]:
    def make(history: MemoryHistory) -> RegistersWorkload:
        return RegistersWorkload(cluster, CONFIG, seed, history)  # type: ignore[arg-type]

    return play("registers", make, RUN_S)


def test_a_cluster_that_keeps_its_promises_has_no_finding() -> None:
    for seed in range(3):
        events = run(Cluster(), seed)
        report = examine(events)
        assert (report.findings, report.undecided) == ((), 0)
        done = {(event.op, event.type) for event in events}
        assert {("commit", kind) for kind in ("ok", "fail", "info")} <= done
        assert {(op, "ok") for op in ("committed", "set", "look", "get", "allocate")} <= done


def test_every_broker_and_offset_is_looked_at_in_the_end() -> None:
    events = run(Cluster())
    last = [event for event in events if event.process == "last-look" and event.type == "ok"]
    looks = {(event.key, (event.detail or {})["broker"]) for event in last if event.op == "get"}
    assert looks == {(f"registers/{name}", broker) for name in CONFIGS for broker in BROKERS}
    assert {event.key for event in last if event.op == "committed"} == {
        f"registers-0/registers-{number}" for number in range(CONFIG.registers_each)
    }


def test_answered_operations_are_counted() -> None:
    events = run(Cluster())
    ops = ("commit", "committed", "set", "look", "allocate")
    verdict = count_run(events, 60)
    assert verdict.tally.acknowledged == sum(event.op in ops and event.type == "ok" for event in events) > 500
    assert any("answered operations" in shortfall for shortfall in verdict.shortfalls)


class DeposedCoordinator(Cluster):
    """It shows the commit before the last one now and then: what a coordinator may do that was replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[tuple[str, TopicPartition], Commit] = {}

    def write(self, group: str, partition: TopicPartition, commit: Commit) -> None:
        if (known := self.offsets.get((group, partition))) is not None:
            self.before[group, partition] = known
        super().write(group, partition, commit)

    async def committed(self, group: str, partition: TopicPartition) -> Commit | None:
        found = await super().committed(group, partition)
        return self.before.get((group, partition), found) if self.rng.random() < 0.05 else found


class RepeatingClient(Cluster):
    """A commit takes effect twice, now and after another: as with a client that repeats a request."""

    def write(self, group: str, partition: TopicPartition, commit: Commit) -> None:
        super().write(group, partition, commit)
        if self.rng.random() < 0.2:
            asyncio.get_running_loop().call_later(0.3, super().write, group, partition, commit)


class ForgetfulBroker(Cluster):
    """A broker shows old values again, as after a restart without its metadata log."""

    async def config(self, broker: int, topic: str, name: str) -> str | None:
        if broker == 3 and self.rng.random() < 0.05:
            return self.configs[name][0]
        return await super().config(broker, topic, name)


class LaggingBroker(Cluster):
    """A broker does not follow the metadata log any more, although all is healed."""

    async def config(self, broker: int, topic: str, name: str) -> str | None:
        return self.configs[name][0] if broker == 3 else await super().config(broker, topic, name)


class SharedBlocks(Cluster):
    """Two brokers give out the same producer ids."""

    async def producer_id(self, broker: int) -> int:
        return await super().producer_id(broker) // 2


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        (DeposedCoordinator, Anomaly.NONLINEARIZABLE),
        (RepeatingClient, Anomaly.NONLINEARIZABLE),
        (ForgetfulBroker, Anomaly.CONFIG_WENT_BACK),
        (LaggingBroker, Anomaly.LOST_CHANGE),
        (SharedBlocks, Anomaly.REPEATED_ID),
    ],
)
def test_a_broken_promise_is_found(cluster: type[Cluster], expected: Anomaly) -> None:
    found = kinds(run(cluster()))
    assert expected in found
    assert found <= {expected, Anomaly.LOST_CHANGE}


class DeafCluster(Cluster):
    """It answers nothing after the faults."""

    async def committed(self, group: str, partition: TopicPartition) -> Commit | None:
        if self.is_settled:
            await asyncio.sleep(1.0)
            raise UnknownOutcomeError("no answer")
        return await super().committed(group, partition)


def test_registers_that_cannot_be_read_in_the_end_are_no_progress() -> None:
    assert kinds(run(DeafCluster())) == {Anomaly.NO_PROGRESS}
