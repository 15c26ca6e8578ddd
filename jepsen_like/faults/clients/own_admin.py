"""Workloads' administration through pykraft's own admin client, in both worlds.

The client repeats requests without a response, so a refusal may be of a repetition (TOPIC_ALREADY_EXISTS
after a first request that arrived): only errors in the request itself are a certain refusal.
"""

from collections.abc import Mapping, Sequence

from pykraft.jepsen_like.faults.clients.interface import Commit
from pykraft.jepsen_like.faults.clients.outcomes import answered, outcome
from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import Network
from pykraft.kafka_client.results import ConfigChange, NewTopic
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType, ElectionType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.address import Address

REQUEST_TIMEOUT_MS = 5_000
API_TIMEOUT_MS = 15_000
CONNECT_TIMEOUT_MS = 1_000

REFUSED = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


def client_config(addresses: tuple[Address, ...], name: str) -> ClientConfig:
    """Short timeouts, for a cluster under constant faults."""
    return ClientConfig(
        addresses,
        client_id=name,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        default_api_timeout_ms=API_TIMEOUT_MS,
        connect_timeout_ms=CONNECT_TIMEOUT_MS,
    )


class OwnAdmin:
    """For one task; every method raises :class:`.interface.OperationError`."""

    def __init__(self, network: Network, config: ClientConfig) -> None:
        self._admin = Admin(network, config)

    @property
    def repeats(self) -> int:
        """How many requests were sent again without a certain outcome before. One of them may be carried out
        long after its repetition was answered: when a link that was cut delivers what it held.
        """
        return self._admin.cluster.repeats

    async def create_topic(
        self, topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        wanted = NewTopic(topic, partitions, replication_factor, configs)
        with answered(REFUSED):
            (created,) = await self._admin.create_topics([wanted])
        _check(created.error)

    async def delete_topic(self, topic: str) -> None:
        with answered(REFUSED):
            (deleted,) = await self._admin.delete_topics([topic])
        _check(deleted.error)

    async def create_partitions(self, topic: str, total: int) -> None:
        with answered(REFUSED):
            (grown,) = await self._admin.create_partitions({topic: total})
        _check(grown.error)

    async def alter_config(self, topic: str, name: str, value: str) -> None:
        change = ConfigChange(name, ConfigOperation.SET, value)
        with answered(REFUSED):
            await self._admin.alter_configs(ConfigResourceType.TOPIC, topic, [change])

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Begin a reassignment; it is complete when :meth:`replicas` shows it."""
        with answered(REFUSED):
            outcomes = await self._admin.alter_partition_reassignments({partition: tuple(replicas)})
        for one in outcomes:
            _check(one.error)

    async def elect_preferred(self, partition: TopicPartition) -> None:
        """Also succeeds if the preferred leader leads already."""
        with answered(REFUSED):
            outcomes = await self._admin.elect_leaders(ElectionType.PREFERRED, [partition])
        for one in outcomes:
            if one.error is not None and one.error.code is not ErrorCode.ELECTION_NOT_NEEDED:
                _check(one.error)

    async def brokers(self) -> Sequence[int]:
        """The ids of the listed brokers."""
        with answered(REFUSED):
            described = await self._admin.describe_cluster()
        return [broker.id for broker in described.brokers]

    async def partition_count(self, topic: str) -> int | None:
        """None: there is no such topic."""
        with answered(REFUSED):
            try:
                (described,) = await self._admin.describe_topics([topic])
            except KafkaError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return None
                raise
        return len(described.partitions)

    async def config(self, topic: str, name: str) -> str | None:
        with answered(REFUSED):
            entries = await self._admin.describe_configs(ConfigResourceType.TOPIC, topic, [name])
        return next((entry.value for entry in entries if entry.name == name), None)

    async def replicas(self, partition: TopicPartition) -> Sequence[int]:
        with answered(REFUSED):
            (described,) = await self._admin.describe_topics([partition.topic])
        found = {one.index: one.replicas for one in described.partitions}
        return found.get(partition.partition, ())

    async def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """The first offset whose record has this timestamp or a later one; None: there is none."""
        with answered(REFUSED):
            return (await self._admin.list_offsets({partition: timestamp_ms}))[partition].offset

    async def delete_records(self, partition: TopicPartition, offset: int) -> int:
        """Delete the records below ``offset``, -1: below the high watermark; returns the low watermark."""
        with answered(REFUSED):
            low = (await self._admin.delete_records({partition: offset}))[partition]
        if isinstance(low, KafkaError):
            raise outcome(low, REFUSED)
        return low

    async def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Commit | None]:
        """The group's committed offsets as its coordinator returns them; None where there is none."""
        with answered(REFUSED):
            found = await self._admin.group_offsets(group, partitions)
        return {
            partition: Commit(one.offset, one.metadata.rstrip("\0"))  # confluent-kafka ends it so
            if (one := found.get(partition)) is not None
            else None
            for partition in partitions
        }

    async def close(self) -> None:
        self._admin.close()


def _check(error: KafkaError | None) -> None:
    if error is not None:
        raise outcome(error, REFUSED)
