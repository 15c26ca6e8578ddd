"""The numbers of the APIs, and the message tables that belong to them."""

from __future__ import annotations

from enum import IntEnum
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Final, cast

from pykraft.kafka_protocol.codec.schema import NEVER_FLEXIBLE, Request


class ApiKey(IntEnum):
    """Every API that a Kafka 4 node knows. Keys 4 to 7 were removed with ZooKeeper."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


_FAMILIES: Final = {
    "records": "produce fetch list_offsets offset_for_leader_epoch delete_records",
    "groups": "find_coordinator join_group sync_group heartbeat leave_group describe_groups list_groups"
    " delete_groups consumer_group_heartbeat consumer_group_describe",
    "offsets": "offset_commit offset_fetch offset_delete txn_offset_commit",
    "transactions": "init_producer_id add_partitions_to_txn add_offsets_to_txn end_txn write_txn_markers"
    " describe_producers describe_transactions list_transactions",
    "topics": "create_topics delete_topics create_partitions alter_partition_reassignments"
    " list_partition_reassignments elect_leaders describe_topic_partitions",
    "cluster": "api_versions metadata describe_cluster describe_quorum add_raft_voter remove_raft_voter"
    " update_features unregister_broker describe_log_dirs alter_replica_log_dirs sasl_handshake"
    " sasl_authenticate",
    "configs": "describe_configs incremental_alter_configs alter_configs list_config_resources",
}
"""Each module under ``messages`` and the APIs whose tables it holds."""

_FAMILY: Final = {api: family for family, apis in _FAMILIES.items() for api in apis.split()}


@cache
def request_class(api_key: int) -> type[Request[Any]]:
    """The request class of an API, imported on first use. :class:`KeyError` if there is none."""
    try:
        name = ApiKey(api_key).name.lower()
        module = import_module(f"pykraft.kafka_protocol.messages.{_FAMILY[name]}")
    except (ValueError, KeyError):
        raise KeyError(f"no message table for API {api_key}") from None
    class_name = "".join(part.capitalize() for part in name.split("_")) + "Request"
    return cast(type[Request[Any]], getattr(module, class_name))


@lru_cache(maxsize=256)
def flexible_from(api_key: int) -> int:
    """The first version with compact encoding and tagged fields (KIP-482), of header and body alike.

    An API without a message table counts as one without a flexible version. Called for every frame, whatever
    its key.
    """
    try:
        return request_class(api_key).FLEXIBLE_FROM
    except KeyError:
        return NEVER_FLEXIBLE
