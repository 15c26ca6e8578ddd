"""Transactions of clients that take orders: whole or not at all, fenced, with the offsets of a group."""

import re
from collections.abc import Callable

import pytest

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.testing import Cluster
from tests.interop.client_program import ClientProgram, client_program, read_by_confluent, values_of
from tests.interop.clients import each_program
from tests.interop.python_clients import PythonClient

pytestmark = pytest.mark.interop

NewTopic = Callable[..., str]
Client = ClientProgram | PythonClient
PARTITIONS = 3

transactional = each_program("idempotence", "transactions")


@pytest.fixture
def client(name: str) -> Client:
    return client_program(name)


@transactional
def test_committed_records_are_read_and_aborted_ones_are_not(
    trio: Cluster, new_topic: NewTopic, client: ClientProgram
) -> None:
    topic = new_topic(PARTITIONS)
    ends = [True, False, True, False, True]
    client.run("transact", trio, topic=topic, partitions=PARTITIONS, id=topic, ends=ends)
    committed = [["0", "2", "4"]] * PARTITIONS
    read = read_by_confluent(trio, topic, PARTITIONS, 3 * PARTITIONS, committed=True)
    assert values_of(read, PARTITIONS) == committed
    read = client.run("read", trio, topic=topic, partitions=PARTITIONS, count=3 * PARTITIONS, committed=True)
    assert values_of(read, PARTITIONS) == committed
    read = client.run("read", trio, topic=topic, partitions=PARTITIONS, count=5 * PARTITIONS)
    assert values_of(read, PARTITIONS) == [["0", "1", "2", "3", "4"]] * PARTITIONS


@transactional
def test_second_producer_aborts_and_fences_the_first(
    trio: Cluster, new_topic: NewTopic, client: ClientProgram
) -> None:
    topic = new_topic(PARTITIONS)
    told = client.run("fence", trio, topic=topic, partitions=PARTITIONS, id=topic, ends=[True])
    # sarama has no name for PRODUCER_FENCED, with which EndTxn is answered from version 2 on.
    fenced = "Error code = 90" if client.name == "sarama" else "fenced|epoch"
    assert re.search(fenced, told, re.I), told
    read = read_by_confluent(trio, topic, PARTITIONS, PARTITIONS, committed=True)
    assert values_of(read, PARTITIONS) == [["0"]] * PARTITIONS
    read = read_by_confluent(trio, topic, PARTITIONS, 2 * PARTITIONS)
    assert values_of(read, PARTITIONS) == [["old", "0"]] * PARTITIONS


@transactional
def test_records_that_are_read_and_processed_are_written_once(
    trio: Cluster, new_topic: NewTopic, client: ClientProgram
) -> None:
    """Offsets of an aborted transaction do not count: whoever reads next processes the same records."""
    source, sink = new_topic(), new_topic()
    count = 5
    ends = [True] * count
    client.run("transact", trio, topic=source, partitions=1, id=source, ends=ends)

    def process(commits: bool) -> None:
        client.run("process", trio, topic=source, sink=sink, group=sink, id=sink, count=count, ends=[commits])

    with AdminClient(trio.bootstrap_servers) as admin:
        process(commits=False)
        assert [item.offset for item in admin.group_offsets(sink).values()] == []
        process(commits=True)
        # Each transaction of the source has written a record and a marker.
        assert [item.offset for item in admin.group_offsets(sink).values()] == [2 * count - 1]
    read = read_by_confluent(trio, sink, 1, count, committed=True)  # after the aborted ones and their marker
    assert [record["value"] for record in read] == ["0", "1", "2", "3", "4"]
    assert [record["offset"] for record in read] == [*range(count + 1, 2 * count + 1)]
