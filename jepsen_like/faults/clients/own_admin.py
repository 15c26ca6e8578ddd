"""Workloads' administration through pykraft's own admin client, in both worlds.

The client repeats requests without a response, so a refusal may be of a repetition (TOPIC_ALREADY_EXISTS
after a first request that arrived): only errors in the request itself are a certain refusal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from pykraft.jepsen_like.faults.clients.interface import Commit, RefusedError, UnknownOutcomeError
from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import Network
from pykraft.kafka_client.results import ConfigChange, NewTopic
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType, ElectionType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.address import Address

T = TypeVar("T")

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
    """:class:`~pykraft.jepsen_like.faults.clients.interface.Admin`; for one task."""

    def __init__(self, network: Network, config: ClientConfig) -> None:
        self._admin = Admin(network, config)

    @property
    def repeats(self) -> int:
        return self._admin.cluster.repeats

    async def create_topic(
        self, topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        wanted = NewTopic(topic, partitions, replication_factor, configs)
        (created,) = await _answered(self._admin.create_topics([wanted]))
        _check(created.error)

    async def delete_topic(self, topic: str) -> None:
        (deleted,) = await _answered(self._admin.delete_topics([topic]))
        _check(deleted.error)

    async def create_partitions(self, topic: str, total: int) -> None:
        (grown,) = await _answered(self._admin.create_partitions({topic: total}))
        _check(grown.error)

    async def alter_config(self, topic: str, name: str, value: str) -> None:
        change = ConfigChange(name, ConfigOperation.SET, value)
        await _answered(self._admin.alter_configs(ConfigResourceType.TOPIC, topic, [change]))

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        moves = {partition: tuple(replicas)}
        for outcome in await _answered(self._admin.alter_partition_reassignments(moves)):
            _check(outcome.error)

    async def elect_preferred(self, partition: TopicPartition) -> None:
        for outcome in await _answered(self._admin.elect_leaders(ElectionType.PREFERRED, [partition])):
            if outcome.error is not None and outcome.error.code is not ErrorCode.ELECTION_NOT_NEEDED:
                _check(outcome.error)

    async def brokers(self) -> Sequence[int]:
        described = await _answered(self._admin.describe_cluster())
        return [broker.id for broker in described.brokers]

    async def partition_count(self, topic: str) -> int | None:
        try:
            (described,) = await self._admin.describe_topics([topic])
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            raise _outcome(error) from error
        return len(described.partitions)

    async def config(self, topic: str, name: str) -> str | None:
        entries = await _answered(self._admin.describe_configs(ConfigResourceType.TOPIC, topic, [name]))
        return next((entry.value for entry in entries if entry.name == name), None)

    async def replicas(self, partition: TopicPartition) -> Sequence[int]:
        (described,) = await _answered(self._admin.describe_topics([partition.topic]))
        found = {one.index: one.replicas for one in described.partitions}
        return found.get(partition.partition, ())

    async def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        return (await _answered(self._admin.list_offsets({partition: timestamp_ms})))[partition].offset

    async def delete_records(self, partition: TopicPartition, offset: int) -> int:
        answer = (await _answered(self._admin.delete_records({partition: offset})))[partition]
        if isinstance(answer, KafkaError):
            raise _outcome(answer)
        return answer

    async def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Commit | None]:
        found = await _answered(self._admin.group_offsets(group, partitions))
        return {
            partition: Commit(one.offset, one.metadata.rstrip("\0"))  # confluent-kafka ends it so
            if (one := found.get(partition)) is not None
            else None
            for partition in partitions
        }

    async def close(self) -> None:
        self._admin.close()


async def _answered(operation: Awaitable[T]) -> T:
    try:
        return await operation
    except KafkaError as error:
        raise _outcome(error) from error


def _check(error: KafkaError | None) -> None:
    if error is not None:
        raise _outcome(error)


def _outcome(error: KafkaError) -> RefusedError | UnknownOutcomeError:
    kind = RefusedError if error.code in REFUSED else UnknownOutcomeError
    return kind(f"{error.code.name}: {error.message}")
