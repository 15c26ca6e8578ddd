"""The admin client: every operation as a coroutine (:class:`Admin`) and blocking (:class:`AdminClient`).

Both raise :class:`~pykraft.kafka_protocol.errors.KafkaError`. Operations on several items return one outcome
per item, in the order asked; ``outcome.check()`` raises its error. ``timeout_ms`` is the total time of an
operation, retries included; default ``default.api.timeout.ms``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from pykraft.kafka_client.admin import cluster as admin_cluster
from pykraft.kafka_client.admin import config_resources as admin_config_resources
from pykraft.kafka_client.admin import describe_groups as admin_describe_groups
from pykraft.kafka_client.admin import features as admin_features
from pykraft.kafka_client.admin import group_members as admin_group_members
from pykraft.kafka_client.admin import group_offsets as admin_group_offsets
from pykraft.kafka_client.admin import groups as admin_groups
from pykraft.kafka_client.admin import leaders as admin_leaders
from pykraft.kafka_client.admin import log_dirs as admin_log_dirs
from pykraft.kafka_client.admin import producers as admin_producers
from pykraft.kafka_client.admin import quorum as admin_quorum
from pykraft.kafka_client.admin import topics as admin_topics
from pykraft.kafka_client.admin import transactions as admin_transactions
from pykraft.kafka_client.admin.config_resources import ConfigResource
from pykraft.kafka_client.admin.delete_records import delete_records
from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.coordinators import find_coordinator
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.list_offsets import ListedOffset, list_each_offset, list_offsets
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import Network, parse_bootstrap_servers
from pykraft.kafka_client.results import (
    AbortTransactionSpec,
    BrokerDescription,
    ClusterDescription,
    ClusterFeatures,
    CommittedOffset,
    ConfigChange,
    ConfigEntry,
    CreatedTopic,
    FeatureUpdate,
    GroupDescription,
    GroupListing,
    LogDirDescription,
    MemberToRemove,
    NewTopic,
    Outcome,
    PartitionOutcome,
    PartitionReassignment,
    ProducerIdAndEpoch,
    ProducerState,
    QuorumDescription,
    TopicDescription,
    TopicListing,
    TransactionDescription,
    TransactionListing,
)
from pykraft.kafka_protocol.enums import ConfigResourceType, ElectionType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.runtime.address import Address

P = ParamSpec("P")
T = TypeVar("T")


class Admin:
    """The operations, over any network. Tasks of one event loop may share it."""

    def __init__(self, network: Network, config: ClientConfig) -> None:
        self.cluster = Cluster(network, config)

    def close(self) -> None:
        self.cluster.close()

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> list[CreatedTopic]:
        by = self.cluster.deadline(timeout_ms)
        return await admin_topics.create_topics(self.cluster, topics, by, validate_only)

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int | None = None) -> list[Outcome]:
        return await admin_topics.delete_topics(self.cluster, names, self.cluster.deadline(timeout_ms))

    async def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] = MappingProxyType({}),
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> list[Outcome]:
        """Raise each topic's number of partitions to the given total.

        ``assignments``: the replicas of each new partition of a topic, in place of the controller's choice.
        """
        by = self.cluster.deadline(timeout_ms)
        return await admin_topics.create_partitions(self.cluster, totals, by, validate_only, assignments)

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: int | None = None
    ) -> list[TopicListing]:
        by = self.cluster.deadline(timeout_ms)
        return await admin_topics.list_topics(self.cluster, by, include_internal)

    async def describe_topics(
        self, names: Sequence[str], *, page_partitions: int | None = None, timeout_ms: int | None = None
    ) -> list[TopicDescription]:
        """Raises UNKNOWN_TOPIC_OR_PARTITION for a name that does not exist.

        ``page_partitions``: of how many partitions at most a broker tells in one answer.
        """
        by = self.cluster.deadline(timeout_ms)
        return await admin_topics.describe_topics(self.cluster, names, by, page_partitions)

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        isolation_level: int = 0,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets by timestamp in ms, or -1 latest, -2 earliest, -3 largest timestamp."""
        by = self.cluster.deadline(timeout_ms)
        return await list_offsets(self.cluster, timestamps, by, isolation_level)

    async def list_each_offset(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        """As :meth:`list_offsets`, with an error in place of the offset for the partitions that fail."""
        return await list_each_offset(self.cluster, timestamps, self.cluster.deadline(timeout_ms))

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int | KafkaError]:
        """Delete the records before these offsets (-1: before the high watermark).

        Returns the low watermark of each partition, or its error.
        """
        return await delete_records(self.cluster, offsets, self.cluster.deadline(timeout_ms))

    async def describe_cluster(
        self,
        *,
        include_fenced_brokers: bool = False,
        controllers: bool = False,
        timeout_ms: int | None = None,
    ) -> ClusterDescription:
        """``controllers``: the servers to connect to are controllers; they describe each other."""
        by = self.cluster.deadline(timeout_ms)
        return await admin_cluster.describe_cluster(self.cluster, by, include_fenced_brokers, controllers)

    async def unregister_broker(self, broker_id: int, *, timeout_ms: int | None = None) -> None:
        """Remove the registration of a fenced broker that will not come back."""
        await admin_cluster.unregister_broker(self.cluster, broker_id, self.cluster.deadline(timeout_ms))

    async def describe_quorum(self, *, timeout_ms: int | None = None) -> QuorumDescription:
        return await admin_cluster.describe_quorum(self.cluster, self.cluster.deadline(timeout_ms))

    async def add_raft_voter(
        self,
        voter_id: int,
        directory_id: Uuid,
        endpoints: Mapping[str, Address],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Make a controller a voter of the metadata quorum; ``endpoints`` are its listeners by name."""
        by = self.cluster.deadline(timeout_ms)
        await admin_quorum.add_raft_voter(self.cluster, voter_id, directory_id, endpoints, by)

    async def remove_raft_voter(
        self, voter_id: int, directory_id: Uuid, *, timeout_ms: int | None = None
    ) -> None:
        by = self.cluster.deadline(timeout_ms)
        await admin_quorum.remove_raft_voter(self.cluster, voter_id, directory_id, by)

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> list[PartitionOutcome]:
        """``partitions`` None: every partition that needs an election; the outcomes then name only those."""
        by = self.cluster.deadline(timeout_ms)
        return await admin_leaders.elect_leaders(self.cluster, election_type, partitions, by)

    async def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int | None = None,
    ) -> list[PartitionOutcome]:
        """Move partitions to these replicas; None cancels a reassignment. If the replication factor may not
        change, partitions of which it would are refused with INVALID_REPLICATION_FACTOR.
        """
        by = self.cluster.deadline(timeout_ms)
        return await admin_leaders.alter_reassignments(
            self.cluster, replicas, by, allow_replication_factor_change=allow_replication_factor_change
        )

    async def list_partition_reassignments(
        self, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """All reassignments in progress."""
        return await admin_leaders.list_reassignments(self.cluster, self.cluster.deadline(timeout_ms))

    async def describe_features(self, *, timeout_ms: int | None = None) -> ClusterFeatures:
        return await admin_features.describe_features(self.cluster, self.cluster.deadline(timeout_ms))

    async def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        await admin_features.update_features(
            self.cluster, updates, self.cluster.deadline(timeout_ms), validate_only
        )

    async def describe_configs(
        self,
        resource_type: ConfigResourceType,
        name: str,
        keys: Sequence[str] | None = None,
        *,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> list[ConfigEntry]:
        by = self.cluster.deadline(timeout_ms)
        return await admin_cluster.describe_configs(
            self.cluster, resource_type, name, by, keys, include_documentation
        )

    async def alter_configs(
        self,
        resource_type: ConfigResourceType,
        name: str,
        changes: Sequence[ConfigChange],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Change keys one by one, leaving others alone (IncrementalAlterConfigs)."""
        by = self.cluster.deadline(timeout_ms)
        await admin_cluster.alter_configs(self.cluster, resource_type, name, changes, by, validate_only)

    async def list_config_resources(
        self, types: Collection[ConfigResourceType] = (), *, timeout_ms: int | None = None
    ) -> list[ConfigResource]:
        """The resources of these types (none: of all) that can be described or have been configured."""
        by = self.cluster.deadline(timeout_ms)
        return await admin_config_resources.list_config_resources(self.cluster, types, by)

    async def describe_log_dirs(
        self, broker_ids: Collection[int], *, timeout_ms: int | None = None
    ) -> dict[int, list[LogDirDescription]]:
        by = self.cluster.deadline(timeout_ms)
        return await admin_log_dirs.describe_log_dirs(self.cluster, broker_ids, by)

    async def alter_replica_log_dirs(
        self, broker_id: int, wanted: Mapping[TopicPartition, str], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, ErrorCode]:
        """Move replicas of one broker to other directories of it. NONE: the move has begun."""
        by = self.cluster.deadline(timeout_ms)
        return await admin_log_dirs.alter_replica_log_dirs(self.cluster, broker_id, wanted, by)

    async def find_coordinator(self, group_id: str, *, timeout_ms: int | None = None) -> BrokerDescription:
        return await find_coordinator(self.cluster, group_id, self.cluster.deadline(timeout_ms))

    async def list_groups(
        self,
        states: Sequence[str] = (),
        types: Sequence[str] = (),
        protocol_types: Collection[str] = (),
        *,
        timeout_ms: int | None = None,
    ) -> list[GroupListing]:
        """The groups that match all filters; an empty one matches all groups."""
        by = self.cluster.deadline(timeout_ms)
        return await admin_groups.list_groups(self.cluster, by, states, types, protocol_types)

    async def describe_group(self, group_id: str, *, timeout_ms: int | None = None) -> GroupDescription:
        """A group of either protocol. Raises GROUP_ID_NOT_FOUND."""
        by = self.cluster.deadline(timeout_ms)
        return await admin_describe_groups.describe_group(self.cluster, group_id, by)

    async def describe_groups(
        self, group_ids: Sequence[str], *, timeout_ms: int | None = None
    ) -> dict[str, GroupDescription | KafkaError]:
        """Groups of either protocol, or their errors."""
        by = self.cluster.deadline(timeout_ms)
        return await admin_describe_groups.describe_groups(self.cluster, group_ids, by)

    async def delete_groups(
        self, group_ids: Sequence[str], *, timeout_ms: int | None = None
    ) -> list[Outcome]:
        return await admin_groups.delete_groups(self.cluster, group_ids, self.cluster.deadline(timeout_ms))

    async def group_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, CommittedOffset]:
        """Committed offsets of these partitions (None: of all that have one)."""
        by = self.cluster.deadline(timeout_ms)
        return await admin_groups.group_offsets(self.cluster, group_id, by, partitions)

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set committed offsets of a group without members; returns the error of each partition."""
        by = self.cluster.deadline(timeout_ms)
        return await admin_group_offsets.alter_group_offsets(self.cluster, group_id, offsets, by)

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete committed offsets of topics that the group does not read; returns the error of each
        partition.
        """
        by = self.cluster.deadline(timeout_ms)
        return await admin_group_offsets.delete_group_offsets(self.cluster, group_id, partitions, by)

    async def remove_group_members(
        self,
        group_id: str,
        members: Sequence[MemberToRemove] | None = None,
        *,
        reason: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[Outcome]:
        """Remove members from a group; None: all that it has now."""
        by = self.cluster.deadline(timeout_ms)
        return await admin_group_members.remove_group_members(self.cluster, group_id, by, members, reason)

    async def list_transactions(
        self,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        *,
        longer_than_ms: int | None = None,
        pattern: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids that pass all filters, from every broker; an empty one, or None, passes all.

        ``longer_than_ms``: open for longer (an id without a transaction counts, too); ``pattern``: a regular
        expression for the whole id.
        """
        by = self.cluster.deadline(timeout_ms)
        return await admin_transactions.list_transactions(
            self.cluster, by, states, producer_ids, longer_than_ms, pattern
        )

    async def describe_transactions(
        self, transactional_ids: Collection[str], *, timeout_ms: int | None = None
    ) -> dict[str, TransactionDescription | KafkaError]:
        """Transactional ids as their coordinators know them, or their errors."""
        by = self.cluster.deadline(timeout_ms)
        return await admin_transactions.describe_transactions(self.cluster, transactional_ids, by)

    async def describe_producers(
        self,
        partitions: Collection[TopicPartition],
        *,
        broker_id: int | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, tuple[ProducerState, ...] | KafkaError]:
        """The producers that the leader of each partition knows, or the replica on a broker, or the error."""
        by = self.cluster.deadline(timeout_ms)
        return await admin_producers.describe_producers(self.cluster, partitions, by, broker_id)

    async def fence_producers(
        self, transactional_ids: Collection[str], *, timeout_ms: int | None = None
    ) -> dict[str, ProducerIdAndEpoch | KafkaError]:
        """Shut out the producers of these ids, and abort their transactions; what a new producer would get.

        As in Kafka, ``timeout_ms`` (default ``request.timeout.ms``) becomes the ids' transaction timeout.
        """
        by = self.cluster.deadline(timeout_ms)
        txn_timeout_ms = self.cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms
        return await admin_transactions.fence_producers(self.cluster, transactional_ids, by, txn_timeout_ms)

    async def force_terminate_transaction(
        self, transactional_id: str, *, timeout_ms: int | None = None
    ) -> None:
        """Abort the open transaction of an id and shut out its producer; the id need not be known."""
        fenced = await self.fence_producers([transactional_id], timeout_ms=timeout_ms)
        if isinstance(error := fenced[transactional_id], KafkaError):
            raise error

    async def abort_transaction(self, spec: AbortTransactionSpec, *, timeout_ms: int | None = None) -> None:
        """Abort a hanging transaction in one partition. Its coordinator is not told: a transaction that it
        knows is to be ended there, by :meth:`force_terminate_transaction`.
        """
        by = self.cluster.deadline(timeout_ms)
        await admin_producers.abort_transaction(self.cluster, spec, by)


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
