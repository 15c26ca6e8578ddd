"""The topics of a performance test."""

from __future__ import annotations

from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.network import Network
from pykraft.kafka_protocol.messages.cluster import MetadataRequest, MetadataRequestTopic


async def open_topic(network: Network, client: ClientConfig, topic: str) -> list[int]:
    """The partitions of a topic that have a leader (all if none has). A broker that creates topics on demand
    creates it. :class:`KafkaError` if there is none.
    """
    cluster = Cluster(network, client)
    try:
        deadline_ms = cluster.deadline()
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)

        async def create() -> None:
            # The answer does not name the topic yet if it is only being created.
            await cluster.ask_any(asked, deadline_ms)

        await cluster.retrying("metadata", create, deadline_ms)
        (found,) = await cluster.topics([topic], deadline_ms)
    finally:
        cluster.close()
    led = [index for index, one in sorted(found.partitions.items()) if one.leader_id is not None]
    return led or sorted(found.partitions)
