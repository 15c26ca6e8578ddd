"""The performance tools: what they compute from samples and times, and the lines that they print."""

import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pykraft.configuration.keys import ConfigError
from pykraft.kafka_client.fetcher import FetchConfig
from pykraft.kafka_client.group.config import GroupConfig
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.producer.batch import ProducerConfig
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.records import HEADER_BYTES
from pykraft.node.cli.perf.java_dates import date_format
from pykraft.node.cli.perf.load import (
    MIN_PAUSE_MS,
    StickyPartitions,
    chosen_from,
    monotonic,
    pause_ms,
    random_letters,
    split_payloads,
)
from pykraft.node.cli.perf.stats import ConsumerStats, ProducerStats, RebalanceTime, percentile
from pykraft.node.cli.shared.client_properties import consumer_configs, producer_config, read_properties
from pykraft.node.cli.shared.kafka_command import KafkaCommand

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in UTC, whatever the zone of the machine."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize("seed", range(20))
def test_percentile_is_the_sample_at_its_rank_in_order(seed: int) -> None:
    rng = random.Random(seed)
    samples = [rng.randrange(rng.choice((3, 1000))) for _ in range(rng.randrange(1, 300))]
    for fraction in (0.0, 0.5, 0.95, 0.99, 0.999):
        expected = sorted(samples)[int(fraction * len(samples))]
        assert percentile(Counter(samples), fraction) == expected


def test_percentile_of_nothing_is_zero() -> None:
    assert percentile({}, 0.5) == 0


def test_progress_is_printed_when_the_interval_is_over_and_counts_only_it() -> None:
    stats = ProducerStats(1000, 500)
    assert stats.record(10, 1 << 20, 1499) == []
    assert stats.record(30, 1 << 20, 1500) == [
        "2 records sent, 4.0 records/sec (4.00 MB/sec), 20.0 ms avg latency, 30.0 ms max latency."
    ]
    assert stats.record(5, 1 << 19, 1999) == []
    assert stats.record(7, 1 << 19, 2500) == [
        "2 records sent, 2.0 records/sec (1.00 MB/sec), 6.0 ms avg latency, 7.0 ms max latency."
    ]
    assert stats.total_line(3000) == (
        "4 records sent, 2.000000 records/sec (1.50 MB/sec), 13.00 ms avg latency, 30.00 ms max latency, "
        "10 ms 50th, 30 ms 95th, 30 ms 99th, 30 ms 99.9th."
    )


def test_steady_state_is_announced_once_and_named_in_its_summary() -> None:
    stats = ProducerStats(0, 100, steady_state=True)
    first, _ = stats.record(1, 1, 100)
    assert first == "In steady state."
    assert len(stats.record(1, 1, 200)) == 1
    assert stats.total_line(200).startswith("2 steady state records sent, 10.000000 records/sec")


def test_silent_statistics_count_on() -> None:
    stats = ProducerStats(0, 100)
    stats.is_silent = True
    assert stats.record(3, 1, 100) == []
    assert stats.total_line(1000).startswith("1 records sent, 1.000000 records/sec")


def test_a_run_without_time_or_records_prints_what_java_prints() -> None:
    assert (
        ProducerStats(5, 100)
        .total_line(5)
        .startswith(
            "0 records sent, NaN records/sec (NaN MB/sec), NaN ms avg latency, 0.00 ms max latency, 0 ms 50th"
        )
    )
    stats = ConsumerStats(0)
    stats.record(1, 1 << 20)
    assert stats.total_line("a", "b", 10, 10) == (
        "a, b, 1.0000, 100.0000, 1, 100.0000, 10, 0, Infinity, Infinity"
    )


def test_consumer_lines_tell_the_rebalance_from_the_fetches() -> None:
    stats = ConsumerStats(1000)
    stats.record(100, 2 << 20)
    assert not stats.is_due(1999, 1000)
    assert stats.is_due(2000, 1000)
    assert stats.window_line("now", 2000, 500) == (
        "now, 0, 2.0000, 2.0000, 100, 100.0000, 500, 500, 4.0000, 200.0000"
    )
    assert not stats.is_due(2999, 1000)
    stats.record(50, 1 << 20)
    assert stats.window_line("then", 3000, 500) == (
        "then, 0, 3.0000, 1.0000, 150, 50.0000, 0, 1000, 1.0000, 50.0000"
    )
    assert stats.window_line("all rebalance", 3100, 600) == (
        "all rebalance, 0, 3.0000, 0.0000, 150, 0.0000, 100, 0, 0.0000, 0.0000"
    )
    assert (
        stats.total_line("s", "e", 4000, 1000)
        == "s, e, 3.0000, 1.0000, 150, 50.0000, 1000, 2000, 1.5000, 75.0000"
    )


def test_rebalance_time_runs_only_while_nothing_is_owned() -> None:
    rebalances = RebalanceTime(100)
    rebalances.handle_assigned([A], 150)
    rebalances.handle_assigned([B], 200)
    assert rebalances.total_ms == 50
    rebalances.handle_revoked([A], 300)
    rebalances.handle_assigned([A], 400)
    assert rebalances.total_ms == 50, "one partition was owned all the time"
    rebalances.handle_revoked([A, B], 500)
    rebalances.handle_assigned([B], 507)
    assert rebalances.total_ms == 57


def test_records_are_sent_at_their_rate_and_the_sender_catches_up() -> None:
    assert pause_ms(0, 0, 10) == 0
    assert pause_ms(1, 0, 10) == 100
    assert pause_ms(1, 100, 10) == 0
    assert pause_ms(3, 1000, 10) == 0, "it was held up, and sends ten at once"
    assert pause_ms(1, 0, 100_000) == MIN_PAUSE_MS
    assert pause_ms(1 << 40, 0, -1) == 0


@pytest.mark.parametrize("records_per_s", [0.5, 3, 999, 40_000])
def test_average_rate_is_kept_in_virtual_time(records_per_s: float) -> None:
    elapsed_ms, sent = 0.0, 0
    while elapsed_ms < 20_000:
        pause = pause_ms(sent, elapsed_ms, records_per_s)
        elapsed_ms += pause
        sent += pause == 0
    most = records_per_s * 20
    assert most - 1 - records_per_s * MIN_PAUSE_MS / 1000 <= sent <= most + 1 + records_per_s / 100


def test_partitions_take_turns_batch_by_batch() -> None:
    room = StickyPartitions([4, 7], HEADER_BYTES + 100)
    assert [room.partition(50) for _ in range(6)] == [4, 4, 7, 7, 4, 4]
    larger = StickyPartitions([4, 7], HEADER_BYTES + 100)
    assert [larger.partition(101) for _ in range(3)] == [4, 7, 4]
    assert [larger.partition(1) for _ in range(2)] == [7, 7]


def test_payloads_have_their_size_and_only_letters() -> None:
    payloads = random_letters(500, random.Random(0))
    first, second = payloads(0), payloads(1)
    assert first != second
    assert re.fullmatch(rb"[A-Z]{500}", first)
    assert random_letters(500, random.Random(0))(0) == first, "two runs send the same"
    assert [monotonic()(number) for number in (0, 12)] == [b"0", b"12"]
    chosen = chosen_from([b"a", b"b"], random.Random(0))
    assert {chosen(number) for number in range(50)} == {b"a", b"b"}


@pytest.mark.parametrize(
    ("text", "delimiter", "payloads"),
    [
        ("a\nb\n", r"\n", [b"a", b"b"]),
        ("a\n\nb", r"\n", [b"a", b"", b"b"]),
        ("\na", r"\n", [b"a"]),
        ("\n", r"\n", []),
        ("", r"\n", []),
        ("a, b;c", "[,;] *", [b"a", b"b", b"c"]),
        ("a(x)bü", r"\((x)\)", [b"a", "bü".encode()]),
    ],
)
def test_payloads_of_a_file_are_what_is_between_the_delimiters(
    text: str, delimiter: str, payloads: list[bytes]
) -> None:
    assert split_payloads(text, delimiter) == payloads


TIME_MS = 1_700_000_000_042
"""2023-11-14 22:13:20.042 UTC."""


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd HH:mm:ss:SSS", "2023-11-14 22:13:20:042"),
        ("yy/M/d h:mm a", "23/11/14 10:13 PM"),
        ("EEE, dd MMM yyyy kk:mm Z", "Tue, 14 Nov 2023 22:13 +0000"),
        ("EEEE MMMM D u K S", "Tuesday November 318 2 10 42"),
        ("'day'' of' d ''", "day' of 14 '"),
    ],
)
def test_times_are_printed_in_patterns_of_java(utc: None, pattern: str, text: str) -> None:
    assert date_format(pattern)(TIME_MS) == text


@pytest.mark.parametrize(("pattern", "message"), [("yyyy 'at", "not closed"), ("W", "letter W")])
def test_patterns_that_are_not_known_are_refused(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        date_format(pattern)


def test_producer_properties_become_its_configuration() -> None:
    assert producer_config({"bootstrap.servers": "h:1"}) == ProducerConfig()
    given = {"acks": "all", "linger.ms": "7", "batch.size": "100", "compression.type": "zstd"}
    expected = ProducerConfig(linger_ms=7, batch_size_bytes=100, compression=Compression.ZSTD)
    assert producer_config(given) == expected


@pytest.mark.parametrize("given", [{"acks": "1"}, {"max.in.flight.requests.per.connection": "6"}])
def test_a_producer_is_idempotent_unless_its_properties_contradict(given: dict[str, str]) -> None:
    assert producer_config({}).enable_idempotence
    assert not producer_config(given).enable_idempotence
    with pytest.raises(ConfigError, match=r"enable\.idempotence"):
        producer_config(given | {"enable.idempotence": "true"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"linger": "1"}, "no property linger; did you mean linger.ms"),
        ({"partitioner.class": "x"}, "producer has no property partitioner.class; it has bootstrap.servers"),
        ({"acks": "2"}, "Invalid value 2 for configuration acks"),
        ({"linger.ms": "-1"}, "linger.ms: Value must be at least 0"),
        ({"compression.type": "rar"}, "must be one of none, gzip"),
    ],
)
def test_properties_without_an_effect_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        producer_config(given)


def test_consumer_properties_become_its_configuration() -> None:
    group, fetch = GroupConfig("g", ("t",)), FetchConfig(check_crcs=False)
    assert consumer_configs({}, group, fetch) == (group, fetch)
    given = {"group.protocol": "consumer", "isolation.level": "read_committed", "client.rack": "r"}
    changed_group, changed_fetch = consumer_configs(given, group, fetch)
    assert (changed_group.group_protocol, changed_group.topics) == ("consumer", ("t",))
    assert changed_fetch == FetchConfig(check_crcs=False, isolation_level=1, rack="r")
    with pytest.raises(ConfigError, match=r"consumer has no property max\.poll\.records"):
        consumer_configs({"max.poll.records": "1"}, group, fetch)
    with pytest.raises(ConfigError, match=r"heartbeat\.interval\.ms"):
        consumer_configs({"session.timeout.ms": "10"}, group, fetch)


def test_command_line_takes_precedence_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# comment\nacks=1\nlinger.ms = 3\n", encoding="utf-8")
    assert read_properties(["acks=all"], "--o", str(file)) == {"acks": "all", "linger.ms": "3"}
    with pytest.raises(click.UsageError, match="--o 'acks' is not key=value"):
        read_properties(["acks"], "--o", None)
    with pytest.raises(click.UsageError, match="cannot read"):
        read_properties([], "--o", f"{file}.none")


def test_a_list_option_takes_all_values_up_to_the_next_option() -> None:
    command = KafkaCommand(
        "c",
        list_options=("--producer-props",),
        params=[
            click.Option(["--producer-props"], multiple=True),
            click.Option(["--throughput"], type=float),
            click.Option(["--topic"]),
        ],
    )
    arguments = ["--topic", "t", "--producer-props", "a=1", "b=2", "c=3", "--throughput", "-1"]
    context = command.make_context("c", arguments)
    assert context.params == {"topic": "t", "producer_props": ("a=1", "b=2", "c=3"), "throughput": -1}
