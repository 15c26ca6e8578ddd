"""The workload and the checkers agree on an undisturbed broker: librdkafka's mock cluster."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Producer

from pykraft.jepsen_like.faults.checkers.counting import count_run
from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.history import check
from pykraft.jepsen_like.faults.clients.confluent import ConfluentClients
from pykraft.jepsen_like.faults.clients.interface import Polled, PositionLostError
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.history import HistoryWriter, MemoryHistory, read_history
from pykraft.jepsen_like.faults.workloads.append import AppendConfig, AppendWorkload
from pykraft.jepsen_like.faults.workloads.workload import Limits
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from pykraft.testing.processes.waits import PATIENCE_S

TOPIC = "append"
PLACE = TopicPartition(TOPIC, 0)


@pytest.fixture
def mock_cluster() -> Iterator[str]:
    owner = Producer({"test.mock.num.brokers": 3, "bootstrap.servers": "", "log_level": 0})
    owner.list_topics(TOPIC, timeout=10)
    brokers = owner.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del owner


async def _run(bootstrap_servers: str, config: AppendConfig, history: HistoryWriter) -> AppendWorkload:
    clients = ConfluentClients(bootstrap_servers)
    workload = AppendWorkload(clients, config, 1, history)
    workload.start()
    async with asyncio.timeout(PATIENCE_S):
        while workload.acknowledged < 2_000:
            await asyncio.sleep(0.05)
    await workload.finish(Limits(answers_s=PATIENCE_S, read_s=PATIENCE_S, settle_s=PATIENCE_S))
    clients.close()
    return workload


def test_undisturbed_run_has_no_anomaly(mock_cluster: str, tmp_path: Path) -> None:
    config = AppendConfig(
        topic=TOPIC,
        partitions=4,
        sends_per_s=1_000,
        weak_sends_per_s=20,
        abandon_every_s=0.8,
        look_every_s=0.1,
    )
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path) as history:
        workload = asyncio.run(_run(mock_cluster, config, history))
    events = list(read_history(path))
    kinds = {finding.kind for finding in check(events)}
    assert kinds <= {Anomaly.WRONG_OFFSET_FOR_TIME}  # the mock cluster finds no offset for any time
    verdict = count_run(events, 60)
    assert verdict.tally.acknowledged == workload.acknowledged
    assert not verdict.counts
    processes = {event.process for event in events if event.op == "send"}
    assert len(processes) > config.producers, "no producer was ever replaced"
    final = {value for event in events if event.op == "final" for _, value in event.records or ()}
    polled = {value for event in events if event.op == "poll" for _, value in event.records or ()}
    assert polled <= final
    assert polled


class MovedStart:
    """Readers of a log whose start moves from 0 to 3 before the first poll."""

    prefix = ""
    most_replicas = 3

    def __init__(self) -> None:
        self.starts = iter((0, 3))
        self.position = 0

    def wall_ms(self) -> int:
        return 0

    def reader(self, name: str, positions: Mapping[TopicPartition, int]) -> "MovedStart":
        (self.position,) = positions.values()
        return self

    async def log_start(self, place: TopicPartition) -> int:
        return next(self.starts)

    async def end_offset(self, place: TopicPartition) -> int:
        return 5

    async def poll(self, timeout_s: float) -> dict[TopicPartition, Polled]:
        if self.position < 3:
            raise PositionLostError(PLACE, self.position, "outside the log, which begins at 3")
        return {PLACE: Polled(((3, "d"), (4, "e")), 5)}

    async def close(self) -> None: ...


def test_last_read_begins_again_where_a_late_deletion_has_moved_the_start() -> None:
    history = MemoryHistory(lambda: 0)
    config = AppendConfig(topic=TOPIC, partitions=1, delete_every_s=1)
    workload = AppendWorkload(cast(OwnClients, MovedStart()), config, 1, history)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(workload._read_to_end(0, Limits(answers_s=9, read_s=9, settle_s=9)))
    found = {event.op: event.offset for event in history.events if event.op in ("final-start", "final-end")}
    assert found == {"final-start": 3, "final-end": 5}
