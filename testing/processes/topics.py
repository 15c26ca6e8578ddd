"""Topics, through a bare connection."""

from collections.abc import Sequence

from pykraft.kafka_protocol.messages.cluster import MetadataRequest, MetadataRequestTopic
from pykraft.kafka_protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from pykraft.testing.processes.wire_client import WireClient


def request_topic(client: WireClient, name: str, partitions: int, replication_factor: int) -> None:
    """Have a topic created, without waiting until it is led. RuntimeError if that is refused."""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication_factor)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    (created,) = client.call(request, 7).topics
    if created.error_code:
        raise RuntimeError(f"CreateTopics was answered with error {created.error_code}")


def is_in_sync(client: WireClient, names: Sequence[str], replicas: int) -> bool:
    """Whether all partitions of these topics are led and have so many replicas in sync."""
    asked = [MetadataRequestTopic(name=name) for name in names]
    answer = client.call(MetadataRequest(topics=asked), 9)
    return all(
        topic.error_code == 0
        and bool(topic.partitions)
        and all(p.leader_id >= 0 and len(p.isr_nodes) == replicas for p in topic.partitions)
        for topic in answer.topics
    )
