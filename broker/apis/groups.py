"""The group APIs, all answered by the group coordinator on this broker:

OffsetCommit (8) 2-10, OffsetFetch (9) 1-10, JoinGroup (11) 0-9, Heartbeat (12) 0-4, LeaveGroup (13) 0-5,
SyncGroup (14) 0-5, DescribeGroups (15) 0-6, ListGroups (16) 0-5, DeleteGroups (42) 0-2,
ConsumerGroupHeartbeat (68) 0-1, ConsumerGroupDescribe (69) 0-1.

A broker that knows it is fenced coordinates nothing: whoever asks is told to look for the coordinator anew.
The consumer protocol (68) takes part once the feature `group.version` is finalized at 1.
"""

from __future__ import annotations

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.authorized_operations import GROUP_OPERATIONS
from pykraft.broker.serving.api import Api, Message
from pykraft.group_coordinator.error_responses import error_response
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.features import GROUP_VERSION

_DESCRIBING = (ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE)


async def handle(
    services: BrokerServices, context: RequestContext, request: Message, version: int
) -> Message:
    if services.lifecycle.is_fenced:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker is fenced")
    if request.API_KEY == ApiKey.CONSUMER_GROUP_HEARTBEAT:
        level = services.metadata.image.features.get(GROUP_VERSION, 0)
        if level < 1:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"the consumer protocol needs {GROUP_VERSION} 1, it is {level}"
            )
    response: Message = await services.groups.handle(context, request, version)
    if request.API_KEY in _DESCRIBING and request.include_authorized_operations:
        for group in response.groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
    return response


APIS = tuple(
    Api(key, low, high, handle, error_response)
    for key, low, high in (
        (ApiKey.OFFSET_COMMIT, 2, 10),
        (ApiKey.OFFSET_FETCH, 1, 10),
        (ApiKey.JOIN_GROUP, 0, 9),
        (ApiKey.HEARTBEAT, 0, 4),
        (ApiKey.LEAVE_GROUP, 0, 5),
        (ApiKey.SYNC_GROUP, 0, 5),
        (ApiKey.DESCRIBE_GROUPS, 0, 6),
        (ApiKey.LIST_GROUPS, 0, 5),
        (ApiKey.DELETE_GROUPS, 0, 2),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1),
    )
)
