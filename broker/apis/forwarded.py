"""What only the active controller can do, passed on to it from any broker:

CreateTopics (19) 2-7, DeleteTopics (20) 1-6, AlterConfigs (33) 0-2, CreatePartitions (37) 0-3,
ElectLeaders (43) 0-2, AlterPartitionReassignments (45) 0-1, ListPartitionReassignments (46) 0,
DescribeQuorum (55) 0-2, UpdateFeatures (57) 0-2, UnregisterBroker (64) 0, AddRaftVoter (80) 0-1,
RemoveRaftVoter (81) 0.

The request travels in its own Kafka encoding with the caller's identity. While a controller is being elected
the broker goes on trying within the time the client gave. A topic that an earlier attempt created, at a
controller that fell before it could say so, is answered as created.
"""

from __future__ import annotations

from collections.abc import Callable

from pykraft.broker.apis.services import NodeServices
from pykraft.broker.serving.api import Api, Message
from pykraft.kafka_protocol.api_keys import ApiKey, response_class
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.messages import alter_configs
from pykraft.kafka_protocol.messages.add_raft_voter import AddRaftVoterResponse
from pykraft.kafka_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
)
from pykraft.kafka_protocol.messages.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from pykraft.kafka_protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from pykraft.kafka_protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from pykraft.kafka_protocol.messages.describe_quorum import DescribeQuorumResponse
from pykraft.kafka_protocol.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from pykraft.kafka_protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from pykraft.kafka_protocol.messages.remove_raft_voter import RemoveRaftVoterResponse
from pykraft.kafka_protocol.messages.unregister_broker import UnregisterBrokerResponse
from pykraft.kafka_protocol.messages.update_features import UpdatableFeatureResult, UpdateFeaturesResponse
from pykraft.kafka_protocol.request_context import RequestContext

_MAX_WAIT_MS = 30_000
_MIN_WAIT_MS = 1000
"""A client that gives no time means "do not wait for me": the controller is asked all the same."""


async def handle(services: NodeServices, context: RequestContext, request: Message, version: int) -> Message:
    timeout_ms = getattr(request, "timeout_ms", _MAX_WAIT_MS)
    body = await services.controller.forward(
        request.API_KEY,
        version,
        request.encode(version),
        principal=context.principal,
        client_id=context.client_id,
        client_address=context.client_address,
        listener=context.listener,
        timeout_ms=min(max(timeout_ms, _MIN_WAIT_MS), _MAX_WAIT_MS),
    )
    return response_class(ApiKey(request.API_KEY)).decode(body, version)


def _create_topics_error(request: Message, version: int, error: KafkaError) -> Message:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        ]
    )


def _delete_topics_error(request: Message, version: int, error: KafkaError) -> Message:
    if version >= 6:
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    error_code=error.code,
                    error_message=error.message,
                )
                for topic in request.topics
            ]
        )
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=name, error_code=error.code, error_message=error.message)
            for name in request.topic_names
        ]
    )


def _create_partitions_error(request: Message, version: int, error: KafkaError) -> Message:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        ]
    )


def _alter_configs_error(request: Message, version: int, error: KafkaError) -> Message:
    return alter_configs.AlterConfigsResponse(
        responses=[
            alter_configs.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _elect_leaders_error(request: Message, version: int, error: KafkaError) -> Message:
    if version >= 1:
        return ElectLeadersResponse(error_code=error.code)
    asked = request.topic_partitions or []  # version 0 has no place for an error of the whole
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
                    for index in topic.partitions
                ],
            )
            for topic in asked
        ]
    )


def _alter_reassignments_error(request: Message, version: int, error: KafkaError) -> Message:
    return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)


def _list_reassignments_error(request: Message, version: int, error: KafkaError) -> Message:
    return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)


def _update_features_error(request: Message, version: int, error: KafkaError) -> Message:
    return UpdateFeaturesResponse(
        error_code=error.code,
        error_message=error.message,
        results=[
            UpdatableFeatureResult(feature=update.feature, error_code=error.code, error_message=error.message)
            for update in request.feature_updates
        ],
    )


def _unregister_broker_error(request: Message, version: int, error: KafkaError) -> Message:
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)


def _describe_quorum_error(request: Message, version: int, error: KafkaError) -> Message:
    return DescribeQuorumResponse(error_code=error.code, error_message=error.message)


def _add_raft_voter_error(request: Message, version: int, error: KafkaError) -> Message:
    return AddRaftVoterResponse(error_code=error.code, error_message=error.message)


def _remove_raft_voter_error(request: Message, version: int, error: KafkaError) -> Message:
    return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)


def _forwarded(
    key: ApiKey, low: int, high: int, error_response: Callable[[Message, int, KafkaError], Message]
) -> Api[NodeServices]:
    return Api(key, low, high, handle, error_response)


APIS = (
    _forwarded(ApiKey.CREATE_TOPICS, 2, 7, _create_topics_error),
    _forwarded(ApiKey.DELETE_TOPICS, 1, 6, _delete_topics_error),
    _forwarded(ApiKey.CREATE_PARTITIONS, 0, 3, _create_partitions_error),
    _forwarded(ApiKey.ALTER_CONFIGS, 0, 2, _alter_configs_error),
    _forwarded(ApiKey.ELECT_LEADERS, 0, 2, _elect_leaders_error),
    _forwarded(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, _alter_reassignments_error),
    _forwarded(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, _list_reassignments_error),
    _forwarded(ApiKey.DESCRIBE_QUORUM, 0, 2, _describe_quorum_error),
    _forwarded(ApiKey.ADD_RAFT_VOTER, 0, 1, _add_raft_voter_error),
    _forwarded(ApiKey.REMOVE_RAFT_VOTER, 0, 0, _remove_raft_voter_error),
    _forwarded(ApiKey.UPDATE_FEATURES, 0, 2, _update_features_error),
    _forwarded(ApiKey.UNREGISTER_BROKER, 0, 0, _unregister_broker_error),
)
