"""Requests that several families send, and what their answers must say."""

from __future__ import annotations

from typing import Any

from data_path import Client

from pykraft.kafka_protocol.headers import decode_response_header
from pykraft.kafka_protocol.messages import cluster, groups, records
from pykraft.kafka_protocol.messages import topics as topic_messages

LATEST = -1


def decode(response_class: Any, version: int, frame: bytes | memoryview) -> Any:
    """The body of an answer."""
    _, at = decode_response_header(response_class.API_KEY, version, frame)
    return response_class.decode(bytes(frame[at:]), version)


def check_produced(frame: bytes | memoryview) -> None:
    """The one partition of an answer, as ``data_path.produce_frame`` asks for it."""
    answer = decode(records.ProduceResponse, 8, frame)
    check(answer.responses[0].partition_responses[0].error_code, "Produce")


def check_fetched(frame: bytes | memoryview) -> None:
    """The one partition of an answer, as ``data_path.fetch_frame`` asks for it."""
    answer = decode(records.FetchResponse, 11, frame)
    check(answer.responses[0].partitions[0].error_code, "Fetch")


def check(error_code: int, what: str) -> None:
    if error_code:
        raise RuntimeError(f"{what} was answered with error {error_code}")


def end_offset(port: int, topic: str, index: int) -> int:
    partition = records.ListOffsetsPartition(partition_index=index, timestamp=LATEST)
    topics = [records.ListOffsetsTopic(name=topic, partitions=[partition])]
    request = records.ListOffsetsRequest(replica_id=-1, topics=topics)
    answer = Client(port).call(request, 5)
    found = answer.topics[0].partitions[0]
    check(found.error_code, "ListOffsets")
    return int(found.offset)


def request_topic(client: Client, name: str, partitions: int, replication_factor: int) -> None:
    """Have a topic created, without waiting until it is led."""
    topic = topic_messages.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor
    )
    request = topic_messages.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    check(client.call(request, 7).topics[0].error_code, "CreateTopics")


def is_in_sync(client: Client, names: list[str], replicas: int) -> bool:
    """Whether all partitions of these topics are led and have so many replicas in sync."""
    asked = [cluster.MetadataRequestTopic(name=name) for name in names]
    answer = client.call(cluster.MetadataRequest(topics=asked), 9)
    return all(
        topic.error_code == 0
        and topic.partitions
        and all(p.leader_id >= 0 and len(p.isr_nodes) == replicas for p in topic.partitions)
        for topic in answer.topics
    )


def topic_id(client: Client, name: str) -> Any:
    asked = [cluster.MetadataRequestTopic(name=name)]
    answer = client.call(cluster.MetadataRequest(topics=asked), 10)
    return answer.topics[0].topic_id


def has_coordinator(client: Client, group: str) -> bool:
    request = groups.FindCoordinatorRequest(coordinator_keys=[group])
    answer = client.call(request, 4)
    return bool(answer.coordinators[0].error_code == 0)
