"""Hints at the current leader for clients that asked another broker (KIP-951). Pure look-ups in an image."""

from __future__ import annotations

from collections.abc import Iterable

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.hot.wire import NodeEndpoint
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.image import MetadataImage

#: Errors after which a hint helps: another broker leads the partition, or has led it in a later epoch.
HINTED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def find_leader(
    image: MetadataImage, name: str | None, topic_id: Uuid | None, index: int, node_id: int
) -> tuple[int, int] | None:
    """(leader, leader epoch); None if there is no leader, or it is fenced or the broker that was asked."""
    topic = image.topic_by_id(topic_id) if topic_id is not None else image.topic(name or "")
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    partition = topic.partitions[index]
    if partition.leader == node_id or not image.is_active(partition.leader):
        return None
    return partition.leader, partition.leader_epoch


def find_endpoints(image: MetadataImage, leaders: Iterable[int], listener: str) -> list[NodeEndpoint]:
    """Addresses of ``leaders`` for clients of ``listener``, in order of their ids."""
    endpoints = []
    for leader in sorted(set(leaders)):
        broker = image.brokers.get(leader)
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            endpoints.append(NodeEndpoint(leader, endpoint.host, endpoint.port, broker.rack))
    return endpoints
