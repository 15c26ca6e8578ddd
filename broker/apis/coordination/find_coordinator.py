"""FindCoordinator.

The coordinator of a group, or of a transactional id, is the broker that leads its partition of
``__consumer_offsets`` or ``__transaction_state``; the first look-up has that topic created. Until the topic
is there and the partition has a leader the answer is COORDINATOR_NOT_AVAILABLE, at once. A broker does not
name itself before it has begun to coordinate: of clients whose coordinator answers that it is none, some wait
for a second, and librdkafka's admin client crashes. The key type of share groups is refused with
INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from pykraft.broker.apis.services import BrokerServices
from pykraft.coordinator.partitioning import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.image import TopicImage
from pykraft.transaction_coordinator.service import TransactionCoordinatorService

_GROUP = 0
_ALL_IS_WELL = "NONE"
"""The message of Kafka's brokers where there is no error, in the versions that ask for one coordinator."""

_Coordinators = GroupCoordinatorService | TransactionCoordinatorService


def handle(
    services: BrokerServices, context: RequestContext, request: FindCoordinatorRequest, version: int
) -> Generator[None, None, FindCoordinatorResponse]:
    key_type = request.key_type if version >= 1 else _GROUP
    coordinators: _Coordinators
    match key_type:
        case 0:
            name, coordinators = OFFSETS_TOPIC, services.groups
        case 1:
            name, coordinators = TRANSACTION_STATE_TOPIC, services.transactions
        case _:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "only groups (0) and transactional ids (1) have coordinators"
            )
    topic = services.metadata.image.topic(name)
    if topic is None:
        refusal = services.creations.refusal(name)
        services.creations.begin(context, [name])
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{name} is being created" if refusal is None else f"{name} could not be created: {refusal}",
        )
    found = []
    for key in _keys(request, version):
        found.append(_coordinator(services, coordinators, context.listener, topic, key))
        yield
    return _response(found, version)


def _keys(request: FindCoordinatorRequest, version: int) -> Sequence[str]:
    return request.coordinator_keys if version >= 4 else [request.key]


def _coordinator(
    services: BrokerServices, coordinators: _Coordinators, listener: str, topic: TopicImage, key: str
) -> Coordinator:
    partition = coordinators.partition_for(key)
    leader = topic.partitions[partition].leader
    endpoint = services.metadata.endpoint(leader, listener)
    if endpoint is None:
        return _unavailable(
            key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator partition has no leader yet"
        )
    if leader == services.config.node_id and not coordinators.leads(partition):
        return _unavailable(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator has not begun yet")
    return Coordinator(key=key, node_id=leader, host=endpoint.host, port=endpoint.port)


def _unavailable(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)


def _response(found: list[Coordinator], version: int) -> FindCoordinatorResponse:
    if version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message if one.error_code else _ALL_IS_WELL,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def build_error(
    request: FindCoordinatorRequest, version: int, error: KafkaError
) -> Generator[None, None, FindCoordinatorResponse]:
    refused = []
    for key in _keys(request, version):
        refused.append(_unavailable(key, error.code, error.message))
        yield
    return _response(refused, version)
