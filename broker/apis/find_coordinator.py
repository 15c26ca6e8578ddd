"""FindCoordinator.

The coordinator of a group, or of a transactional id, is the broker that leads its partition of
``__consumer_offsets`` or ``__transaction_state``; the first look-up creates that topic.
COORDINATOR_NOT_AVAILABLE until the partition has a leader. The look-up that has created the topic is answered
so, too, as in Kafka, unless the coordinator is this broker and has begun: another broker needs a moment, and
clients do badly when the coordinator that they were sent to answers that it is none. Some wait for a second,
and librdkafka's admin client crashes. Share groups have no coordinator here: their key type is refused with
INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.apis.topic_creation import create_topic
from pykraft.broker.config import BrokerConfig
from pykraft.coordinator.partitioning import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.image import TopicImage
from pykraft.transaction_coordinator.service import TransactionCoordinatorService

_GROUP = 0
_PATIENCE_MS = 2_000
_CHECK_MS = 5


async def handle(
    services: BrokerServices, context: RequestContext, request: FindCoordinatorRequest, version: int
) -> FindCoordinatorResponse:
    key_type = request.key_type if version >= 1 else _GROUP
    coordinators: GroupCoordinatorService | TransactionCoordinatorService
    match key_type:
        case 0:
            name, coordinators = OFFSETS_TOPIC, services.groups
        case 1:
            name, coordinators = TRANSACTION_STATE_TOPIC, services.transactions
        case _:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "only groups (0) and transactional ids (1) have coordinators"
            )
    keys = request.coordinator_keys if version >= 4 else [request.key]
    topic = services.metadata.image.topic(name)
    partition_for = coordinators.partition_for
    if topic is not None:
        return _response(
            [_coordinator(services, context.listener, topic, key, partition_for(key)) for key in keys],
            version,
        )
    topic = await _create(services, context, name)
    if topic is not None:
        await _until_served(services, coordinators, topic, keys)
    return _response(
        [
            _coordinator(services, context.listener, topic, key, partition_for(key))
            if topic is not None and coordinators.serves(partition_for(key))
            else _unavailable(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} has just been created")
            for key in keys
        ],
        version,
    )


async def _create(services: BrokerServices, context: RequestContext, name: str) -> TopicImage | None:
    config = services.config
    is_of_groups = name == OFFSETS_TOPIC
    try:
        return await create_topic(
            services,
            context,
            name,
            num_partitions=(
                config.offsets_topic_num_partitions if is_of_groups else config.transaction_log_num_partitions
            ),
            replication_factor=(
                config.offsets_topic_replication_factor
                if is_of_groups
                else config.transaction_log_replication_factor
            ),
            configs=_offsets_configs(config) if is_of_groups else _transaction_log_configs(config),
        )
    except KafkaError as error:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} cannot be created: {error.message}"
        ) from error


async def _until_served(
    services: BrokerServices,
    coordinators: GroupCoordinatorService | TransactionCoordinatorService,
    topic: TopicImage,
    keys: Sequence[str],
) -> None:
    """Wait for the coordinators of a new topic that are on this broker."""
    node_id = services.config.node_id
    partitions = {coordinators.partition_for(key) for key in keys}
    here = [index for index in partitions if topic.partitions[index].leader == node_id]
    until_ms = services.clock.monotonic_ms() + _PATIENCE_MS
    while services.clock.monotonic_ms() < until_ms and not all(map(coordinators.serves, here)):
        await services.tasks.sleep(_CHECK_MS)


def _offsets_configs(config: BrokerConfig) -> Mapping[str, str]:
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }


def _transaction_log_configs(config: BrokerConfig) -> Mapping[str, str]:
    """As in Kafka: a leader out of sync must never be elected, and nothing is compressed."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config.transaction_log_min_isr),
        "segment.bytes": str(config.transaction_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }


def _coordinator(
    services: BrokerServices, listener: str, topic: TopicImage, key: str, partition: int
) -> Coordinator:
    leader = topic.partitions[partition].leader
    endpoint = services.metadata.endpoint(leader, listener)
    if endpoint is None:
        return _unavailable(
            key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator partition has no leader yet"
        )
    return Coordinator(key=key, node_id=leader, host=endpoint.host, port=endpoint.port)


def _unavailable(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)


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
