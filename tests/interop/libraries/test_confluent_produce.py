"""confluent-kafka as a producer and plain consumer: records of any form are read back as written."""

import random
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, Deadline
from tests.narrowing import present

pytestmark = pytest.mark.interop

NewTopic = Callable[..., str]
BROKER_LIMIT_BYTES = 1_048_588
# The batch header and the varints of a record of about a megabyte with neither key nor headers.
OVERHEAD_BYTES = 61 + 11


def produce(
    cluster: Cluster, topic: str, items: Iterable[dict[str, Any]], **settings: object
) -> list[Message]:
    """Send the records; returns their delivery reports in order. Fails if any is not delivered."""
    reports: list[Message] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        reports.append(message)
        if error is not None:
            errors.append(error)

    # One request in flight keeps the order when a broker refuses a batch that it will lead soon.
    ordered = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5, "max.in.flight": 1}
    producer = Producer(ordered | settings)
    for item in items:
        producer.produce(topic, on_delivery=delivered, **item)
    assert producer.flush(30) == 0
    assert errors == []
    return reports


def consume(cluster: Cluster, topic: str, count: int, partition: int = 0) -> list[Message]:
    """The first records of one partition, without a group's help."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[Message] = []
        deadline = Deadline(PATIENCE_S)
        while len(found) < count and not deadline.passed:
            for message in consumer.consume(count - len(found), 0.2):
                assert message.error() is None, message.error()
                found.append(message)
        assert len(found) == count
        return found
    finally:
        consumer.close()


@pytest.mark.shows("confluent-kafka", "idempotence")
def test_idempotent_producer_gets_consecutive_offsets_in_order(trio: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    values = [str(n).encode() for n in range(5000)]
    reports = produce(
        trio,
        topic,
        ({"value": value} for value in values),
        **{"enable.idempotence": True, "max.in.flight": 5, "acks": "all", "batch.num.messages": 50},
    )
    assert [report.offset() for report in reports] == list(range(5000))
    assert [message.value() for message in consume(trio, topic, 5000)] == values


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_with_each_level_of_acknowledgement(
    trio: Cluster, new_topic: NewTopic, acks: str
) -> None:
    topic = new_topic()
    # A leader that is still opening its log would lose records that are not acknowledged.
    produce(trio, topic, [{"value": "0"}], acks="all")
    produce(trio, topic, ({"value": str(n)} for n in range(1, 100)), acks=acks)
    assert [message.value() for message in consume(trio, topic, 100)] == [b"%d" % n for n in range(100)]


def test_headers_timestamps_and_missing_keys_and_values_are_kept(trio: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    headers = [("twice", b"1"), ("twice", b"2"), ("null", None), ("empty", b""), ("ünï", b"\x00\xff")]
    items: list[dict[str, object]] = [
        {"key": b"k", "value": b"v", "headers": headers, "timestamp": 1_600_000_000_123},
        {"key": None, "value": b"only a value"},
        {"key": b"a tombstone", "value": None},
        {"key": None, "value": None},
        {"key": b"", "value": b""},
    ]
    before_ms = int(time.time() * 1000)
    produce(trio, topic, items)
    found = consume(trio, topic, len(items))
    assert [(m.key(), m.value()) for m in found] == [(i["key"], i["value"]) for i in items]
    assert found[0].headers() == headers
    assert found[0].timestamp() == (1, 1_600_000_000_123)
    kind, timestamp = found[1].timestamp()
    assert kind == 1 and before_ms <= timestamp <= int(time.time() * 1000)


def test_log_append_time_replaces_the_producers_timestamp(trio: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1, message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    produce(trio, topic, [{"value": b"v", "timestamp": 1}])
    kind, timestamp = consume(trio, topic, 1)[0].timestamp()
    assert kind == 2 and before_ms <= timestamp <= int(time.time() * 1000)


def test_message_of_exactly_the_limit_is_accepted_and_one_byte_more_is_refused(
    trio: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic()
    settings = {"message.max.bytes": 3_000_000, "linger.ms": 0}
    largest = random.Random(7).randbytes(BROKER_LIMIT_BYTES - OVERHEAD_BYTES)
    produce(trio, topic, [{"value": largest}], **settings)
    outcomes: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": trio.bootstrap_servers} | settings)
    for value in (largest + b"x", largest * 2):
        producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
        assert producer.flush(20) == 0
    assert [error.code() if error else None for error in outcomes] == [KafkaError.MSG_SIZE_TOO_LARGE] * 2
    produce(trio, topic, [{"value": b"after"}], **settings)
    assert [m.value() for m in consume(trio, topic, 2)] == [largest, b"after"]


def test_topic_may_allow_larger_messages_than_the_broker(trio: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1, max_message_bytes="4000000")
    value = random.Random(8).randbytes(3_500_000)
    produce(trio, topic, [{"value": value}], **{"message.max.bytes": 4_000_000})
    assert consume(trio, topic, 1)[0].value() == value


def test_keys_choose_partitions_and_every_partition_keeps_its_order(
    trio: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic(6)
    reports = produce(trio, topic, ({"key": f"k{n % 40}", "value": str(n)} for n in range(2000)))
    assert {report.partition() for report in reports} == set(range(6))
    for partition in range(6):
        there = [report for report in reports if report.partition() == partition]
        sent = [present(r.value()) for r in sorted(there, key=lambda r: present(r.offset()))]
        assert sent == sorted(sent, key=int)
        assert [m.value() for m in consume(trio, topic, len(sent), partition)] == sent


def test_producing_to_a_missing_topic_creates_it_if_the_broker_may(
    single: Cluster, fresh: Callable[[str], str]
) -> None:
    topic = fresh("on-demand")
    (report,) = produce(single, topic, [{"value": b"first"}])
    assert (report.topic(), report.offset()) == (topic, 0)


def test_producing_to_a_missing_topic_fails_if_the_broker_may_not_create_it(
    trio: Cluster, fresh: Callable[[str], str]
) -> None:
    outcomes: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": trio.bootstrap_servers,
            "topic.metadata.propagation.max.ms": 500,
            "message.timeout.ms": 5000,
        }
    )
    producer.produce(fresh("missing"), b"v", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(20) == 0
    assert [error.code() if error else None for error in outcomes] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
