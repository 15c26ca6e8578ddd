"""Kafka's performance tools and the own ones: the same lines, but for the figures in them."""

import re
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from pykraft.node.cli.root import cli
from pykraft.testing import Cluster
from tests.interop.java_jars import KafkaTools

pytestmark = pytest.mark.interop

PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"

NewTopic = Callable[..., str]


def shapes(text: str) -> set[str]:
    """The lines with each figure replaced by its number of decimals.

    Which intervals and warnings come first depends on the machine.
    """

    def figure(match: re.Match[str]) -> str:
        return "N" + "." * len(match[1] or "")

    return {re.sub(r"-?(?:\d+|Infinity|NaN)(?:\.(\d+))?", figure, line) for line in text.splitlines()}


@pytest.fixture
def own(single: Cluster) -> Callable[..., str]:
    def run(command: str, *arguments: str) -> str:
        ran = CliRunner().invoke(cli, [command, "--bootstrap-server", single.bootstrap_servers, *arguments])
        assert ran.exit_code == 0, ran.output
        return ran.stdout

    return run


@pytest.fixture
def kafkas(single: Cluster, kafka_tools: KafkaTools) -> Callable[..., str]:
    def run(tool: str, *arguments: str) -> str:
        return kafka_tools.check(tool, "--bootstrap-server", single.bootstrap_servers, *arguments)

    return run


def test_lines_are_those_of_kafkas_tools(own: Callable[..., str], kafkas: Callable[..., str]) -> None:
    written = ("--topic", "perf-shapes", "--record-size", "100", "--throughput", "500")
    deprecated = (*written, "--num-records", "1", "--producer-props", "acks=1")
    # Kafka's tool creates the topic; the own one does not.
    assert shapes(kafkas(PRODUCER, *deprecated)) == shapes(own("producer-perf-test", *deprecated))
    paced = (
        *(*written, "--num-records", "600", "--warmup-records", "100", "--reporting-interval", "1"),
        *("--command-property", "acks=1", "linger.ms=1"),
    )
    by_kafka = shapes(kafkas(PRODUCER, *paced))
    assert len(by_kafka) == 5, "of the warm-up, steady state, an interval, and two summaries"
    assert by_kafka == shapes(own("producer-perf-test", *paced))

    read = ("--topic", "perf-shapes")
    for asked in (
        ("--num-records", "1000"),
        ("--messages", "100000", "--timeout", "600"),
        ("--num-records", "1", "--hide-header", "--date-format", "EEE, d MMM yy h:mm a Z"),
        ("--num-records", "1000", "--show-detailed-stats", "--reporting-interval", "1"),
    ):
        by_kafka = shapes(kafkas(CONSUMER, *read, *asked))
        assert by_kafka == shapes(own("consumer-perf-test", *read, *asked)), asked
