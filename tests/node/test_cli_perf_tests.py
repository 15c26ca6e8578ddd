"""``producer-perf-test`` and ``consumer-perf-test`` on a real node."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pykraft.kafka_client.admin import AdminClient
from pykraft.kafka_client.admin_results import NewTopic
from pykraft.kafka_client.list_offsets import LATEST_TIMESTAMP
from pykraft.kafka_client.metadata import TopicPartition

pytestmark = pytest.mark.slow

Run = Callable[..., "subprocess.CompletedProcess[str]"]
_numbers = itertools.count(1)

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
def topic(dev_server: str) -> str:
    name = f"perf-{next(_numbers)}"
    with AdminClient(dev_server) as client:
        (created,) = client.create_topics([NewTopic(name, 2)])
        assert created.error is None
    return name


def log_ends(dev_server: str, topic: str) -> list[int]:
    with AdminClient(dev_server) as client:
        partitions = [TopicPartition(topic, index) for index in range(2)]
        listed = client.list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))
    return [listed[partition].offset or 0 for partition in partitions]


def test_every_record_is_written_counted_and_read_again(pykraft: Run, dev_server: str, topic: str) -> None:
    written = pykraft(
        *("producer-perf-test", "--topic", topic, "--num-records", "3000", "--record-size", "100"),
        *("--throughput", "-1", "--warmup-records", "500", "--reporting-interval", "1"),
        # The buffer is full most of the time.
        *(
            "--producer-props",
            f"bootstrap.servers={dev_server}",
            "compression.type=lz4",
            "buffer.memory=40000",
        ),
    )
    assert written.returncode == 0, written.stderr
    deprecated, warmup, *progress, everything, steady = written.stdout.splitlines()
    assert deprecated.startswith("Option --producer-props has been deprecated")
    assert warmup.startswith("Warmup first 500 records. Steady state results")
    assert progress.count("In steady state.") == 1
    assert all(re.fullmatch(PROGRESS, line) for line in progress if line != "In steady state.")
    summaries = [re.fullmatch(SUMMARY, line) for line in (everything, steady)]
    assert [it and it.groups() for it in summaries] == [("3000", None), ("2500", " steady state")]
    ends = log_ends(dev_server, topic)
    assert sum(ends) == 3000 and all(ends), "both partitions were used"

    read = ("consumer-perf-test", "--bootstrap-server", dev_server, "--group", f"group-{topic}")
    first = pykraft(*read, "--topic", topic, "--num-records", "3000", "--fetch-size", "20000")
    assert first.returncode == 0, first.stderr
    header, line = first.stdout.splitlines()
    columns = dict(zip(header.split(", "), line.split(", "), strict=True))
    assert list(columns)[:2] == ["start.time", "end.time"]
    assert columns["data.consumed.in.nMsg"] == "3000"
    assert columns["data.consumed.in.MB"] == f"{3000 * 100 / (1 << 20):.4f}"
    again = pykraft(*read, "--include", f"{topic}|x", "--messages", "1", "--timeout", "10", "--hide-header")
    deprecated, warning, line = again.stdout.splitlines()
    assert deprecated.startswith("Warning: --messages is deprecated")
    assert warning.startswith("WARNING: Exiting before consuming the expected number of records: timeout (10")
    assert line.split(", ")[4] == "0", "the first run has committed what it read"


def test_intervals_of_a_consumer_are_printed_in_its_time_format(
    pykraft: Run, dev_server: str, topic: str
) -> None:
    server = ("--bootstrap-server", dev_server, "--topic", topic)
    written = pykraft(
        *("producer-perf-test", *server, "--num-records", "20", "--payload-monotonic", "--throughput", "200"),
        *("--command-property", "acks=1", "linger.ms=0"),
    )
    assert written.returncode == 0, written.stderr
    read = pykraft(
        *("consumer-perf-test", *server, "--num-records", "20", "--show-detailed-stats"),
        *("--reporting-interval", "1", "--date-format", "'at' yyyy"),
    )
    assert read.returncode == 0, read.stderr
    header, *lines = read.stdout.splitlines()
    assert header.startswith("time, threadId, data.consumed.in.MB")
    assert lines and all(re.fullmatch(r"at \d{4}, 0, .*", line) for line in lines)
    assert {len(line.split(", ")) for line in lines} == {10}
    assert lines[-1].split(", ")[4] == "20"


def test_payloads_come_from_a_file(pykraft: Run, dev_server: str, topic: str, tmp_path: Path) -> None:
    file, properties = tmp_path / "payloads", tmp_path / "properties"
    file.write_text("red;green;", encoding="utf-8")
    properties.write_text("acks=0\n", encoding="utf-8")
    written = pykraft(
        *("producer-perf-test", "--bootstrap-server", dev_server, "--topic", topic, "--num-records", "30"),
        *("--payload-file", str(file), "--payload-delimiter", ";", "--throughput", "-1"),
        *("--command-config", str(properties)),
    )
    assert written.stdout.splitlines()[:2] == [f"Reading payloads from: {file}", "Number of records read: 2"]
    read = pykraft(
        *("consumer", "--bootstrap-server", dev_server, "--topic", topic, "--from-beginning"),
        *("--max-messages", "30"),
    )
    assert set(read.stdout.split()) == {"red", "green"}


def test_records_that_are_not_written_fail_the_run(pykraft: Run, dev_server: str, topic: str) -> None:
    ran = pykraft(
        *("producer-perf-test", "--bootstrap-server", dev_server, "--topic", topic, "--num-records", "3"),
        *("--record-size", "5000", "--throughput", "-1", "--command-property", "max.request.size=4000"),
    )
    assert ran.returncode == 1
    assert ran.stdout.startswith("0 records sent, ")
    assert "3 of 3 records were not acknowledged: MESSAGE_TOO_LARGE: " in ran.stderr


PRODUCER = ("producer-perf-test", "--topic", "t", "--num-records", "10", "--throughput")
CONSUMER = ("consumer-perf-test", "--bootstrap-server", "127.0.0.1:9")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*PRODUCER, "1", "--record-size", "1"), "give --bootstrap-server"),
        ((*PRODUCER, "0", "--record-size", "1"), "--throughput must be above 0"),
        ((*PRODUCER, "1"), "exactly one of --record-size"),
        ((*PRODUCER, "1", "--record-size", "1", "--payload-monotonic"), "exactly one of --record-size"),
        ((*PRODUCER, "1", "--record-size", "1", "--warmup-records", "10"), "--warmup-records must be below"),
        ((*PRODUCER, "1", "--record-size", "1", "--print-metrics"), "--print-metrics is not supported"),
        ((*PRODUCER, "1", "--record-size", "1", "--transactional-id", "x"), "has no transactions"),
        ((*PRODUCER, "1", "--record-size", "1", "--command-property", "acks=5"), "configuration acks"),
        ((*PRODUCER, "1", "--payload-file", "/none"), "cannot read /none"),
        ((*CONSUMER, "--num-records", "1"), "exactly one of --topic, --include"),
        ((*CONSUMER, "--topic", "t"), "exactly one of --num-records, --messages"),
        ((*CONSUMER, "--include", "(", "--num-records", "1"), "not a regular expression"),
        ((*CONSUMER, "--topic", "t", "--num-records", "1", "--date-format", "W"), "letter W"),
        ((*CONSUMER, "--topic", "t", "--num-records", "1", "--socket-buffer-size", "9"), "not supported"),
    ],
)
def test_mistakes_are_refused_in_one_line(pykraft: Run, arguments: tuple[str, ...], message: str) -> None:
    ran = pykraft(*arguments)
    assert ran.returncode != 0
    assert message in ran.stderr.splitlines()[-1]
