"""``producer-perf-test`` and ``consumer-perf-test`` on a node in the process of the test."""

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from pykraft.testing import Cluster, ErrorCode
from tests.node.cli_runner import invoke

Run = Callable[..., Result]

PROGRESS = (
    r"\d+ records sent, \d+\.\d records/sec \(\d+\.\d\d MB/sec\), "
    r"\d+\.\d ms avg latency, \d+\.\d ms max latency\."
)
SUMMARY = (
    r"(\d+)( steady state)? records sent, \d+\.\d{6} records/sec \(\d+\.\d\d MB/sec\), "
    r"\d+\.\d\d ms avg latency, \d+\.\d\d ms max latency, "
    r"\d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)


@pytest.fixture
def produce(kafka: Cluster, kafka_topic: str) -> Run:
    where = ("--bootstrap-server", kafka.bootstrap_servers, "--topic", kafka_topic)
    return lambda *words: invoke("producer-perf-test", *where, *words)


@pytest.fixture
def consume(kafka: Cluster, kafka_topic: str) -> Run:
    where = ("--bootstrap-server", kafka.bootstrap_servers, "--group", f"group-{kafka_topic}")
    return lambda *words: invoke("consumer-perf-test", *where, *words)


@pytest.mark.kafka(partitions=2)
def test_every_record_is_written_counted_and_read_again(
    kafka: Cluster, kafka_topic: str, consume: Run
) -> None:
    written = invoke(
        *("producer-perf-test", "--topic", kafka_topic, "--num-records", "3000", "--record-size", "100"),
        *("--throughput", "-1", "--warmup-records", "500", "--reporting-interval", "1"),
        # The buffer is full most of the time.
        *("--producer-props", f"bootstrap.servers={kafka.bootstrap_servers}", "compression.type=lz4"),
        *("buffer.memory=40000", "send.buffer.bytes=50000", "value.serializer=x"),
    )
    assert written.exit_code == 0, written.stderr
    deprecated, warmup, *progress, everything, steady = written.stdout.splitlines()
    assert deprecated.startswith("Option --producer-props has been deprecated")
    assert warmup.startswith("Warmup first 500 records. Steady state results")
    assert progress.count("In steady state.") == 1
    assert all(re.fullmatch(PROGRESS, line) for line in progress if line != "In steady state.")
    summaries = [re.fullmatch(SUMMARY, line) for line in (everything, steady)]
    assert [it and it.groups() for it in summaries] == [("3000", None), ("2500", " steady state")]
    assert {it.partition for it in kafka.read(kafka_topic, 3000)} == {0, 1}

    first = consume("--topic", kafka_topic, "--num-records", "3000", "--fetch-size", "20000", "--timeout")
    assert first.exit_code == 0, first.stderr
    header, line = first.stdout.splitlines()
    columns = dict(zip(header.split(", "), line.split(", "), strict=True))
    assert list(columns)[:2] == ["start.time", "end.time"]
    assert columns["data.consumed.in.nMsg"] == "3000"
    assert columns["data.consumed.in.MB"] == f"{3000 * 100 / (1 << 20):.4f}"
    again = consume("--include", f"{kafka_topic}|x", "--messages", "1", "--timeout", "10", "--hide-header")
    deprecated, warning, line = again.stdout.splitlines()
    assert deprecated == "Warning: --messages is deprecated. Use --num-records instead."
    assert warning.startswith("WARNING: Exiting before consuming the expected number of records: timeout (10")
    assert line.split(", ")[4] == "0", "the first run has committed what it read"


def test_intervals_of_a_consumer_are_printed_in_its_time_format(
    kafka_topic: str, produce: Run, consume: Run
) -> None:
    written = produce(
        *("--num-records", "20", "--payload-monotonic", "--throughput", "200"),
        *("--command-property", "acks=1", "linger.ms=0"),
    )
    assert written.exit_code == 0, written.stderr
    read = consume(
        *("--topic", kafka_topic, "--num-records", "20", "--show-detailed-stats"),
        *("--reporting-interval", "1", "--date-format", "'at' yyyy"),
    )
    assert read.exit_code == 0, read.stderr
    header, *lines = read.stdout.splitlines()
    assert header.startswith("time, threadId, data.consumed.in.MB")
    assert lines and all(re.fullmatch(r"at \d{4}, 0, .*", line) for line in lines)
    assert {len(line.split(", ")) for line in lines} == {10}
    assert lines[-1].split(", ")[4] == "20"


def test_payloads_come_from_a_file(kafka: Cluster, kafka_topic: str, produce: Run, tmp_path: Path) -> None:
    file, properties = tmp_path / "payloads", tmp_path / "properties"
    file.write_text("red;green;", encoding="utf-8")
    properties.write_text("acks=0\n", encoding="utf-8")
    written = produce(
        *("--num-records", "30", "--payload-file", file, "--payload-delimiter", ";", "--throughput", "-1"),
        *("--command-config", properties),
    )
    assert written.stdout.splitlines()[:2] == [f"Reading payloads from: {file}", "Number of records read: 2"]
    assert {it.value for it in kafka.read(kafka_topic, 30)} == {b"red", b"green"}


def test_records_that_are_not_written_fail_the_run(produce: Run) -> None:
    ran = produce(
        *("--num-records", "3", "--record-size", "5000", "--throughput", "-1"),
        *("--command-property", "max.request.size=4000"),
    )
    assert ran.exit_code == 1
    assert ran.stdout.startswith("0 records sent, ")
    assert "3 of 3 records were not acknowledged: MESSAGE_TOO_LARGE: " in ran.stderr


def metrics(shown: Result) -> dict[str, float]:
    """By group and name; the table is in order, its columns are aligned."""
    assert shown.exit_code == 0, shown.output
    header, *rows = shown.stdout.partition("\n\n")[2].splitlines()
    assert header.startswith("Metric Name ") and header.endswith("   Value")
    assert rows == sorted(rows) and {row.index(" : ") for row in rows} == {header.index("   Value")}
    return {row.partition(":{client-id=")[0]: float(row.rpartition(" : ")[2]) for row in rows}


def test_records_of_transactions_are_committed_and_metrics_printed(
    kafka: Cluster, kafka_topic: str, produce: Run, consume: Run
) -> None:
    written = produce(
        *("--num-records", "40", "--record-size", "10", "--throughput", "400", "--print-metrics"),
        *("--transactional-id", kafka_topic, "--transaction-duration-ms", "20"),
    )
    sent = metrics(written)
    assert sent["producer-metrics:record-send-total"] == 40
    assert sent["producer-metrics:txn-commit-time-ns-total"] > 0
    assert sent["producer-metrics:request-total"] == sent["producer-metrics:response-total"] > 2
    assert sent["producer-metrics:outgoing-byte-total"] > 400
    assert len(kafka.read(kafka_topic, committed=True)) == 40
    assert kafka.read(kafka_topic)[-1].offset > 39, "a marker for each transaction"
    read = consume(
        *("--topic", kafka_topic, "--num-records", "40", "--print-metrics", "--socket-buffer-size", "100000"),
        *("--command-property", "isolation.level=read_committed", "--command-property", "fetch.min.bytes=1"),
    )
    got = metrics(read)
    assert got["consumer-fetch-manager-metrics:records-consumed-total"] == 40
    assert got["consumer-fetch-manager-metrics:bytes-consumed-total"] == 400
    assert got["consumer-coordinator-metrics:commit-total"] == 1


def test_transaction_that_cannot_be_committed_ends_the_run(kafka: Cluster, produce: Run) -> None:
    kafka.refuse("EndTxn", ErrorCode.INVALID_TXN_STATE)
    ran = produce(
        *(
            "--num-records",
            "3",
            "--payload-monotonic",
            "--throughput",
            "-1",
            "--transaction-duration-ms",
            "1000",
        ),
        *("--command-property", "transaction.timeout.ms=5000"),
    )
    assert ran.exit_code == 1
    assert ran.stderr.startswith("Error: INVALID_TXN_STATE")


@pytest.mark.kafka(properties={"auto.create.topics.enable": "true"})
def test_topic_is_created_where_brokers_do_that_on_demand(kafka: Cluster) -> None:
    server = ("--bootstrap-server", kafka.bootstrap_servers, "--topic", "on-demand")
    written = invoke(
        "producer-perf-test", *server, "--num-records", "5", "--record-size", "1", "--throughput", "-1"
    )
    assert written.exit_code == 0, written.stderr
    assert len(kafka.read("on-demand")) == 5


@pytest.mark.slow
def test_run_that_is_interrupted_ends_with_its_summary(
    kafka: Cluster, kafka_topic: str, start_pykraft: Callable[..., Any]
) -> None:
    where = ("--bootstrap-server", kafka.bootstrap_servers, "--topic", kafka_topic, "--throughput", "50")
    load = ("--num-records", "100000", "--payload-monotonic", "--reporting-interval", "1")
    with start_pykraft("producer-perf-test", *where, *load) as running:
        running.wait_for("records sent")
        assert running.stop(signal.SIGINT) == 128 + signal.SIGINT
        *progress, summary = running.printed.splitlines()
        assert all(re.fullmatch(PROGRESS, line) for line in progress)
        assert re.fullmatch(SUMMARY, summary)
