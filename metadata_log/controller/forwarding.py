"""Clients' requests that brokers pass on: which they are, and what handles each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.add_raft_voter import AddRaftVoterRequest
from pykraft.kafka_protocol.messages.alter_configs import AlterConfigsRequest
from pykraft.kafka_protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from pykraft.kafka_protocol.messages.create_partitions import CreatePartitionsRequest
from pykraft.kafka_protocol.messages.create_topics import CreateTopicsRequest
from pykraft.kafka_protocol.messages.delete_topics import DeleteTopicsRequest
from pykraft.kafka_protocol.messages.describe_quorum import DescribeQuorumRequest
from pykraft.kafka_protocol.messages.elect_leaders import ElectLeadersRequest
from pykraft.kafka_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from pykraft.kafka_protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from pykraft.kafka_protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from pykraft.kafka_protocol.messages.unregister_broker import UnregisterBrokerRequest
from pykraft.kafka_protocol.messages.update_features import UpdateFeaturesRequest
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.kafka_protocol.schema import Message
from pykraft.metadata_log.controller.core import ControllerCore
from pykraft.metadata_log.controller.result import ControllerResult

Handle = Callable[[ControllerCore, RequestContext, Any], ControllerResult[Any]]


@dataclass(frozen=True, slots=True)
class Forwarded:
    """One forwarded API: how its request is read and who decides on it."""

    request_class: type[Message]
    handle: Handle


FORWARDED: Final[dict[int, Forwarded]] = {
    ApiKey.CREATE_TOPICS: Forwarded(CreateTopicsRequest, ControllerCore.handle_create_topics),
    ApiKey.DELETE_TOPICS: Forwarded(DeleteTopicsRequest, ControllerCore.handle_delete_topics),
    ApiKey.CREATE_PARTITIONS: Forwarded(CreatePartitionsRequest, ControllerCore.handle_create_partitions),
    ApiKey.ALTER_CONFIGS: Forwarded(AlterConfigsRequest, ControllerCore.handle_alter_configs),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Forwarded(
        IncrementalAlterConfigsRequest, ControllerCore.handle_incremental_alter_configs
    ),
    ApiKey.ELECT_LEADERS: Forwarded(ElectLeadersRequest, ControllerCore.handle_elect_leaders),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Forwarded(
        AlterPartitionReassignmentsRequest, ControllerCore.handle_alter_partition_reassignments
    ),
    ApiKey.UNREGISTER_BROKER: Forwarded(UnregisterBrokerRequest, ControllerCore.handle_unregister_broker),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Forwarded(
        ListPartitionReassignmentsRequest, ControllerCore.handle_list_partition_reassignments
    ),
}


QUORUM_REQUESTS: Final[dict[int, type[Message]]] = {
    ApiKey.DESCRIBE_QUORUM: DescribeQuorumRequest,
    ApiKey.ADD_RAFT_VOTER: AddRaftVoterRequest,
    ApiKey.REMOVE_RAFT_VOTER: RemoveRaftVoterRequest,
}
"""What the quorum answers, not the metadata."""


def decode_forwarded(api_key: int, api_version: int, body: bytes) -> Message:
    """The request. UNSUPPORTED_VERSION if the API is not served here, INVALID_REQUEST if it is malformed."""
    if api_key in QUORUM_REQUESTS:
        return QUORUM_REQUESTS[api_key].decode(body, api_version)
    if api_key == ApiKey.UPDATE_FEATURES:
        return UpdateFeaturesRequest.decode(body, api_version)
    forwarded = FORWARDED.get(api_key)
    if forwarded is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the controller does not serve API {api_key}")
    return forwarded.request_class.decode(body, api_version)
