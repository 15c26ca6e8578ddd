"""All APIs that brokers and controllers serve, one row each; ApiVersions is derived from it.

A new API needs a message table, its name in ``api_keys``, a handler and a row: here, or in
:mod:`pykraft.metadata_log.controller.calls.forwarding` if the active controller decides it.
"""

from __future__ import annotations

from typing import Any

from pykraft.broker.apis import api_versions, forwarded
from pykraft.broker.apis.cluster import (
    alter_replica_log_dirs,
    describe_cluster,
    describe_configs,
    describe_controllers,
    describe_log_dirs,
    describe_topic_partitions,
    incremental_alter_configs,
    list_config_resources,
    metadata,
)
from pykraft.broker.apis.coordination import (
    describe_producers,
    find_coordinator,
    groups,
    offset_commit,
    txn_offset_commit,
    write_txn_markers,
)
from pykraft.broker.apis.coordination import transactional_ids as transactions
from pykraft.broker.apis.records import delete_records, fetch, list_offsets, offset_for_leader_epoch, produce
from pykraft.broker.apis.services import BrokerServices, ControllerServices
from pykraft.broker.serving.api import Api, ForwardedApi, HandledApi, HotApi, SlicedApi
from pykraft.group_coordinator import error_responses
from pykraft.group_coordinator.classic.join_request import MAX_PROTOCOLS
from pykraft.group_coordinator.describe import MAX_FILTERS
from pykraft.group_coordinator.service import GroupCoordinatorService as Coordinator
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.hot.produce import MAX_ELEMENTS
from pykraft.kafka_protocol.messages.cluster import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    MetadataRequest,
    MetadataResponse,
)
from pykraft.kafka_protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from pykraft.kafka_protocol.messages.records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    ProduceRequest,
    ProduceResponse,
)
from pykraft.kafka_protocol.messages.topics import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from pykraft.kafka_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pykraft.metadata_log.controller.calls.forwarding import FORWARDED
from pykraft.transaction_coordinator.requests import add_partitions
from pykraft.transaction_coordinator.requests.init_producer_id import (
    build_error as build_init_producer_id_error,
)
from pykraft.transaction_coordinator.service import TransactionCoordinatorService as Transactions

_FENCED_COORDINATOR = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""The error that makes clients look for another coordinator."""

_ON_BROKERS = (
    HotApi(ProduceRequest, ProduceResponse, produce.ProduceHandler, advertised_min=0, max_items=MAX_ELEMENTS),
    HotApi(FetchRequest, FetchResponse, fetch.FetchHandler),
    HandledApi(
        ListOffsetsRequest, ListOffsetsResponse, list_offsets.handle, partitions=list_offsets.partitions_of
    ),
    SlicedApi(MetadataRequest, MetadataResponse, metadata.handle, build_error=metadata.build_error),
    SlicedApi(
        FindCoordinatorRequest,
        FindCoordinatorResponse,
        find_coordinator.handle,
        build_error=find_coordinator.build_error,
    ),
    HandledApi(
        InitProducerIdRequest,
        InitProducerIdResponse,
        transactions.ask(Transactions.init_producer_id),
        refused_when_fenced=_FENCED_COORDINATOR,
        build_error=build_init_producer_id_error,
    ),
    HandledApi(
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
        transactions.ask(Transactions.add_partitions),
        refused_when_fenced=_FENCED_COORDINATOR,
        build_error=add_partitions.build_error,
    ),
    HandledApi(
        AddOffsetsToTxnRequest,
        AddOffsetsToTxnResponse,
        transactions.add_offsets,
        refused_when_fenced=_FENCED_COORDINATOR,
    ),
    HandledApi(
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
        txn_offset_commit.handle,
        refused_when_fenced=_FENCED_COORDINATOR,
    ),
    HandledApi(
        EndTxnRequest,
        EndTxnResponse,
        transactions.ask(Transactions.end_txn),
        refused_when_fenced=_FENCED_COORDINATOR,
    ),
    HandledApi(
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
        transactions.ask(Transactions.describe_transactions),
        refused_when_fenced=_FENCED_COORDINATOR,
    ),
    HandledApi(
        ListTransactionsRequest,
        ListTransactionsResponse,
        transactions.ask(Transactions.list_transactions),
        refused_when_fenced=_FENCED_COORDINATOR,
    ),
    SlicedApi(
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
        offset_for_leader_epoch.handle,
        refused_when_fenced=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        partitions=offset_for_leader_epoch.partitions_of,
    ),
    HandledApi(
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        delete_records.handle,
        refused_when_fenced=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        partitions=delete_records.partitions_of,
        ends_with_client=True,
    ),
    HandledApi(
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
        write_txn_markers.handle,
        refused_when_fenced=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        partitions=write_txn_markers.partitions_of,
    ),
    SlicedApi(
        DescribeProducersRequest,
        DescribeProducersResponse,
        describe_producers.handle,
        refused_when_fenced=ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ),
    HandledApi(DescribeClusterRequest, DescribeClusterResponse, describe_cluster.handle),
    SlicedApi(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, alter_replica_log_dirs.handle),
    HandledApi(DescribeLogDirsRequest, DescribeLogDirsResponse, describe_log_dirs.handle),
    HandledApi(ListConfigResourcesRequest, ListConfigResourcesResponse, list_config_resources.handle),
    SlicedApi(
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        describe_topic_partitions.handle,
        max_items=describe_topic_partitions.MAX_ITEMS,
    ),
    HotApi(
        OffsetCommitRequest,
        OffsetCommitResponse,
        offset_commit.OffsetCommitHandler,
        refused_when_fenced=_FENCED_COORDINATOR,
    ),
    HandledApi(
        OffsetFetchRequest,
        OffsetFetchResponse,
        groups.ask(Coordinator.offset_fetch),
        refused_when_fenced=_FENCED_COORDINATOR,
        build_error=error_responses.build_offset_fetch_error,
    ),
    HandledApi(
        JoinGroupRequest,
        JoinGroupResponse,
        groups.ask(Coordinator.join_group),
        refused_when_fenced=_FENCED_COORDINATOR,
        max_items=MAX_PROTOCOLS,
        build_error=error_responses.build_join_error,
    ),
    HandledApi(
        HeartbeatRequest,
        HeartbeatResponse,
        groups.ask(Coordinator.heartbeat),
        refused_when_fenced=_FENCED_COORDINATOR,
        build_error=error_responses.build_heartbeat_error,
    ),
    HandledApi(
        LeaveGroupRequest,
        LeaveGroupResponse,
        groups.ask(Coordinator.leave_group),
        refused_when_fenced=_FENCED_COORDINATOR,
    ),
    HandledApi(
        SyncGroupRequest,
        SyncGroupResponse,
        groups.ask(Coordinator.sync_group),
        refused_when_fenced=_FENCED_COORDINATOR,
        build_error=error_responses.build_sync_error,
    ),
    HandledApi(
        DescribeGroupsRequest,
        DescribeGroupsResponse,
        groups.describe_groups,
        refused_when_fenced=_FENCED_COORDINATOR,
    ),
    HandledApi(
        ListGroupsRequest,
        ListGroupsResponse,
        groups.ask(Coordinator.list_groups),
        refused_when_fenced=_FENCED_COORDINATOR,
        max_items=MAX_FILTERS,
    ),
    HandledApi(
        DeleteGroupsRequest,
        DeleteGroupsResponse,
        groups.ask(Coordinator.delete_groups),
        refused_when_fenced=_FENCED_COORDINATOR,
    ),
    HandledApi(
        OffsetDeleteRequest,
        OffsetDeleteResponse,
        groups.ask(Coordinator.offset_delete),
        refused_when_fenced=_FENCED_COORDINATOR,
    ),
    HandledApi(
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
        groups.consumer_group_heartbeat,
        refused_when_fenced=_FENCED_COORDINATOR,
    ),
    HandledApi(
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
        groups.consumer_group_describe,
        refused_when_fenced=_FENCED_COORDINATOR,
    ),
)

_ON_BOTH = (
    SlicedApi(DescribeConfigsRequest, DescribeConfigsResponse, describe_configs.handle),
    ForwardedApi(
        IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, incremental_alter_configs.forward
    ),
)

_ON_CONTROLLERS = (HandledApi(DescribeClusterRequest, DescribeClusterResponse, describe_controllers.handle),)

_FORWARDED = tuple(
    ForwardedApi(row.request, row.response, forwarded.forward, max_items=row.max_items)
    for row in FORWARDED.values()
    if row.request is not IncrementalAlterConfigsRequest
)

# mypy has checked each row by itself (its messages against its handler), and checks here which parts its
# handler may use.
_BROKERS: tuple[Api[BrokerServices, Any, Any], ...] = (*_ON_BROKERS, *_ON_BOTH, *_FORWARDED)
_CONTROLLERS: tuple[Api[ControllerServices, Any, Any], ...] = (*_ON_CONTROLLERS, *_ON_BOTH, *_FORWARDED)


def make_apis() -> tuple[Api[BrokerServices, Any, Any], ...]:
    """The APIs that a broker serves, ApiVersions among them."""
    return (*_BROKERS, api_versions.make_api(_BROKERS))


def make_controller_apis() -> tuple[Api[ControllerServices, Any, Any], ...]:
    """The APIs that a controller serves to clients that connect to it (KIP-919), ApiVersions among them."""
    return (*_CONTROLLERS, api_versions.make_api(_CONTROLLERS))
