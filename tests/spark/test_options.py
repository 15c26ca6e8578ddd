"""Options: Spark's names, clear errors, and no option silently misread."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.fetcher import FetchConfig
from pykraft.kafka_client.list_offsets import READ_COMMITTED
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.producer.batch import ProducerConfig
from pykraft.runtime.address import Address
from pykraft.spark.option_values import OptionError
from pykraft.spark.options import (
    Assign,
    BatchReadOptions,
    StreamReadOptions,
    Subscribe,
    SubscribePattern,
    includes_headers,
    parse_batch_options,
    parse_stream_options,
)
from pykraft.spark.positions import EARLIEST, LATEST, ByTimestamp, Everywhere, PerPartition
from pykraft.spark.settings import (
    IGNORED_CLIENT_SETTINGS,
    IGNORED_PRODUCER_SETTINGS,
    MAPPED_CLIENT_SETTINGS,
    UNUSED_OPTIONS,
)
from pykraft.spark.writing.write_options import parse_write_options

BASE = {"kafka.bootstrap.servers": "a:9092,b:9092", "subscribe": "t"}


def parse(**changes: str | None) -> BatchReadOptions:
    """The base options with changes; ``__`` stands for a dot, None removes."""
    options = BASE | {name.replace("__", "."): value for name, value in changes.items()}
    return parse_batch_options({name: value for name, value in options.items() if value is not None})


def refused(message: str, **changes: str | None) -> None:
    with pytest.raises(OptionError, match=message):
        parse(**changes)


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    options = parse()
    assert options.source == Subscribe(("t",))
    assert (options.starting, options.ending) == (Everywhere(EARLIEST), Everywhere(LATEST))
    assert options.fail_on_data_loss and not options.include_headers
    assert options.min_partitions is None and options.max_records_per_partition is None
    assert options.client.bootstrap_servers == (Address("a", 9092), Address("b", 9092))


def test_names_are_case_insensitive() -> None:
    options = parse(INCLUDEHEADERS="True", startingoffsets="earliest", MinPartitions="7")
    assert options.include_headers and options.min_partitions == 7


def test_unknown_option_names_the_nearest_one() -> None:
    refused(
        "'startingofsets' is not a known option.*did you mean 'startingOffsets'", startingOfsets="earliest"
    )
    refused("did you mean 'kafka.isolation.level'", kafka__isolation__levels="read_committed")


def test_unknown_option_far_from_all_is_refused_without_a_guess() -> None:
    with pytest.raises(OptionError) as caught:
        parse(zzzzzz="1")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("kafka__auto__offset__reset", "startingOffsets"),
        ("kafka__key__deserializer", "always bytes"),
        ("kafka__enable__auto__commit", "Spark tracks the offsets"),
        ("kafka__interceptor__classes", "Java"),
    ],
)
def test_settings_that_spark_forbids_are_refused_with_the_reason(name: str, why: str) -> None:
    refused(f"is not allowed: .*{why}", **{name: "x"})


def test_streaming_and_write_options_are_distinguished_from_unknown_ones() -> None:
    refused("streaming reads only", maxOffsetsPerTrigger="10")
    refused("writes only", topic="t")


def test_settings_that_cannot_matter_here_are_accepted() -> None:
    parse(kafka__group__id="g", groupIdPrefix="p", kafka__max__poll__records="10")


def test_client_settings_are_mapped() -> None:
    options = parse(
        kafka__isolation__level="read_committed",
        kafka__fetch__max__wait__ms="77",
        kafka__max__partition__fetch__bytes="1000",
        kafka__client__rack="r1",
        kafka__client__id="me",
        kafka__request__timeout__ms="123",
        kafka__check__crcs="false",
    )
    assert options.fetch.isolation_level == READ_COMMITTED
    assert (options.fetch.max_wait_ms, options.fetch.max_partition_fetch_bytes, options.fetch.rack) == (
        77,
        1000,
        "r1",
    )
    assert (options.client.client_id, options.client.request_timeout_ms) == ("me", 123)
    assert not options.check_crcs


def test_security_other_than_plaintext_is_refused() -> None:
    parse(kafka__security__protocol="plaintext")
    refused("SASL_SSL is not supported", kafka__security__protocol="SASL_SSL")
    refused("'TLS' is none of PLAINTEXT, SSL", kafka__security__protocol="tls")
    refused("there is no TLS and no SASL yet", kafka__ssl__truststore__location="/etc/trust.jks")
    secret = "org.apache.kafka.common.security.plain.PlainLoginModule required password='hunter2';"
    with pytest.raises(OptionError, match="not supported") as caught:
        parse(kafka__sasl__jaas__config=secret)
    assert "hunter2" not in str(caught.value)


def test_writes_refuse_security_as_reads_do() -> None:
    with pytest.raises(OptionError, match="there is no TLS and no SASL yet"):
        parse_write_options({"kafka.bootstrap.servers": "localhost:9092", "kafka.sasl.mechanism": "PLAIN"})


@pytest.mark.parametrize("servers", [None, "", " ", "nohost", "a:0"])
def test_missing_or_malformed_servers_are_refused(servers: str | None) -> None:
    refused(r"kafka\.bootstrap\.servers", kafka__bootstrap__servers=servers)


def test_exactly_one_of_the_three_ways_to_name_topics() -> None:
    refused("none is given", subscribe=None)
    refused("not assign and subscribe", assign='{"t":[0]}')
    refused("is empty", subscribe=" ")
    refused("names no topic", subscribe=",")


def test_topics_are_named_by_assignment_list_or_pattern() -> None:
    assert parse(subscribe=None, assign='{"t":[1,0,1],"u":[2]}').source == Assign({"t": (0, 1), "u": (2,)})
    assert parse(subscribe="b, a,b").source == Subscribe(("b", "a"))
    assert parse(subscribe=None, subscribePattern="t.*").source == SubscribePattern("t.*")
    refused("not a regular expression", subscribe=None, subscribePattern="(")


@pytest.mark.parametrize(
    "text", ["t", "[]", "{}", '{"t":0}', '{"t":[]}', '{"t":[-1]}', '{"t":[true]}', '{"t":["x"]}']
)
def test_malformed_assignment_is_refused(text: str) -> None:
    refused("option 'assign'", subscribe=None, assign=text)


def test_offsets_by_partition_may_hold_sentinels() -> None:
    spec = parse(startingOffsets='{"t":{"0":23,"1":-2}}', endingOffsets='{"t":{"0":50,"1":-1}}')
    assert isinstance(spec.starting, PerPartition) and isinstance(spec.ending, PerPartition)
    assert {str(where): offset for where, offset in spec.starting.positions.items()} == {"t-0": 23, "t-1": -2}
    assert {str(where): offset for where, offset in spec.ending.positions.items()} == {"t-0": 50, "t-1": -1}


@pytest.mark.parametrize(
    "text",
    ["first", "{}", "3", '{"t":5}', '{"t":{"0":1.5}}', '{"t":{"0":true}}', '{"t":{"x":1}}', '{"t":{"0":-3}}'],
)
def test_malformed_offsets_are_refused(text: str) -> None:
    refused("option 'startingOffsets'", startingOffsets=text)


def test_batch_read_cannot_start_at_the_end_or_end_at_the_start() -> None:
    refused("'startingOffsets' cannot be 'latest'", startingOffsets="latest")
    refused(r"'startingOffsets' cannot hold -1 \(latest\)", startingOffsets='{"t":{"0":-1}}')
    refused("'endingOffsets' cannot be 'earliest'", endingOffsets="earliest")
    refused(r"'endingOffsets' cannot hold -2 \(earliest\)", endingOffsets='{"t":{"0":-2}}')


def test_global_timestamp_precedes_timestamps_by_partition_and_offsets() -> None:
    by_partition = '{"t":{"0":5}}'
    spec = parse(startingTimestamp="9", startingOffsetsByTimestamp=by_partition, startingOffsets="earliest")
    assert spec.starting == ByTimestamp(9, {}, latest_if_none=False)
    spec = parse(startingOffsetsByTimestamp=by_partition, startingOffsets="earliest")
    assert spec.starting == ByTimestamp(None, {TopicPartition("t", 0): 5}, latest_if_none=False)
    assert parse(endingTimestamp="9").ending == ByTimestamp(9, {}, latest_if_none=True)


def test_strategy_decides_what_happens_without_a_match() -> None:
    spec = parse(startingTimestamp="9", startingOffsetsByTimestampStrategy="LATEST").starting
    assert isinstance(spec, ByTimestamp) and spec.latest_if_none
    refused("'error' or 'latest'", startingOffsetsByTimestampStrategy="earliest")


@pytest.mark.parametrize(
    "changes",
    [
        {"minPartitions": "0"},
        {"minPartitions": "-1"},
        {"minPartitions": "1.5"},
        {"maxRecordsPerPartition": "0"},
        {"includeHeaders": "yes"},
        {"failOnDataLoss": ""},
        {"startingTimestamp": "-5"},
        {"startingOffsetsByTimestamp": '{"t":{"0":-5}}'},
        {"kafka__isolation__level": "serializable"},
    ],
    ids=str,
)
def test_malformed_value_is_refused_by_its_options_name(changes: dict[str, Any]) -> None:
    (name,) = changes
    refused(f"option '{name.replace('__', '.')}'", **changes)


MAPPED: dict[str, tuple[str | None, str, Any]] = {
    "kafka.client.id": ("client", "client_id", "x"),
    "kafka.request.timeout.ms": ("client", "request_timeout_ms", 7),
    "kafka.default.api.timeout.ms": ("client", "default_api_timeout_ms", 7),
    "kafka.retry.backoff.ms": ("client", "retry_backoff_ms", 7),
    "kafka.retry.backoff.max.ms": ("client", "retry_backoff_max_ms", 7),
    "kafka.fetch.max.wait.ms": ("fetch", "max_wait_ms", 7),
    "kafka.fetch.min.bytes": ("fetch", "min_bytes", 7),
    "kafka.fetch.max.bytes": ("fetch", "max_bytes", 7),
    "kafka.max.partition.fetch.bytes": ("fetch", "max_partition_fetch_bytes", 7),
    "kafka.client.rack": ("fetch", "rack", "x"),
    "kafka.isolation.level": ("fetch", "isolation_level", READ_COMMITTED),
    "kafka.check.crcs": (None, "check_crcs", False),
    "minPartitions": (None, "min_partitions", 7),
    "maxRecordsPerPartition": (None, "max_records_per_partition", 7),
    "kafkaConsumer.pollTimeoutMs": (None, "poll_timeout_ms", 7),
    "failOnDataLoss": (None, "fail_on_data_loss", False),
    "includeHeaders": (None, "include_headers", True),
}
WORDS = {READ_COMMITTED: "read_committed", False: "false", True: "true"}


@pytest.mark.parametrize("name", MAPPED)
def test_setting_changes_what_it_names_and_nothing_else(name: str) -> None:
    part, field, value = MAPPED[name]
    text = "read_committed" if field == "isolation_level" else WORDS.get(value, str(value))
    changed = asdict(parse(**{name: text} if "." not in name else {name.replace(".", "__"): text}))
    expected = asdict(parse())
    place = expected if part is None else expected[part]
    assert place[field] != value
    place[field] = value
    assert changed == expected


def test_every_setting_that_is_mapped_is_tried() -> None:
    others = {"kafka.security.protocol"}
    assert {name for name in MAPPED if name.startswith("kafka.")} == set(MAPPED_CLIENT_SETTINGS) - others


def test_settings_that_are_not_given_are_those_of_the_client() -> None:
    options = parse()
    defaults = ClientConfig(options.client.bootstrap_servers, client_id="pykraft-spark")
    assert options.client == defaults
    assert options.fetch == FetchConfig(check_crcs=False)
    assert options.check_crcs and options.poll_timeout_ms == 120_000


@pytest.mark.parametrize("name", [*UNUSED_OPTIONS, *IGNORED_CLIENT_SETTINGS])
def test_option_without_effect_changes_nothing(name: str) -> None:
    assert parse_batch_options(BASE | {name: "1"}) == parse_batch_options(BASE)
    assert parse_stream_options(BASE | {name: "1"}) == parse_stream_options(BASE)


def test_options_of_streams() -> None:
    def stream(**changes: str) -> StreamReadOptions:
        return parse_stream_options(BASE | changes)

    plain = stream()
    assert plain.starting == Everywhere(LATEST)
    assert (plain.max_offsets_per_trigger, plain.min_offsets_per_trigger) == (None, None)
    assert (plain.max_trigger_delay_ms, plain.published_group) == (900_000, None)
    given = stream(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="5", publishOffsetsToGroup="g")
    assert (given.max_offsets_per_trigger, given.min_offsets_per_trigger) == (5, 5)
    assert given.published_group == "g"
    with pytest.raises(OptionError, match=r"'minOffsetsPerTrigger' \(6\) is greater than .* \(5\)"):
        stream(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="6")
    with pytest.raises(OptionError, match="names no group"):
        stream(publishOffsetsToGroup=" ")
    with pytest.raises(OptionError, match="'endingoffsets' applies to batch reads only"):
        stream(endingOffsets="latest")
    with pytest.raises(OptionError, match="'topic' applies to writes only"):
        stream(topic="t")
    assert stream(startingOffsets="latest").starting == Everywhere(LATEST)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        *(("7", 7), ("7ms", 7), ("0s", 0), ("7 s", 7_000), ("2m", 120_000)),
        *(("2min", 120_000), ("1h", 3_600_000), (" 1D ", 86_400_000)),
    ],
)
def test_times_are_written_as_in_spark(text: str, ms: int) -> None:
    assert parse_stream_options(BASE | {"maxTriggerDelay": text}).max_trigger_delay_ms == ms


@pytest.mark.parametrize("text", ["", "-1s", "1.5s", "1 week", "s"])
def test_malformed_time_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="'maxTriggerDelay' is a time like '500ms'"):
        parse_stream_options(BASE | {"maxTriggerDelay": text})


def test_headers_are_asked_for_in_any_case() -> None:
    assert includes_headers({"INCLUDEHEADERS": "True"})
    assert not includes_headers({}) and not includes_headers({"includeHeaders": "false"})


PRODUCER = {
    "kafka.linger.ms": ("linger_ms", 0),
    "kafka.batch.size": ("batch_size_bytes", 7),
    "kafka.buffer.memory": ("buffer_memory_bytes", 7),
    "kafka.max.request.size": ("max_request_size_bytes", 7),
    "kafka.delivery.timeout.ms": ("delivery_timeout_ms", 7),
    "kafka.max.block.ms": ("max_block_ms", 7),
}


@pytest.mark.parametrize("name", PRODUCER)
def test_setting_of_the_producer_changes_what_it_names_and_nothing_else(name: str) -> None:
    field, value = PRODUCER[name]
    base = {"kafka.bootstrap.servers": "a:1"}
    expected = asdict(parse_write_options(base))
    assert expected["producer"][field] != value
    expected["producer"][field] = value
    assert asdict(parse_write_options(base | {name: str(value)})) == expected


def test_options_of_writes() -> None:
    base = {"kafka.bootstrap.servers": "a:1"}
    plain = parse_write_options(base)
    assert plain.producer == replace(ProducerConfig(), batch_size_bytes=256 * 1024)
    assert (plain.id_prefix, plain.transaction_timeout_ms) == ("pykraft-spark", 900_000)
    for name in IGNORED_PRODUCER_SETTINGS:
        assert parse_write_options(base | {name: "1"}) == plain
    once = base | {"deliveryGuarantee": "EXACTLY_ONCE", "jobId": "j.1_-", "transactionalIdPrefix": "p"}
    given = parse_write_options(once | {"kafka.transaction.timeout.ms": "5", "kafka.acks": "-1"})
    assert (given.is_exactly_once, given.job_id, given.id_prefix) == (True, "j.1_-", "p")
    assert given.transaction_timeout_ms == 5
    for name in ("jobId", "transactionalIdPrefix"):
        for text in ("", "a/b", "a b"):
            with pytest.raises(OptionError, match=f"option '{name}' may have letters"):
                parse_write_options(once | {name: text})
    for acks, code, idempotent in (("all", -1, True), ("-1", -1, True), ("1", 1, False), ("0", 0, False)):
        producer = parse_write_options(base | {"kafka.acks": acks}).producer
        assert (producer.acks, producer.enable_idempotence) == (code, idempotent)
    with pytest.raises(OptionError, match="option 'topic' is empty"):
        parse_write_options(base | {"topic": " "})


def test_whole_numbers_are_digits() -> None:
    assert parse(startingTimestamp=" 0 ").starting == ByTimestamp(0, {}, latest_if_none=False)
    assert parse(minPartitions="1").min_partitions == 1
    for text in ("", "+1", "1_0", "\u0661", "0x1"):
        refused("option 'startingTimestamp' is not a whole number of 0 or more", startingTimestamp=text)
    refused("option 'minPartitions' must be at least 1", minPartitions="0")


def test_offsets_and_timestamps_of_partitions_at_their_bounds() -> None:
    spec = parse(
        startingOffsets='{"t":{"0":0,"1":-2}}', endingOffsets=' {"t":{"0":9223372036854775807,"1":-1}} '
    )
    assert isinstance(spec.starting, PerPartition) and isinstance(spec.ending, PerPartition)
    assert list(spec.starting.positions.values()) == [0, -2]
    assert list(spec.ending.positions.values()) == [2**63 - 1, -1]
    assert parse(startingOffsetsByTimestamp='{"t":{"0":0}}').starting == ByTimestamp(
        None, {TopicPartition("t", 0): 0}, latest_if_none=False
    )
    assert parse(startingOffsets=" EARLIEST ", endingOffsets="Latest").ending == Everywhere(LATEST)
