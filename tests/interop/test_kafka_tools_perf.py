"""Kafka's performance tools and the own ones: the same lines, but for the figures in them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from pykraft.jepsen_like.process_cluster import ProcessCluster
from pykraft.node.cli.root import cli
from tests.interop.java_jars import KafkaTools

pytestmark = pytest.mark.interop

PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"

NewTopic = Callable[..., str]


def shape(text: str) -> list[str]:
    """The different lines, with each digit run after a decimal point by its length, and no other figure."""

    def figure(match: re.Match[str]) -> str:
        places = match[2]
        return "N" if places is None else "N." + "d" * len(places)

    lines = [re.sub(r"-?(\d+|Infinity|NaN)(?:\.(\d+))?", figure, line) for line in text.splitlines()]
    return list(dict.fromkeys(lines))


@pytest.fixture
def own(single: ProcessCluster) -> Callable[..., str]:
    def run(command: str, *arguments: str) -> str:
        ran = CliRunner().invoke(cli, [command, "--bootstrap-server", single.bootstrap_servers, *arguments])
        assert ran.exit_code == 0, ran.output
        return ran.stdout

    return run


@pytest.fixture
def kafkas(single: ProcessCluster, kafka_tools: KafkaTools) -> Callable[..., str]:
    def run(tool: str, *arguments: str) -> str:
        return kafka_tools.check(tool, "--bootstrap-server", single.bootstrap_servers, *arguments)

    return run


def test_lines_are_those_of_kafkas_tools(own: Callable[..., str], kafkas: Callable[..., str]) -> None:
    written = ("--topic", "perf-shapes", "--record-size", "100", "--throughput", "500")
    paced = (*written, "--num-records", "600", "--warmup-records", "100", "--reporting-interval", "400")
    # Kafka's tool creates the topic; the own one does not.
    by_kafka = shape(kafkas(PRODUCER, *paced, "--command-property", "acks=1", "linger.ms=1"))
    assert len(by_kafka) == 5
    assert by_kafka == shape(own("producer-perf-test", *paced, "--command-property", "acks=1", "linger.ms=1"))
    deprecated = (*written, "--num-records", "1", "--producer-props", "acks=1")
    assert shape(kafkas(PRODUCER, *deprecated)) == shape(own("producer-perf-test", *deprecated))

    read = ("--topic", "perf-shapes")
    for asked in (
        ("--num-records", "1000"),
        ("--messages", "100000", "--timeout", "600"),
        ("--num-records", "1", "--hide-header"),
        ("--num-records", "1", "--date-format", "EEE, d MMM yy h:mm a Z"),
        ("--num-records", "1000", "--show-detailed-stats", "--reporting-interval", "1"),
    ):
        assert shape(kafkas(CONSUMER, *read, *asked)) == shape(own("consumer-perf-test", *read, *asked)), (
            asked
        )
