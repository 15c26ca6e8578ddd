"""The values that fields of requests usually have, by the field's name, which is Kafka's."""

from collections.abc import Sequence
from typing import Final

BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
PARTITIONS: Final = (
    "partition",
    "partitions",
    "index",
    "partition_index",
    "partition_indexes",
    "partition_id",
)
GROUPS: Final = ("group_id", "groups", "group_ids", "groups_names", "coordinator_keys", "key")
TOPICS: Final = ("topic", "topics", "topic_name", "topic_names", "subscribed_topic_names")
NUMBERS: Final[dict[str, Sequence[int]]] = {
    "acks": (-1, 0, 1),
    "timestamp": (-1, -2, -3, -4, -5, -6, 0, 1_700_000_000_000),
    "isolation_level": (0, 1),
    "key_type": (0, 1, 2),
    "resource_type": (2, 4, 8, 16, 32),
    "resource_types": (2, 4, 8, 16, 32),
    "election_type": (0, 1),
    "config_operation": (0, 1, 2, 3),
    "num_partitions": (-1, 1, 2, 3),
    "replication_factor": (-1, 1, 2),
    "count": (1, 2, 3, 5),
    "broker_id": (2, 7),  # not the node itself
    "broker_ids": (1, 2),
    "replicas": (1, 2),
    "replica_id": (-1, -2, 0, 1),
    "generation_id": (-1, 0, 1, 2),
    "generation_id_or_member_epoch": (-1, 0, 1, 2),
    "member_epoch": (-2, -1, 0, 1, 2),
    "producer_id": (-1, 0, 1, 2, 1000),
    "producer_epoch": (-1, 0, 1, 2),
    "session_id": (0, 1),
    "session_epoch": (-1, 0, 1, 2),
    "timeout_ms": (0, 1, 1000, 30_000),
    "max_wait_ms": (0, 1, 500),
    "session_timeout_ms": (6000, 10_000),
    "rebalance_timeout_ms": (0, 1000, 30_000),
    "transaction_timeout_ms": (1000, 60_000),
    "max_version_level": (0, 1, 2, 30),
    "upgrade_type": (1, 2, 3),
    "response_partition_limit": (1, 2000),
    "fetch_offset": (0, 1, 5),
    "min_bytes": (0, 1),
    "max_bytes": (1 << 20,),
    "partition_max_bytes": (1 << 20,),
}
TOO_MANY_PARTITIONS: Final = (10_001, 2**31 - 1, -5, 0)
VALUES: Final = ("1", "compact", "9223372036854775807", "-1", "true", "", "producer", "1000", "x" * 300)
FEATURES: Final = ("metadata.version", "group.version", "transaction.version", "kraft.version", "no.feature")
STRANGE: Final = ("", ".", "a b", "\u00e9\u2603", "x" * 249, "__consumer_offsets", "__transaction_state")
