"""``pykraft consumer`` on a node in the process of the test."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from click.testing import Result
from confluent_kafka import Producer

from pykraft.testing import Cluster
from tests.node.cli_runner import invoke

Consume = Callable[..., Result]

NO_TOPICS = pytest.mark.kafka(properties={"auto.create.topics.enable": "false"})


@pytest.fixture
def consume(kafka: Cluster) -> Consume:
    return lambda *words: invoke("consumer", "--bootstrap-server", kafka.bootstrap_servers, *words)


@pytest.fixture
def meanwhile() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Do something while the test goes on; what fails in it fails the test."""
    with ThreadPoolExecutor(1) as pool:
        begun = []
        yield lambda work: begun.append(pool.submit(work))
        for one in begun:
            one.result()


def values(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_topics_that_match_are_read_also_one_that_is_created_later(
    kafka: Cluster, kafka_topic: str, consume: Consume, meanwhile: Callable[..., None]
) -> None:
    kafka.produce(kafka.create_topic(f"{kafka_topic}.1"), "first")
    kafka.produce(kafka.create_topic(f"x{kafka_topic}.1"), "not at the start of the name")

    def create() -> None:
        kafka.produce(kafka.create_topic(f"{kafka_topic}.2"), "second")

    meanwhile(create)
    read = consume(
        *("--include", rf"{kafka_topic}\.\d|__consumer_offsets", "--from-beginning", "--max-messages", "2"),
        *("--command-property", "metadata.max.age.ms=50"),
    )
    assert sorted(values(read)) == ["first", "second"]


def test_group_goes_on_after_the_last_record_that_was_printed(
    kafka: Cluster, kafka_topic: str, consume: Consume
) -> None:
    kafka.produce(kafka_topic, *"abc")
    of_group = ("--topic", kafka_topic, "--command-property", f"group.id={kafka_topic}", "--from-beginning")
    assert values(consume(*of_group, "--max-messages", "2")) == ["a", "b"]
    assert values(consume(*of_group, "--max-messages", "1", "--group", kafka_topic)) == ["c"]
    shown = consume(
        *("--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "1500"),
        *("--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"),
    )
    commits = [json.loads(line) for line in values(shown)]
    key = {"group": kafka_topic, "topic": kafka_topic, "partition": 0}
    assert [it["value"]["data"]["offset"] for it in commits if it["key"]["data"] == key] == [2, 3]


def test_records_of_aborted_transactions_are_left_out_if_so_asked(
    kafka: Cluster, kafka_topic: str, consume: Consume
) -> None:
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": kafka_topic, "log_level": 0}
    )
    producer.init_transactions(10)
    for value, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(kafka_topic, value)
        producer.flush(10)
        end(10)
    start = (
        "--topic",
        kafka_topic,
        "--partition",
        "0",
        "--from-beginning",
        "--timeout-ms",
        "20000",
        "--max-messages",
    )
    assert values(consume(*start, "2")) == ["aborted", "committed"]
    assert values(consume(*start, "1", "--isolation-level", "read_committed")) == ["committed"]
    logged = consume(
        *("--topic", "__transaction_state", "--from-beginning", "--timeout-ms", "1500"),
        *("--formatter", "transaction-log"),
    )
    states = [json.loads(line) for line in values(logged)]
    ended = [
        it["value"]["data"]["transactionStatus"]
        for it in states
        if it["key"]["data"]["transactionalId"] == kafka_topic
    ]
    assert 4 in ended and 5 in ended, "complete commit, complete abort"


@NO_TOPICS
def test_topic_that_does_not_exist_yet_is_waited_for(
    kafka: Cluster, consume: Consume, meanwhile: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykraft.node.cli.console.topic_subscription._MISSING_RETRY_S", 0.02)
    warned: list[str] = []

    def create() -> None:
        kafka.produce(kafka.create_topic("late"), "1")

    def warn(text: str, **_: object) -> None:
        if not warned:
            meanwhile(create)
        warned.append(text)

    monkeypatch.setattr("pykraft.node.cli.console.topic_subscription.click.echo", warn)
    read = consume("--topic", "late", "--from-beginning", "--max-messages", "1")
    assert (read.exit_code, read.stdout) == (0, "1\n")
    assert warned[0] == "warning: there is no topic late yet"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_command_in_order(
    kafka: Cluster, kafka_topic: str, start_pykraft: Callable[..., Any], number: signal.Signals
) -> None:
    kafka.produce(kafka_topic, "1")
    server = ("--bootstrap-server", kafka.bootstrap_servers)
    with start_pykraft("consumer", *server, "--topic", kafka_topic, "--from-beginning") as running:
        running.wait_for("1")
        assert running.stop(number) == 128 + number
        assert running.printed == "1\nProcessed a total of 1 messages\n"


@pytest.mark.slow
def test_command_ends_quietly_when_nobody_reads_its_output(kafka: Cluster, kafka_topic: str) -> None:
    kafka.produce(kafka_topic, *(["x" * 1000] * 200))
    command = (
        sys.executable,
        "-m",
        "pykraft.node",
        "consumer",
        "--bootstrap-server",
        kafka.bootstrap_servers,
    )
    with subprocess.Popen(
        [*command, "--topic", kafka_topic, "--from-beginning", "--group", kafka_topic],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as consumer:
        assert consumer.stdout is not None and consumer.stderr is not None
        assert len(consumer.stdout.readline()) == 1001
        consumer.stdout.close()
        kafka.produce(kafka_topic, "the pipe is found broken when this is written")
        said = consumer.stderr.read().decode()
        assert consumer.wait() == 0
    assert said.startswith("Processed a total of ") and said.count("\n") == 1
