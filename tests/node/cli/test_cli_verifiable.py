"""``verifiable-producer`` and ``verifiable-consumer`` on a node in the process of the test."""

import json
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from pykraft.testing import Cluster, ErrorCode
from tests.node.cli_runner import invoke

Event = dict[str, Any]
Run = Callable[..., Result]


@pytest.fixture
def produce(kafka: Cluster, kafka_topic: str) -> Run:
    server = ("--bootstrap-server", kafka.bootstrap_servers)
    return lambda *words: invoke("verifiable-producer", *server, "--topic", kafka_topic, *words)


@pytest.fixture
def consume(kafka: Cluster, kafka_topic: str) -> Run:
    where = ("--bootstrap-server", kafka.bootstrap_servers, "--topic", kafka_topic, "--group-id", kafka_topic)
    return lambda *words: invoke("verifiable-consumer", *where, *words)


def events(result: Result, status: int = 0) -> list[Event]:
    """The events without their times, which are those of now, in order."""
    assert result.exit_code == status, result.output
    found = [json.loads(line) for line in result.stdout.splitlines()]
    times_ms = [event.pop("timestamp") for event in found]
    assert times_ms == sorted(times_ms) and time.time() * 1000 - times_ms[0] < 60_000
    return found


def names(found: Sequence[Event]) -> list[str]:
    return [event["name"] for event in found]


@pytest.mark.parametrize(
    ("code", "exception"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, "NotEnoughReplicasException"),
        (ErrorCode.MESSAGE_TOO_LARGE, "RecordTooLargeException"),
        (ErrorCode.INVALID_RECORD, "InvalidRecordException"),
    ],
)
def test_record_that_is_refused_is_not_sent_again(
    kafka: Cluster, kafka_topic: str, produce: Run, code: ErrorCode, exception: str
) -> None:
    kafka.refuse("Produce", code, times=1)
    printed = events(produce("--max-messages", "1", "--acks", "1", "--throughput", "20"))
    failed = printed[1]
    assert (failed["name"], failed["topic"], failed["value"]) == ("producer_send_error", kafka_topic, "0")
    assert failed["exception"] == f"class org.apache.kafka.common.errors.{exception}"
    assert failed["message"]
    assert (printed[-1]["sent"], printed[-1]["acked"], printed[-1]["target_throughput"]) == (1, 0, 20)
    assert kafka.read(kafka_topic) == []


def test_record_that_the_client_refuses_is_an_error_of_its_own(produce: Run, tmp_path: Path) -> None:
    file = tmp_path / "client"
    file.write_text("max.request.size=1000\n", encoding="utf-8")
    printed = events(produce("--max-messages", "1", "--producer.config", file, "--value-prefix", "1" * 2000))
    assert names(printed) == ["startup_complete", "producer_send_error", "shutdown_complete", "tool_data"]
    assert printed[1]["exception"] == "class org.apache.kafka.common.errors.RecordTooLargeException"


def test_commit_that_fails_is_said_and_nothing_is_read_twice(
    kafka: Cluster, kafka_topic: str, consume: Run
) -> None:
    kafka.produce(kafka_topic, *"abc")
    kafka.refuse("OffsetCommit", ErrorCode.INVALID_COMMIT_OFFSET_SIZE, times=1)
    first = events(consume("--max-messages", "1"))
    (commit,) = (event for event in first if event["name"] == "offsets_committed")
    assert commit["success"] is False and commit["error"]
    second = events(consume("--max-messages", "2", "--enable-autocommit"))
    assert "offsets_committed" not in names(second)
    (consumed,) = (
        event for event in events(consume("--max-messages", "1")) if event["name"] == "records_consumed"
    )
    assert consumed["partitions"][0]["minOffset"] == 2


def test_group_without_an_offset_and_without_a_reset_ends_the_tool(kafka: Cluster, consume: Run) -> None:
    ended = consume("--reset-policy", "none")
    assert names(events(ended, status=1))[-1] == "shutdown_complete"
    assert "No offset stored" in ended.stderr


@pytest.mark.slow
def test_tools_that_are_stopped_end_in_order(
    kafka: Cluster, kafka_topic: str, start_pykraft: Callable[..., Any]
) -> None:
    where = ("--bootstrap-server", kafka.bootstrap_servers, "--topic", kafka_topic)
    with (
        start_pykraft("verifiable-consumer", *where, "--group-id", "g") as consumer,
        start_pykraft("verifiable-producer", *where, "--throughput", "0") as producer,
    ):
        consumer.wait_for("offsets_committed")
        assert producer.stop(signal.SIGTERM) == 128 + signal.SIGTERM
        assert consumer.stop(signal.SIGINT) == 128 + signal.SIGINT
    ends = [[json.loads(line) for line in it.printed.splitlines()] for it in (producer, consumer)]
    assert names(ends[0]) == ["startup_complete", "producer_send_success", "shutdown_complete", "tool_data"]
    assert names(ends[1])[-3:] == ["shutdown_requested", "partitions_revoked", "shutdown_complete"]
