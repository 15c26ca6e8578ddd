"""Workloads' single requests through pykraft's own client, in both worlds.

An ordinary client repeats what was not answered, or was answered with an error that passes, and so may carry
out one change twice, the second time after somebody else's. Here what has been sent once is not sent again:
whatever goes wrong before that is a certain refusal, and whatever goes wrong after it an unknown outcome.
"""

from collections.abc import Sequence
from typing import Final

from pykraft.jepsen_like.faults.clients.interface import Commit
from pykraft.jepsen_like.faults.clients.outcomes import NOT_SENT, answered
from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.coordinator_link import CoordinatorLink
from pykraft.kafka_client.group.committed_offsets import group_offsets
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import Network
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.cluster import MetadataRequest, MetadataRequestTopic
from pykraft.kafka_protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykraft.kafka_protocol.messages.transactions import InitProducerIdRequest

_LAST_COMMIT_BY_NAME: Final = 9
_LAST_INIT_PRODUCER_ID: Final = 4
_LAST_METADATA_BY_NAME: Final = 9
_LONGEST_TRANSACTION_MS: Final = 0x7FFFFFFF

# What a server answers before it changes anything.
_NOT_DONE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class OwnRequests:
    """For one task. Methods raise :class:`.interface.OperationError`; ``broker``: the one to ask."""

    def __init__(self, network: Network, config: ClientConfig) -> None:
        self._cluster = Cluster(network, config)
        self._links: dict[str, CoordinatorLink] = {}

    async def commit(self, group: str, partition: TopicPartition, commit: Commit) -> None:
        """Commit an offset of a group without members."""
        link = self._links.setdefault(group, CoordinatorLink(self._cluster, group))
        committed = OffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=commit.offset,
            committed_metadata=commit.tag,
        )
        topic = OffsetCommitRequestTopic(name=partition.topic, partitions=[committed])
        request = OffsetCommitRequest(group_id=group, topics=[topic])
        deadline_ms = self._cluster.deadline()
        with answered(NOT_SENT):
            connection = await self._cluster.retrying(
                f"coordinator of {group}", lambda: link.connection(deadline_ms), deadline_ms
            )
        by = self._cluster.request_deadline(deadline_ms)
        with answered(_NOT_DONE):
            try:
                response = await connection.call(request, by, max_version=_LAST_COMMIT_BY_NAME)
                for told in response.topics:
                    for one in told.partitions:
                        link.check(one.error_code, f"OffsetCommit of {group}")
            except KafkaError:
                link.forget()
                raise

    async def committed(self, group: str, partition: TopicPartition) -> Commit | None:
        """The committed offset as the group's coordinator returns it."""
        with answered():
            found = await group_offsets(self._cluster, group, self._cluster.deadline(), [partition])
        one = found.get(partition)
        return None if one is None else Commit(one.offset, one.metadata)

    async def brokers(self) -> Sequence[int]:
        """The ids of the listed brokers, which can be asked from now on."""
        with answered():
            await self._cluster.refresh([], self._cluster.deadline())
        return sorted(self._cluster.metadata.brokers)

    async def set_config(self, broker: int, topic: str, name: str, value: str) -> None:
        """The broker passes it on to the controller, perhaps repeatedly until it has an answer."""
        change = AlterableConfig(name=name, config_operation=int(ConfigOperation.SET), value=value)
        resource = AlterConfigsResource(
            resource_type=int(ConfigResourceType.TOPIC), resource_name=topic, configs=[change]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        deadline_ms = self._request_deadline_ms()
        with answered(NOT_SENT):
            connection = await self._cluster.broker(broker, deadline_ms)
        with answered(_NOT_DONE):
            response = await connection.call(request, deadline_ms)
            for result in response.responses:
                _check(result.error_code, result.error_message or f"IncrementalAlterConfigs of {topic}")

    async def config(self, broker: int, topic: str, name: str) -> str | None:
        """As the broker knows it: its image of the metadata may lag."""
        resource = DescribeConfigsResource(
            resource_type=int(ConfigResourceType.TOPIC), resource_name=topic, configuration_keys=[name]
        )
        request = DescribeConfigsRequest(resources=[resource])
        with answered():
            response = await self._cluster.ask_broker(broker, request, self._request_deadline_ms())
            result = response.results[0]
            _check(result.error_code, result.error_message or f"DescribeConfigs of {topic}")
        return next((config.value for config in result.configs if config.name == name), None)

    async def partition_count(self, broker: int, topic: str) -> int | None:
        """As the broker knows it; None: it knows no such topic."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        with answered():
            response = await self._cluster.ask_broker(
                broker,
                request,
                self._request_deadline_ms(),
                max_version=_LAST_METADATA_BY_NAME,
            )
            (found,) = response.topics
            if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            _check(found.error_code, f"Metadata of {topic}")
        return len(found.partitions)

    async def producer_id(self, broker: int) -> int:
        """A new producer id, for a producer without a transactional id."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_LONGEST_TRANSACTION_MS)
        with answered():
            response = await self._cluster.ask_broker(
                broker,
                request,
                self._request_deadline_ms(),
                max_version=_LAST_INIT_PRODUCER_ID,
            )
            _check(response.error_code, "InitProducerId")
        return response.producer_id

    def _request_deadline_ms(self) -> int:
        return self._cluster.request_deadline(self._cluster.deadline())

    async def close(self) -> None:
        self._cluster.close()


def _check(code: int, message: str) -> None:
    if code:
        raise KafkaError(ErrorCode(code), message)
