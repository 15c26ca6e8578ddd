"""Topics that were just created: the broker that is named as leader serves at once."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import TypeVar

from pykraft.jepsen_like.process_cluster import ProcessCluster
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.headers import decode_response_header, encode_request
from pykraft.kafka_protocol.messages import create_topics, fetch, list_offsets, metadata, produce
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.schema import Message
from tests.narrowing import present

M = TypeVar("M", bound=Message)

TOPICS = 50
TIMEOUT_S = 30.0


class Client:
    """A bare connection to one broker, which never retries."""

    def __init__(self, cluster: ProcessCluster, node_id: int) -> None:
        address = cluster.addresses[node_id]
        self._socket = socket.create_connection((address.host, address.port), TIMEOUT_S)

    def call(self, request: Message, version: int, response_class: type[M]) -> M:
        frame = encode_request(request, version, 1, "new-topics")
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._exactly(4))
        answer = self._exactly(size)
        _, at = decode_response_header(response_class.API_KEY, version, answer)
        return response_class.decode(answer[at:], version)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "closed by the broker"
            data += more
        return data

    def close(self) -> None:
        self._socket.close()


def create(client: Client, names: list[str]) -> None:
    topics = [
        create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names
    ]
    request = create_topics.CreateTopicsRequest(topics=topics, timeout_ms=30_000)
    response = client.call(request, 7, create_topics.CreateTopicsResponse)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.NONE] * len(names)


def leaders(client: Client, names: list[str]) -> dict[str, int]:
    topics = [metadata.MetadataRequestTopic(name=name) for name in names]
    request = metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    response = client.call(request, 9, metadata.MetadataResponse)
    return {
        present(topic.name): topic.partitions[0].leader_id for topic in response.topics if topic.partitions
    }


def write(client: Client, name: str) -> int:
    batch = encode_batch([RecordInput(None, b"v", (), 1_700_000_000_000)])
    data = produce.TopicProduceData(
        name=name, partition_data=[produce.PartitionProduceData(index=0, records=batch)]
    )
    request = produce.ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data])
    response = client.call(request, 9, produce.ProduceResponse)
    return int(response.responses[0].partition_responses[0].error_code)


def read(client: Client, name: str) -> int:
    asked = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = fetch.FetchRequest(topics=[fetch.FetchTopic(topic=name, partitions=[asked])])
    return int(client.call(request, 12, fetch.FetchResponse).responses[0].partitions[0].error_code)


def look_up(client: Client, name: str) -> int:
    asked = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=name, partitions=[asked])]
    )
    response = client.call(request, 5, list_offsets.ListOffsetsResponse)
    return int(response.topics[0].partitions[0].error_code)


def test_leader_of_a_topic_that_was_just_created_serves_as_soon_as_it_is_named(
    trio: ProcessCluster, fresh: Callable[[str], str]
) -> None:
    clients = {node_id: Client(trio, node_id) for node_id in trio.addresses}
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
