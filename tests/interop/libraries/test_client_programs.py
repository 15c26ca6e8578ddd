"""The clients for Go, for Rust and for Python: records of every codec, offsets, topics.

Each client does what it is ordered to (client_program.py); confluent-kafka reads and writes the same topics.
Without Go, Cargo or the registries the tests are skipped with a message (built_programs.py).
"""

from collections.abc import Callable, Collection

import pytest
from confluent_kafka import Producer

from pykraft.kafka_protocol.records import BatchHeader, iter_headers
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.interop.client_program import ClientProgram, Record, client_program, in_order, read_by_confluent
from tests.interop.clients import CODECS, each_program
from tests.interop.python_clients import PythonClient

pytestmark = pytest.mark.interop

NewTopic = Callable[..., str]
Client = ClientProgram | PythonClient
PARTITIONS = 2
EACH = 20
"""Records in each partition."""


@pytest.fixture
def client(name: str) -> Client:
    return client_program(name)


def records_to_write() -> list[Record]:
    """With and without keys, values and headers, and with more than ASCII."""
    records = [
        {
            "partition": n % PARTITIONS,
            "key": f"k{n}",
            "value": f"värde {n} " * 20,
            "headers": [["n", str(n)], ["ü", ""]],
        }
        for n in range(PARTITIONS * EACH)
    ]
    records[0] |= {"key": None, "headers": []}
    records[1] |= {"value": None}
    records[2] |= {"key": "", "value": ""}
    return records


def as_read_by(client: Client, records: list[Record]) -> list[Record]:
    """kafka-go's reader takes keys and values that are empty for missing ones."""
    if client.name != "kafka-go":
        return records
    return [record | {part: record[part] or None for part in ("key", "value")} for record in records]


def headers_on_disk(cluster: Cluster, topic: str) -> list[BatchHeader]:
    logs = [(cluster.log_dirs[1] / f"{topic}-{n}").glob("*.log") for n in range(PARTITIONS)]
    return [header for found in logs for log in found for _, header in iter_headers(log.read_bytes())]


def topics_of(cluster: Cluster) -> Collection[str]:
    with cluster.admin() as admin:
        return [topic.name for topic in admin.list_topics()]


@each_program("produce", "{codec}", "assign", codec=("none", *CODECS))
def test_records_are_the_same_for_every_reader(
    trio: Cluster, new_topic: NewTopic, client: Client, codec: str
) -> None:
    topic = new_topic(PARTITIONS)
    records = records_to_write()
    offsets = client.run("produce", trio, topic=topic, partitions=PARTITIONS, codec=codec, records=records)
    expected = in_order([record | {"offset": at} for record, at in zip(records, offsets, strict=True)])
    assert [record["offset"] for record in expected] == [*range(EACH)] * PARTITIONS
    assert read_by_confluent(trio, topic, PARTITIONS, len(records)) == expected
    assert {header.compression.name.lower() for header in headers_on_disk(trio, topic)} == {codec}
    read = client.run("read", trio, topic=topic, partitions=PARTITIONS, count=len(records))
    assert in_order(read) == as_read_by(client, expected)


@each_program("assign", codec=("none", *CODECS))
def test_what_others_wrote_is_read(trio: Cluster, new_topic: NewTopic, client: Client, codec: str) -> None:
    topic = new_topic(PARTITIONS)
    producer = Producer({"bootstrap.servers": trio.bootstrap_servers, "compression.type": codec})
    for record in records_to_write():
        headers = [(name, value) for name, value in record["headers"]]
        producer.produce(topic, **record | {"headers": headers})
    assert producer.flush(PATIENCE_S) == 0
    expected = read_by_confluent(trio, topic, PARTITIONS, PARTITIONS * EACH)
    read = client.run("read", trio, topic=topic, partitions=PARTITIONS, count=len(expected))
    assert in_order(read) == as_read_by(client, expected)


@each_program("idempotence")
def test_idempotent_producer_numbers_its_batches(
    trio: Cluster, new_topic: NewTopic, client: ClientProgram
) -> None:
    topic = new_topic(PARTITIONS)
    records = records_to_write()
    client.run("produce", trio, topic=topic, partitions=PARTITIONS, idempotent=True, records=records)
    assert len(read_by_confluent(trio, topic, PARTITIONS, len(records))) == len(records)
    headers = headers_on_disk(trio, topic)
    assert [header.base_sequence for header in headers] == [header.base_offset for header in headers]
    assert len({header.producer_id for header in headers}) == 1


@each_program("admin")
def test_topics_are_created_described_and_deleted(
    trio: Cluster, fresh: Callable[[str], str], client: ClientProgram
) -> None:
    topic = fresh("topic")
    client.run("create", trio, topic=topic, partitions=4, replicas=3)
    trio.wait_in_sync(topic, PATIENCE_S)
    described = client.run("describe", trio, topic=topic)
    assert described["partitions"] == 4
    assert described["replicas"] in ([3] * 4, None), "None: it says nothing of replicas"
    assert "exist" in client.refusal("create", trio, topic=topic, partitions=4, replicas=3).lower()
    client.run("delete", trio, topic=topic)
    wait_until("the topic is gone", lambda: topic not in topics_of(trio), PATIENCE_S)


@each_program("admin")
def test_offsets_are_listed(trio: Cluster, new_topic: NewTopic, client: Client) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": trio.bootstrap_servers})
    for n in range(5):
        producer.produce(topic, b"v", timestamp=1000 * (n + 1))
    assert producer.flush(PATIENCE_S) == 0
    listed = client.run("offsets", trio, topic=topic, time_ms=2500)
    assert listed == {"earliest": 0, "latest": 5, "at_time": 2}
