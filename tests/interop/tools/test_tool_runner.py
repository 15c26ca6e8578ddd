"""Kafka's tools that share one JVM print and end as in a JVM of their own."""

import shutil

import pytest

from tests.interop.java_jars import KafkaTools

pytestmark = pytest.mark.interop

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
METRICS = "org.apache.kafka.tools.ClientMetricsCommand"


@pytest.mark.parametrize(
    ("tool", "arguments", "status", "said"),
    [
        pytest.param(TRANSACTIONS, ("--version",), 0, "4.3.0", id="exits well"),
        pytest.param(TRANSACTIONS, ("--bootstrap-server", "x", "list"), 1, "Invalid url", id="throws"),
        pytest.param(GROUPS, ("--validate-regex", "ä("), 0, "`ä(` is invalid", id="returns"),
        pytest.param(
            METRICS,
            ("--bootstrap-server", "127.0.0.1:1"),
            1,
            "exactly one action",
            id="exits where it would catch all that is thrown",
        ),
    ],
)
def test_tool_ends_as_in_a_jvm_of_its_own(
    kafka_tools: KafkaTools, tool: str, arguments: tuple[str, ...], status: int, said: str
) -> None:
    alone, together = kafka_tools.run_alone(tool, *arguments), kafka_tools.run(tool, *arguments)
    assert (alone.returncode, together.returncode) == (status, status)
    assert said in alone.stdout + alone.stderr
    assert together.stdout == alone.stdout
    without_frames = [
        [line for line in text.splitlines() if not line.startswith(("\t", "SLF4J"))]
        for text in (together.stderr, alone.stderr)
    ]
    assert without_frames[0] == without_frames[1]


@pytest.mark.skipif(shutil.which("javac") is None, reason="without a compiler each tool has its own JVM")
def test_tool_that_ends_the_jvm_fails_its_test_and_the_next_tool_has_a_new_one(
    kafka_tools: KafkaTools,
) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"NoSuchTool"):
        kafka_tools.run("NoSuchTool")
    assert kafka_tools.check(TRANSACTIONS, "--version").startswith("4.3.0")
