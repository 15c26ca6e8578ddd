"""The admin client: every operation as a coroutine (:class:`Admin`) and blocking (:class:`AdminClient`).

Both raise :class:`~pykraft.kafka_protocol.errors.KafkaError`. Operations on several items return one outcome
per item, in the order asked; ``outcome.check()`` raises its error. ``timeout_ms`` is the total time of an
operation, retries included; default ``default.api.timeout.ms``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from pykraft.kafka_client.admin.cluster import ClusterOperations
from pykraft.kafka_client.admin.configs import ConfigOperations
from pykraft.kafka_client.admin.group_offsets import OffsetOperations
from pykraft.kafka_client.admin.groups import GroupOperations
from pykraft.kafka_client.admin.leaders import ReplicaOperations
from pykraft.kafka_client.admin.log_dirs import LogDirOperations
from pykraft.kafka_client.admin.producers import ProducerOperations
from pykraft.kafka_client.admin.records import RecordOperations
from pykraft.kafka_client.admin.topics import TopicOperations
from pykraft.kafka_client.admin.transactions import TransactionOperations
from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.network import parse_bootstrap_servers

P = ParamSpec("P")
T = TypeVar("T")


class Admin(
    TopicOperations,
    ClusterOperations,
    ConfigOperations,
    ReplicaOperations,
    LogDirOperations,
    GroupOperations,
    OffsetOperations,
    TransactionOperations,
    ProducerOperations,
    RecordOperations,
):
    """The operations, over any network. Tasks of one event loop may share it."""


def _blocking(
    operation: Callable[Concatenate[Admin, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[AdminClient, P], T]:
    def call(self: AdminClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._turn:
            return run(operation(self.admin, *args, **kwargs))

    call.__name__ = operation.__name__
    call.__doc__ = operation.__doc__
    return call


class AdminClient:
    """The same operations, blocking, those of several threads one after another. A context manager."""

    def __init__(self, bootstrap_servers: str, **settings: Any) -> None:
        """``settings`` are the other fields of :class:`~pykraft.kafka_client.cluster.ClientConfig`."""
        config = ClientConfig(parse_bootstrap_servers(bootstrap_servers), **settings)
        self.admin = Admin(BlockingNetwork(), config)
        self._turn = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.admin.close()

    create_topics = _blocking(Admin.create_topics)
    delete_topics = _blocking(Admin.delete_topics)
    create_partitions = _blocking(Admin.create_partitions)
    list_topics = _blocking(Admin.list_topics)
    describe_topics = _blocking(Admin.describe_topics)
    list_offsets = _blocking(Admin.list_offsets)
    list_each_offset = _blocking(Admin.list_each_offset)
    delete_records = _blocking(Admin.delete_records)
    describe_cluster = _blocking(Admin.describe_cluster)
    unregister_broker = _blocking(Admin.unregister_broker)
    describe_quorum = _blocking(Admin.describe_quorum)
    add_raft_voter = _blocking(Admin.add_raft_voter)
    remove_raft_voter = _blocking(Admin.remove_raft_voter)
    elect_leaders = _blocking(Admin.elect_leaders)
    alter_partition_reassignments = _blocking(Admin.alter_partition_reassignments)
    list_partition_reassignments = _blocking(Admin.list_partition_reassignments)
    describe_features = _blocking(Admin.describe_features)
    update_features = _blocking(Admin.update_features)
    describe_configs = _blocking(Admin.describe_configs)
    alter_configs = _blocking(Admin.alter_configs)
    list_config_resources = _blocking(Admin.list_config_resources)
    describe_log_dirs = _blocking(Admin.describe_log_dirs)
    alter_replica_log_dirs = _blocking(Admin.alter_replica_log_dirs)
    find_coordinator = _blocking(Admin.find_coordinator)
    list_groups = _blocking(Admin.list_groups)
    describe_group = _blocking(Admin.describe_group)
    describe_groups = _blocking(Admin.describe_groups)
    delete_groups = _blocking(Admin.delete_groups)
    group_offsets = _blocking(Admin.group_offsets)
    alter_group_offsets = _blocking(Admin.alter_group_offsets)
    delete_group_offsets = _blocking(Admin.delete_group_offsets)
    remove_group_members = _blocking(Admin.remove_group_members)
    list_transactions = _blocking(Admin.list_transactions)
    describe_transactions = _blocking(Admin.describe_transactions)
    describe_producers = _blocking(Admin.describe_producers)
    fence_producers = _blocking(Admin.fence_producers)
    force_terminate_transaction = _blocking(Admin.force_terminate_transaction)
    abort_transaction = _blocking(Admin.abort_transaction)
