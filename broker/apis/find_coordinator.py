"""FindCoordinator.

The coordinator of a group, or of a transactional id, is the broker that leads its partition of
``__consumer_offsets`` or ``__transaction_state``; the first look-up creates that topic.
COORDINATOR_NOT_AVAILABLE until the partition has a leader. Share groups have no coordinator here: their key
type is refused with INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.apis.topic_creation import create_topic
from pykraft.broker.config import BrokerConfig
from pykraft.coordinator.partitioning import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.image import TopicImage

_GROUP, _TRANSACTION = 0, 1
_PATIENCE_MS = 2_000
_CHECK_MS = 5


async def handle(
    services: BrokerServices, context: RequestContext, request: FindCoordinatorRequest, version: int
) -> FindCoordinatorResponse:
    key_type = request.key_type if version >= 1 else _GROUP
    partition_for: Callable[[str], int]
    match key_type:
        case 0:
            name, partition_for = OFFSETS_TOPIC, services.groups.partition_for
        case 1:
            name, partition_for = TRANSACTION_STATE_TOPIC, services.transactions.partition_for
        case _:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "only groups (0) and transactional ids (1) have coordinators"
            )
    keys = request.coordinator_keys if version >= 4 else [request.key]
    topic = services.metadata.image.topic(name)
    if topic is None:
        topic = await _create(services, context, name)
        if topic is not None and key_type == _TRANSACTION:
            await _until_served(services, topic, keys)
    return _response(
        [_coordinator(services, context.listener, topic, key, partition_for) for key in keys], version
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


async def _until_served(services: BrokerServices, topic: TopicImage, keys: Sequence[str]) -> None:
    """Wait for the coordinators of a new topic that are on this broker: clients come back at once, and some
    wait for a second after NOT_COORDINATOR.
    """
    transactions, node_id = services.transactions, services.config.node_id
    partitions = {transactions.partition_for(key) for key in keys}
    here = [index for index in partitions if topic.partitions[index].leader == node_id]
    until_ms = services.clock.monotonic_ms() + _PATIENCE_MS
    while services.clock.monotonic_ms() < until_ms and not all(map(transactions.serves, here)):
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
    services: BrokerServices,
    listener: str,
    topic: TopicImage | None,
    key: str,
    partition_for: Callable[[str], int],
) -> Coordinator:
    if topic is not None:
        leader = topic.partitions[partition_for(key)].leader
        endpoint = services.metadata.endpoint(leader, listener)
        if endpoint is not None:
            return Coordinator(key=key, node_id=leader, host=endpoint.host, port=endpoint.port)
    return _unavailable(
        key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator partition has no leader yet"
    )


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
