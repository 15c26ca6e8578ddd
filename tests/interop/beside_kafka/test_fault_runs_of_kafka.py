"""Fault runs against others: Apache Kafka under faults, any cluster by its address, Kafka's own client."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pykraft.jepsen_like.faults.clients.interface import (
    OperationError,
    PositionLostError,
    ProducerConfig,
    Reader,
    RefusedError,
    UnknownOutcomeError,
)
from pykraft.jepsen_like.faults.clients.java import JavaClients
from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.reports.report import Result
from pykraft.jepsen_like.faults.runs.run_config import RunConfig
from pykraft.jepsen_like.faults.runs.runner import run
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.testing import Cluster
from pykraft.testing.processes.kafka_jars import NoKafkaError, find_clients, find_server
from pykraft.testing.processes.systems import Kafka
from tests.interop.conftest import NewTopic
from tests.interop.java_jars import FETCH_TIMEOUT_S

pytestmark = [pytest.mark.interop, pytest.mark.slow]

NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def kafka_jars() -> Path:
    try:
        return find_server(logs=True, timeout_s=FETCH_TIMEOUT_S)
    except NoKafkaError as error:
        pytest.skip(f"FAULT RUNS OF KAFKA NOT TESTED: {error}")


@pytest.fixture(scope="module")
def java() -> None:
    try:
        find_clients(timeout_s=FETCH_TIMEOUT_S)
    except NoKafkaError as error:
        pytest.skip(f"FAULT RUNS BY THE JAVA CLIENT NOT TESTED: {error}")


@pytest.fixture(scope="module")
def kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """One node of Apache Kafka."""
    directory = tmp_path_factory.mktemp("kafka") / "cluster"
    with ProcessCluster(directory, 1, system=Kafka(kafka_jars)) as cluster:
        cluster.format()
        try:
            cluster.start()
        except Exception as error:
            pytest.fail(f"Kafka did not start: {error}\n{cluster.output_tails()}", pytrace=False)
        yield cluster
        assert cluster.stop() == [], cluster.output_tails()


def judged(directory: Path, **config: Any) -> tuple[Result, str]:
    """A run that must show no anomaly, and what it printed."""
    console = Console(record=True, width=120)
    result = run(RunConfig(out_dir=directory, seed=5, **config), console)
    text = console.export_text()
    assert result.findings == (), text
    return result, text


def topics_of(bootstrap_servers: str) -> set[str]:
    """Without those of the brokers."""
    with AdminClient(bootstrap_servers) as admin:
        return {topic.name for topic in admin.list_topics()}


@pytest.mark.usefixtures("kafka_jars")
def test_kafka_survives_signals(tmp_path: Path) -> None:
    result, text = judged(tmp_path, system="kafka", nemesis="signals", tier="bare", time_limit_s=15)
    assert result.verdict.tally.faults >= 1, text
    assert result.verdict.tally.acknowledged >= 1, text
    output = next(tmp_path.glob("*/cluster/node-1.log")).read_text("utf-8", "replace")
    assert "KafkaServer" in output or "KafkaRaftServer" in output or "BrokerServer" in output


def test_cluster_of_somebody_else_is_left_as_it_was(trio: Cluster, tmp_path: Path) -> None:
    before = topics_of(trio.bootstrap_servers)
    result, text = judged(tmp_path, bootstrap_servers=trio.bootstrap_servers, time_limit_s=5)
    assert result.verdict.counts, text
    assert result.nodes == 3
    assert "NOT CHECKED: leaderships" in text
    assert topics_of(trio.bootstrap_servers) == before


def test_groups_on_the_cluster_of_somebody_else_are_removed(trio: Cluster, tmp_path: Path) -> None:
    judged(tmp_path, bootstrap_servers=trio.bootstrap_servers, workload="transactions", time_limit_s=5)
    with trio.admin() as admin:
        groups = [group.group_id for group in admin.list_groups()]
    assert not [group for group in groups if group.startswith("pykraft-jepsen-")]


@pytest.mark.parametrize("client", ["confluent", "java"])
def test_one_node_of_kafka_is_judged_like_any_cluster(
    kafka: ProcessCluster, java: None, tmp_path: Path, client: str
) -> None:
    before = topics_of(kafka.bootstrap_servers)
    result, text = judged(tmp_path, bootstrap_servers=kafka.bootstrap_servers, client=client, time_limit_s=5)
    assert result.verdict.tally.acknowledged >= 1, text
    assert topics_of(kafka.bootstrap_servers) == before


@pytest.mark.usefixtures("java")
def test_java_client_under_signals(tmp_path: Path) -> None:
    result, text = judged(tmp_path, client="java", nemesis="signals", tier="bare", time_limit_s=12)
    assert result.verdict.tally.acknowledged >= 1, text


@pytest.mark.usefixtures("java")
def test_java_client_says_what_is_certain(trio: Cluster, new_topic: NewTopic) -> None:
    here = TopicPartition(new_topic(1, max_message_bytes="20000"), 0)
    nowhere = TopicPartition("there-is-no-such-topic", 0)

    async def play(clients: JavaClients) -> None:
        producer = clients.producer(ProducerConfig("p"))
        answers = [
            producer.send(here, "a value, +%!é", NOW_MS),
            producer.send(here, "v", NOW_MS, "k"),
            producer.send(here, None, NOW_MS, "k"),
            producer.send(here, "x" * 30_000, NOW_MS),
            producer.send(nowhere, "never sent", NOW_MS),
        ]
        await asyncio.wait(filter(None, answers[:4]))
        await producer.close()
        outcomes = await asyncio.gather(*filter(None, answers), return_exceptions=True)
        assert outcomes[:3] == [0, 1, 2]
        assert [type(outcome) for outcome in outcomes[3:]] == [RefusedError, RefusedError]
        unsure = clients.producer(ProducerConfig("w", acks=0, idempotent=False))
        answer = unsure.send(here, "last", NOW_MS)
        assert answer is not None and await answer is None
        await unsure.close()
        await read(clients, here, nowhere)

    with closing(JavaClients(trio.bootstrap_servers)) as clients:
        asyncio.run(play(clients))


async def read(clients: JavaClients, here: TopicPartition, nowhere: TopicPartition) -> None:
    reader = clients.reader("r", {here: 1})
    records: list[tuple[int, str]] = []
    while len(records) < 3:
        records += [record for polled in (await reader.poll(1)).values() for record in polled.records]
    assert records == [(1, "k=v"), (2, "k"), (3, "last")]
    assert await eventually(lambda: reader.end_offset(here)) == 4
    assert await eventually(lambda: reader.log_start(here)) == 0
    with pytest.raises(UnknownOutcomeError):
        await reader.end_offset(nowhere)
    await reader.close()
    beyond = clients.reader("beyond", {here: 99})
    with pytest.raises(PositionLostError) as lost:
        await poll_for_ever(beyond)
    assert (lost.value.partition, lost.value.offset) == (here, 99)
    await beyond.close()


async def poll_for_ever(reader: Reader) -> None:
    while True:
        await reader.poll(1)


async def eventually(look_up: Callable[[], Awaitable[int]]) -> int:
    """On a busy machine an answer may take longer than the client waits for it."""
    while True:
        try:
            return await look_up()
        except OperationError:
            continue
