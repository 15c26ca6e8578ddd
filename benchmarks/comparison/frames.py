"""Prebuilt requests over plain sockets, so that the client costs little."""

import os
import time
from collections.abc import Sequence
from typing import Final, Protocol

from pykraft.kafka_protocol.messages import cluster
from pykraft.kafka_protocol.messages import records as record_messages
from pykraft.kafka_protocol.messages import topics as topic_messages
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.runtime.address import Address
from pykraft.testing.processes.listeners import LOOPBACK
from pykraft.testing.processes.waits import wait_until
from pykraft.testing.processes.wire_client import WireClient, decode_answer, frame_of

GB: Final = 1_000_000_000
MIB: Final = 1 << 20
RECORD_BYTES: Final = 1024
ANSWER_TIMEOUT_S: Final = 60


class Node(Protocol):
    """Where a node listens."""

    @property
    def node_id(self) -> int: ...
    @property
    def port(self) -> int: ...


def connect(port: int) -> WireClient:
    return WireClient(Address(LOOPBACK, port), "bench")


def create_topic(nodes: Sequence[Node], name: str, partitions: int, replication_factor: int) -> list[int]:
    """Create a topic; returns the leader of each partition."""
    client = connect(nodes[0].port)
    configs = [topic_messages.CreatableTopicConfig(name="retention.ms", value="-1")]
    topic = topic_messages.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor, configs=configs
    )
    request = topic_messages.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    result = client.call(request, 7).topics[0]
    assert result.error_code in (0, 36), result
    leaders: list[int] = []

    def ready() -> bool:
        asked = [cluster.MetadataRequestTopic(name=name)]
        response = client.call(cluster.MetadataRequest(topics=asked), 9)
        found = sorted(response.topics[0].partitions, key=lambda p: p.partition_index)
        leaders[:] = [p.leader_id for p in found]
        return len(found) == partitions and all(p.error_code == 0 for p in found)

    wait_until(f"topic {name}", ready)
    for index, leader in enumerate(leaders):
        port = next(node.port for node in nodes if node.node_id == leader)
        probe = connect(port)
        small = produce_frame(name, index, batch_of(100), 1)
        wait_until(f"{name}-{index}", lambda: produced(probe, small))  # noqa: B023
    return leaders


def delete_topic(node: Node, name: str) -> None:
    """Free the logs' memory, so that the next measurement uses memory that the system has used before."""
    topics = [topic_messages.DeleteTopicState(name=name)]
    request = topic_messages.DeleteTopicsRequest(topics=topics, timeout_ms=30_000)
    connect(node.port).call(request, 6)
    time.sleep(0.5)


def produced(client: WireClient, frame: bytes) -> bool:
    client.socket.sendall(frame)
    response = decode_answer(record_messages.ProduceResponse, 8, client.answer())
    return response.responses[0].partition_responses[0].error_code == 0


def batch_of(size_bytes: int) -> bytes:
    """A batch of 1 KiB records, of nearly ``size_bytes``."""
    count = max(1, size_bytes // RECORD_BYTES)
    value = os.urandom(min(size_bytes, RECORD_BYTES - 20))
    now_ms = int(time.time() * 1000)
    return encode_batch([RecordInput(None, value, (), now_ms)] * count)


def produce_frame(topic: str, index: int, batch: bytes, acks: int) -> bytes:
    data = [record_messages.PartitionProduceData(index=index, records=batch)]
    topics = [record_messages.TopicProduceData(name=topic, partition_data=data)]
    return frame_of(record_messages.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics), 8)


def fetch_frame(topic: str, index: int, offset: int, max_bytes: int, max_wait_ms: int = 100) -> bytes:
    partition = record_messages.FetchPartition(
        partition=index, fetch_offset=offset, partition_max_bytes=max_bytes
    )
    topics = [record_messages.FetchTopic(topic=topic, partitions=[partition])]
    request = record_messages.FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes, session_epoch=-1, topics=topics
    )
    return frame_of(request, 11)
