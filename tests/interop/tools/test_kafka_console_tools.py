"""Kafka's console and verifiable tools and ours on one node: the same records, lines, events and flags."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from pykraft.coordinator.partitioning import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, partition_for_key
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.list_offsets import LATEST_TIMESTAMP
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.node.cli.kafka_scripts.flags import TOOLS
from pykraft.testing import Cluster
from tests.interop.java_jars import RUN_TIMEOUT_S, KafkaTools
from tests.node.cli_runner import invoke

pytestmark = pytest.mark.interop

_TOOLS: Final = "org.apache.kafka.tools."
CLASSES: Final = {
    "kafka-console-producer": f"{_TOOLS}ConsoleProducer",
    "kafka-console-consumer": f"{_TOOLS}consumer.ConsoleConsumer",
    "kafka-producer-perf-test": f"{_TOOLS}ProducerPerformance",
    "kafka-consumer-perf-test": f"{_TOOLS}ConsumerPerformance",
    "kafka-verifiable-producer": f"{_TOOLS}VerifiableProducer",
    "kafka-verifiable-consumer": f"{_TOOLS}VerifiableConsumer",
}
_END_THE_JVM: Final = ("kafka-verifiable-producer", "kafka-verifiable-consumer")
"""They end it behind the back of the runner, and print their last lines then."""
_FLAG: Final = re.compile(r"^ *(?:-\w, )?(--[a-z][\w.-]*)", re.M)

LINES: Final = b"h1:v1,h2:NULL\tk1\tv1\nNULL\tNULL\tNULL\nh:,g::x\t\t\tv\tw\n\xc3\xa4:\xc3\xb6\tk\xc3\xbc\t\n"
READING: Final = ("parse.key=true", "parse.headers=true", "null.marker=NULL")

Consume = Callable[..., str]


@pytest.fixture
def both(single: Cluster, kafka_tools: KafkaTools) -> Consume:
    """What both console consumers print, each of a partition from its beginning; it must be the same."""

    def run(topic: str, partition: int, count: int, *words: str) -> str:
        server = ("--bootstrap-server", single.bootstrap_servers, "--topic", topic)
        command = (
            *server,
            "--partition",
            str(partition),
            "--from-beginning",
            "--max-messages",
            str(count),
            *words,
        )
        theirs = kafka_tools.run(CLASSES["kafka-console-consumer"], *command)
        ours = invoke("consumer", *command)
        assert (theirs.returncode, ours.exit_code) == (0, 0), theirs.stderr + ours.stderr
        assert ours.stderr == theirs.stderr
        # Kafka's formatters of internal topics write no ends of lines.
        out = theirs.stdout if theirs.stdout.endswith("\n") else "".join(_objects(theirs.stdout))
        assert ours.stdout == out
        return out

    return run


def _objects(text: str) -> Iterator[str]:
    """JSON objects with nothing between them, each as a line."""
    at = 0
    while at < len(text):
        _, end = json.JSONDecoder().raw_decode(text, at)
        yield text[at:end] + "\n"
        at = end


def alone(tools: KafkaTools, main_class: str, *words: str, stdin: bytes = b"") -> bytes:
    """The output of a tool in a JVM of its own."""
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{tools.jars}/*", main_class, *words],
        input=stdin,
        capture_output=True,
        timeout=RUN_TIMEOUT_S,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("script", CLASSES)
def test_flags_are_those_of_kafkas_tool(kafka_tools: KafkaTools, script: str) -> None:
    run = kafka_tools.run_alone if script in _END_THE_JVM else kafka_tools.run
    done = run(CLASSES[script], "--help")
    found = set(_FLAG.findall(done.stdout + done.stderr))
    (ours,) = (it for it in TOOLS if it.script == script)
    assert found - {"--help"} == set(ours.flags)


def test_lines_become_the_same_records_and_records_the_same_lines(
    single: Cluster, kafka_tools: KafkaTools, fresh: Callable[..., str], both: Consume
) -> None:
    by_kafka, by_us = fresh(), fresh()
    for topic in (by_kafka, by_us):
        single.create_topic(topic, 1)
    reading = [word for item in READING for word in ("--reader-property", item)]
    server = ("--bootstrap-server", single.bootstrap_servers, "--topic")
    alone(kafka_tools, CLASSES["kafka-console-producer"], *server, by_kafka, *reading, stdin=LINES)
    assert invoke("producer", *server, by_us, *reading, stdin=LINES).exit_code == 0
    parts = [f"--formatter-property=print.{part}=true" for part in ("key", "headers", "partition", "offset")]
    shown = [
        both(topic, 0, 4, *parts, "--formatter-property", "null.literal=~") for topic in (by_kafka, by_us)
    ]
    assert shown[0] == shown[1]
    assert shown[0].splitlines()[0] == "Partition:0\tOffset:0\th1:v1,h2:~\tk1\tv1"
    escaped = "headers.deserializer=org.apache.kafka.common.serialization.BytesDeserializer"
    printing = ("print.timestamp=true", "print.delivery=true", "print.headers=true", "print.value=false")
    separators = ("key.separator=|", "headers.separator=;", "line.separator=.\n")
    both(by_us, 0, 4, *(f"--formatter-property={it}" for it in (*printing, *separators, escaped)))


def test_internal_topics_are_shown_alike(single: Cluster, fresh: Callable[..., str], both: Consume) -> None:
    topic, name = fresh(), fresh("name")
    single.create_topic(topic, 1)
    server = ("--bootstrap-server", single.bootstrap_servers, "--topic", topic)
    load = ("--num-records", "3", "--payload-monotonic", "--throughput", "-1", "--transactional-id", name)
    assert invoke("producer-perf-test", *server, *load).exit_code == 0
    assert invoke("consumer-perf-test", *server, "--num-records", "3", "--group", name).exit_code == 0
    for internal, formatter, said in (
        (OFFSETS_TOPIC, "OffsetsMessageFormatter", '"offset":'),
        (OFFSETS_TOPIC, "GroupMetadataMessageFormatter", '"protocolType":"consumer"'),
        (TRANSACTION_STATE_TOPIC, "TransactionLogMessageFormatter", f'"transactionalId":"{name}"'),
    ):
        with AdminClient(single.bootstrap_servers) as admin:
            (described,) = admin.describe_topics([internal])
            where = TopicPartition(internal, partition_for_key(name, len(described.partitions)))
            end = admin.list_offsets({where: LATEST_TIMESTAMP})[where].offset or 0
        shown = both(
            internal, where.partition, end, "--formatter", f"org.apache.kafka.tools.consumer.{formatter}"
        )
        assert said in shown


def test_verifiable_tools_print_the_same_events(
    single: Cluster, kafka_tools: KafkaTools, fresh: Callable[..., str]
) -> None:
    topics = {"theirs": fresh(), "ours": fresh()}
    for topic in topics.values():
        single.create_topic(topic, 1)
    server = ("--bootstrap-server", single.bootstrap_servers, "--max-messages", "3")
    produce = (*server, "--value-prefix", "1", "--repeating-keys", "2", "--topic")
    # By the classic protocol a group would wait for members.
    consume = (*server, "--verbose", "--group-id", fresh("group"), "--group-protocol", "consumer", "--topic")
    written, read = (CLASSES[f"kafka-verifiable-{role}"] for role in ("producer", "consumer"))
    theirs = alone(kafka_tools, written, *produce, topics["theirs"]).decode()
    ours = invoke("verifiable-producer", *produce, topics["ours"]).stdout
    assert events(ours, topics["ours"]) == events(theirs, topics["theirs"])
    theirs = kafka_tools.check(read, *consume, topics["theirs"])
    ours = invoke("verifiable-consumer", *consume, topics["ours"]).stdout
    assert events(ours, topics["ours"]) == events(theirs, topics["theirs"])


def events(printed: str, topic: str) -> list[dict[str, Any]]:
    """Without what differs from run to run."""
    found = [json.loads(line) for line in printed.replace(topic, "TOPIC").splitlines()]
    for event in found:
        assert list(event)[:2] == ["timestamp", "name"]
        del event["timestamp"]
        event.pop("avg_throughput", None)
    return found
