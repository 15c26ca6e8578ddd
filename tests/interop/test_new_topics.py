"""Topics that were just created: the broker that is named as leader serves at once."""

from collections.abc import Callable

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages import cluster, records
from pykraft.kafka_protocol.messages import topics as topic_messages
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from pykraft.testing.processes.wire_client import WireClient
from tests.interop.clusters import addresses_of
from tests.narrowing import present

TOPICS = 50


def create(client: WireClient, names: list[str]) -> None:
    topics = [
        topic_messages.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names
    ]
    request = topic_messages.CreateTopicsRequest(topics=topics, timeout_ms=30_000)
    response = client.call(request, 7)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.NONE] * len(names)


def leaders(client: WireClient, names: list[str]) -> dict[str, int]:
    topics = [cluster.MetadataRequestTopic(name=name) for name in names]
    request = cluster.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    response = client.call(request, 9)
    return {
        present(topic.name): topic.partitions[0].leader_id for topic in response.topics if topic.partitions
    }


def write(client: WireClient, name: str) -> int:
    batch = encode_batch([RecordInput(None, b"v", (), 1_700_000_000_000)])
    data = records.TopicProduceData(
        name=name, partition_data=[records.PartitionProduceData(index=0, records=batch)]
    )
    request = records.ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data])
    response = client.call(request, 9)
    return int(response.responses[0].partition_responses[0].error_code)


def read(client: WireClient, name: str) -> int:
    asked = records.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = records.FetchRequest(topics=[records.FetchTopic(topic=name, partitions=[asked])])
    return int(client.call(request, 12).responses[0].partitions[0].error_code)


def look_up(client: WireClient, name: str) -> int:
    asked = records.ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = records.ListOffsetsRequest(
        replica_id=-1, topics=[records.ListOffsetsTopic(name=name, partitions=[asked])]
    )
    response = client.call(request, 5)
    return int(response.topics[0].partitions[0].error_code)


def test_leader_of_a_topic_that_was_just_created_serves_as_soon_as_it_is_named(
    trio: Cluster, fresh: Callable[[str], str]
) -> None:
    clients = {node_id: WireClient(address) for node_id, address in addresses_of(trio).items()}
    first = min(clients)
    refused: list[tuple[str, str, str]] = []
    for ask in (write, read, look_up):
        names = [fresh("topic") for _ in range(TOPICS)]
        create(clients[first], names)
        named: dict[str, int] = {}
        while len(named) < TOPICS:
            named |= leaders(clients[first], [name for name in names if name not in named])
        for name, leader in named.items():
            code = ask(clients[leader], name)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                # The leader learns it a moment after the broker that named it, as in Apache Kafka.
                leaders_there: dict[str, int] = {}
                while not leaders_there:
                    leaders_there = leaders(clients[leader], [name])
                code = ask(clients[leader], name)
            if code:
                refused.append((ask.__name__, name, ErrorCode(code).name))
    for client in clients.values():
        client.close()
    assert not refused


def error_of(client: WireClient, name: str, version: int = 12) -> ErrorCode:
    """In an answer to Metadata that allows to create the topic."""
    request = cluster.MetadataRequest(topics=[cluster.MetadataRequestTopic(name=name)])
    (topic,) = client.call(request, version).topics
    return ErrorCode(topic.error_code)


def delete(client: WireClient, name: str) -> None:
    request = topic_messages.DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
    (deleted,) = client.call(request, 5).responses
    assert deleted.error_code == ErrorCode.NONE


def test_connection_sees_what_it_has_created_and_deleted(trio: Cluster, fresh: Callable[[str], str]) -> None:
    for address in addresses_of(trio).values():
        with WireClient(address) as client:
            for _ in range(10):
                name = fresh("topic")
                create(client, [name])
                assert error_of(client, name) is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                delete(client, name)
                assert error_of(client, name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleted_topic_is_missing_at_first_when_its_client_has_it_created_again(
    single: Cluster, fresh: Callable[[str], str]
) -> None:
    """As kafka-go's tests expect it."""
    (address,) = addresses_of(single).values()
    with WireClient(address) as client:
        name = fresh("topic")
        create(client, [name])
        delete(client, name)
        assert error_of(client, name, 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wait_until("the topic is there", lambda: error_of(client, name, 1) is ErrorCode.NONE, PATIENCE_S)
