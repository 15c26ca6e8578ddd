"""Kafka's own tools against brokers: moves of replicas, dynamic properties, log levels, client metrics."""

import asyncio
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from pykraft.node.cli.root import cli
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.interop.java_jars import KafkaTools
from tests.node.sites import Site, create, run_node

pytestmark = pytest.mark.interop

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
METRICS = "org.apache.kafka.tools.ClientMetricsCommand"

NewTopic = Callable[..., str]
Ask = Callable[..., str]


@pytest.fixture
def ask(trio: Cluster, kafka_tools: KafkaTools) -> Ask:
    """Run a tool that must succeed."""

    def run(tool: str, *arguments: object) -> str:
        return kafka_tools.check(tool, "--bootstrap-server", trio.bootstrap_servers, *arguments)

    return run


def described_when(ask: Ask, is_expected: Callable[[str], bool], *entity: object) -> str:
    """What is described once the broker that is asked has learnt of the change."""
    texts: list[str] = []

    def is_described() -> bool:
        texts.append(ask(CONFIGS, "--describe", *entity))
        return is_expected(texts[-1])

    wait_until("described", is_described, PATIENCE_S)
    return texts[-1]


@pytest.mark.parametrize("throttle", [(), ("--throttle", "1000000")])
def test_replicas_are_moved_verified_and_cancelled(
    ask: Ask, new_topic: NewTopic, tmp_path: Path, throttle: tuple[str, ...]
) -> None:
    topic = new_topic()
    file = tmp_path / "move.json"
    file.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [3, 1]}]}),
        encoding="utf-8",
    )
    move = ("--reassignment-json-file", file)
    assert "Successfully started" in ask(REASSIGN, "--execute", *throttle, *move)
    verified = ask(REASSIGN, "--verify", *move)
    assert f"Reassignment of partition {topic}-0 is" in verified
    cancelled = ask(REASSIGN, "--cancel", *move)
    assert "Clearing topic-level throttles" in cancelled
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    described_when(ask, lambda text: "throttled" not in text, *broker)  # no throttle is left


def test_moves_are_prepared_throttled_and_verified_as_by_own_tool(
    ask: Ask, trio: Cluster, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic()
    topics, file = tmp_path / "topics.json", tmp_path / "move.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}), encoding="utf-8")

    def own(*arguments: object) -> str:
        given = ["--bootstrap-server", trio.bootstrap_servers, *map(str, arguments)]
        return CliRunner().invoke(cli, ["reassign-partitions", *given]).stdout

    generate = ("--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2,3")
    wait_until(
        "each broker has its replica", lambda: '"any"' not in own(*generate).splitlines()[1], PATIENCE_S
    )
    by_kafka, by_pykraft = (tool(*generate).splitlines() for tool in (partial(ask, REASSIGN), own))
    assert by_kafka[:4] == by_pykraft[:4]
    shapes = [json.loads(lines[4])["partitions"] for lines in (by_kafka, by_pykraft)]
    first, second = ([(it["partition"], len(it["replicas"])) for it in shape] for shape in shapes)
    assert first == second and shapes[0][0].keys() == shapes[1][0].keys()
    file.write_text(by_pykraft[4], encoding="utf-8")
    move = ("--reassignment-json-file", file)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    described = []
    for tool in (partial(ask, REASSIGN), own):
        printed = tool("--execute", "--additional", "--throttle", 100_000_000, *move).splitlines()
        assert "The inter-broker throttle limit was set to 100000000 B/s" in printed
        assert printed[-1].startswith("Successfully started partition reassignment")
        described.append(described_when(ask, lambda text: "throttled" in text, *entity))
        verified: list[str] = []
        while not verified or any("in progress" in line for line in verified):
            verified = tool("--verify", *move).splitlines()
        assert verified[-1] == f"Clearing topic-level throttles on topic {topic}"
        described_when(ask, lambda text: "throttled" not in text, *entity)
    assert all("leader.replication.throttled.replicas=" in text for text in described)


def test_moves_between_directories_are_begun_shown_and_cancelled_as_by_own_tool(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    site, file = Site(tmp_path, log_voters=False), tmp_path / "move.json"
    site.format()
    first, second = str(site.first), str(site.second)

    def own(*arguments: object) -> str:
        given = ["--bootstrap-server", site.broker, *map(str, arguments)]
        return CliRunner().invoke(cli, ["reassign-partitions", *given]).output

    def by_kafka(*arguments: object) -> str:
        return kafka_tools.run(REASSIGN, "--bootstrap-server", site.broker, *arguments).stdout

    def use(path: str) -> tuple[object, ...]:
        partition = {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [path]}
        file.write_text(json.dumps({"version": 1, "partitions": [partition]}), encoding="utf-8")
        return "--reassignment-json-file", file

    def both() -> None:
        create(site, "t")
        producer = Producer({"bootstrap.servers": site.broker, "acks": "all"})
        producer.produce("t", b"v" * 500_000)  # minutes, by the throttle below
        assert producer.flush(30) == 0
        places = {first: second, second: first}
        for tool in (by_kafka, own):
            assert "Error: Failed to alter dir for t-0-1" in tool("--execute", *use("/none"))
        printed = []
        for tool in (by_kafka, own):
            current = json.loads(own("--execute", *use("any")).splitlines()[2])
            (where,) = current["partitions"][0]["log_dirs"]
            target = places[where]
            lines = tool(
                *("--execute", "--replica-alter-log-dirs-throttle", 1000, "--throttle", 1_000_000),
                *("--disallow-replication-factor-change", "--timeout", 20_000),
                *use(target),
            )
            shown = tool("--verify", *use(target))
            elsewhere = tool("--verify", "--preserve-throttles", *use("/none"))
            cancelled = tool("--cancel", "--preserve-throttles", *use(target))
            wait_until(
                "cancelled",
                lambda: "not being moved" in own("--verify", "--preserve-throttles", *use("/none")),
                PATIENCE_S,
            )
            again = tool("--cancel", "--preserve-throttles", *use(target))
            cleared = tool("--verify", *use(where))
            texts = [lines, shown, elsewhere, cancelled, again, cleared]
            printed.append(
                # Kafka's tool does not always end its last line.
                [text.replace(where, "HERE").replace(target, "THERE").rstrip("\n") for text in texts]
            )
        assert printed[0] == printed[1]

    assert asyncio.run(run_node(site, both)) == []


def test_records_are_deleted_and_the_same_offsets_listed_as_by_own_tools(
    ask: Ask, trio: Cluster, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": trio.bootstrap_servers, "acks": "all"})
    for number in range(5):
        producer.produce(topic, b"v", partition=0, timestamp=1000 * (number + 1))
    assert producer.flush(30) == 0
    file = tmp_path / "offsets.json"

    def delete(offset: int) -> tuple[object, ...]:
        items = [{"topic": topic, "partition": 0, "offset": offset}]
        file.write_text(json.dumps({"version": 1, "partitions": items}), encoding="utf-8")
        return "--offset-json-file", file

    def own(command: str, *arguments: object) -> str:
        given = ["--bootstrap-server", trio.bootstrap_servers, *map(str, arguments)]
        return CliRunner().invoke(cli, [command, *given]).stdout

    by_kafka = ask(DELETE_RECORDS, *delete(2))
    assert by_kafka == own("delete-records", *delete(2))
    assert f"partition: {topic}-0\tlow_watermark: 2" in by_kafka.splitlines()
    assert "error: " in ask(DELETE_RECORDS, *delete(9))
    for asked in (
        *(("--topic", topic, "--time", time) for time in ("-1", "-2", "-3", "-4", "-5", "4500", "earliest")),
        ("--topic-partitions", f"{topic}:0-1"),
        ("--topic-partitions", f":-1,{topic}:0", "--exclude-internal-topics"),
        ("--topic", f"{topic},none", "--partitions", "0"),
    ):
        assert ask(GET_OFFSETS, *asked) == own("get-offsets", *asked), asked


def test_dynamic_properties_are_set_described_and_deleted(ask: Ask) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", "2")
    ask(CONFIGS, "--alter", *entity, "--add-config", "num.io.threads=16,leader.replication.throttled.rate=5")
    described = described_when(ask, lambda text: "throttled.rate=5" in text, *entity)
    assert re.search(r"num\.io\.threads=16 .*DEFAULT_CONFIG:num\.io\.threads=8", described)
    names = "num.io.threads,leader.replication.throttled.rate"
    ask(CONFIGS, "--alter", *entity, "--delete-config", names)
    described_when(ask, lambda text: "threads" not in text, *entity)


def test_log_levels_are_set_described_and_reset(ask: Ask) -> None:
    entity, logger = ("--entity-type", "broker-loggers", "--entity-name", "2"), "pykraft.quorum.driver"
    ask(CONFIGS, "--alter", *entity, "--add-config", f"{logger}=DEBUG")
    assert f"{logger}=DEBUG" in ask(CONFIGS, "--describe", *entity)
    ask(CONFIGS, "--alter", *entity, "--delete-config", logger)
    assert f"{logger}=INFO" in ask(CONFIGS, "--describe", *entity)


def test_subscriptions_to_client_metrics_are_stored(ask: Ask) -> None:
    ask(METRICS, "--alter", "--name", "sub", "--metrics", "a.b,c", "--interval", 1000)
    wait_until("listed", lambda: "sub" in ask(METRICS, "--list").split(), PATIENCE_S)

    def is_described() -> bool:
        described = ask(METRICS, "--describe", "--name", "sub")
        return "interval.ms=1000" in described and "metrics=a.b,c" in described

    wait_until("described", is_described, PATIENCE_S)
    ask(METRICS, "--delete", "--name", "sub")
    wait_until("deleted", lambda: "sub" not in ask(METRICS, "--list").split(), PATIENCE_S)
