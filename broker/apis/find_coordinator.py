"""FindCoordinator.

The coordinator of a group is the broker that leads the group's partition of ``__consumer_offsets``; the first
look-up creates that topic. COORDINATOR_NOT_AVAILABLE until the partition has a leader. Only groups have
coordinators so far: any other key type is refused with INVALID_REQUEST.
"""

from __future__ import annotations

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.apis.topic_creation import create_topic
from pykraft.broker.replicas.offsets_writer import OFFSETS_TOPIC
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.image import TopicImage

_GROUP = 0


async def handle(
    services: BrokerServices, context: RequestContext, request: FindCoordinatorRequest, version: int
) -> FindCoordinatorResponse:
    if version >= 1 and request.key_type != _GROUP:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "only groups (key type 0) have coordinators")
    topic = services.metadata.image.topic(OFFSETS_TOPIC)
    if topic is None:
        topic = await _create_offsets_topic(services, context)
    keys = request.coordinator_keys if version >= 4 else [request.key]
    return _response([_coordinator(services, context.listener, topic, key) for key in keys], version)


async def _create_offsets_topic(services: BrokerServices, context: RequestContext) -> TopicImage | None:
    config = services.config
    try:
        return await create_topic(
            services,
            context,
            OFFSETS_TOPIC,
            num_partitions=config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    except KafkaError as error:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} cannot be created: {error.message}"
        ) from error


def _coordinator(
    services: BrokerServices, listener: str, topic: TopicImage | None, group_id: str
) -> Coordinator:
    if topic is not None:
        leader = topic.partitions[services.groups.partition_for(group_id)].leader
        endpoint = services.metadata.endpoint(leader, listener)
        if endpoint is not None:
            return Coordinator(key=group_id, node_id=leader, host=endpoint.host, port=endpoint.port)
    return _unavailable(
        group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator partition has no leader yet"
    )


def _unavailable(group_id: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=group_id, node_id=-1, host="", port=-1, error_code=code, error_message=message)


def _response(found: list[Coordinator], version: int) -> FindCoordinatorResponse:
    if version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def build_error(request: FindCoordinatorRequest, version: int, error: KafkaError) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if version >= 4 else [request.key]
    return _response([_unavailable(key, error.code, error.message) for key in keys], version)
