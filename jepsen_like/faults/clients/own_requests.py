"""Workloads' single requests through pykraft's own client, in both worlds.

An ordinary client repeats what was not answered, or was answered with an error that passes, and so may carry
out one change twice, the second time after somebody else's. Here what has been sent once is not sent again:
whatever goes wrong before that is a certain refusal, and whatever goes wrong after it an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pykraft.jepsen_like.faults.clients.interface import Commit, RefusedError, UnknownOutcomeError
from pykraft.kafka_client.admin.groups import group_offsets
from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.coordinator_link import CoordinatorLink
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import Network
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
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
    """:class:`~pykraft.jepsen_like.faults.clients.interface.Requests`; for one task."""

    def __init__(self, network: Network, config: ClientConfig) -> None:
        self._cluster = Cluster(network, config)
        self._links: dict[str, CoordinatorLink] = {}

    async def commit(self, group: str, partition: TopicPartition, commit: Commit) -> None:
        link = self._links.setdefault(group, CoordinatorLink(self._cluster, group))
        committed = OffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=commit.offset,
            committed_metadata=commit.tag,
        )
        topic = OffsetCommitRequestTopic(name=partition.topic, partitions=[committed])
        request = OffsetCommitRequest(group_id=group, topics=[topic])
        deadline_ms = self._cluster.deadline()
        try:
            connection = await self._cluster.retrying(
                f"coordinator of {group}", lambda: link.connection(deadline_ms), deadline_ms
            )
        except KafkaError as error:
            raise RefusedError(_text(error)) from error
        by = self._cluster.request_deadline(deadline_ms)
        try:
            response = await connection.call(request, by, max_version=_LAST_COMMIT_BY_NAME)
            for answered in response.topics:
                for one in answered.partitions:
                    link.check(one.error_code, f"OffsetCommit of {group}")
        except KafkaError as error:
            link.forget()
            raise _outcome(error) from error

    async def committed(self, group: str, partition: TopicPartition) -> Commit | None:
        deadline_ms = self._cluster.deadline()
        try:
            found = await group_offsets(self._cluster, group, deadline_ms, [partition])
        except KafkaError as error:
            raise UnknownOutcomeError(_text(error)) from error
        one = found.get(partition)
        return None if one is None else Commit(one.offset, one.metadata)

    async def brokers(self) -> Sequence[int]:
        try:
            await self._cluster.refresh([], self._cluster.deadline())
        except KafkaError as error:
            raise UnknownOutcomeError(_text(error)) from error
        return sorted(self._cluster.metadata.brokers)

    async def set_config(self, broker: int, topic: str, name: str, value: str) -> None:
        change = AlterableConfig(name=name, config_operation=int(ConfigOperation.SET), value=value)
        resource = AlterConfigsResource(
            resource_type=int(ConfigResourceType.TOPIC), resource_name=topic, configs=[change]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        deadline_ms = self._request_deadline_ms()
        try:
            connection = await self._cluster.broker(broker, deadline_ms)
        except KafkaError as error:
            raise RefusedError(_text(error)) from error
        try:
            response = await connection.call(request, deadline_ms)
            for result in response.responses:
                _check(result.error_code, result.error_message or f"IncrementalAlterConfigs of {topic}")
        except KafkaError as error:
            raise _outcome(error) from error

    async def config(self, broker: int, topic: str, name: str) -> str | None:
        resource = DescribeConfigsResource(
            resource_type=int(ConfigResourceType.TOPIC), resource_name=topic, configuration_keys=[name]
        )
        request = DescribeConfigsRequest(resources=[resource])
        try:
            response = await self._cluster.ask_broker(broker, request, self._request_deadline_ms())
            result = response.results[0]
            _check(result.error_code, result.error_message or f"DescribeConfigs of {topic}")
        except KafkaError as error:
            raise UnknownOutcomeError(_text(error)) from error
        return next((config.value for config in result.configs if config.name == name), None)

    async def producer_id(self, broker: int) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_LONGEST_TRANSACTION_MS)
        try:
            response = await self._cluster.ask_broker(
                broker,
                request,
                self._request_deadline_ms(),
                max_version=_LAST_INIT_PRODUCER_ID,
            )
            _check(response.error_code, "InitProducerId")
        except KafkaError as error:
            raise UnknownOutcomeError(_text(error)) from error
        return response.producer_id

    def _request_deadline_ms(self) -> int:
        return self._cluster.request_deadline(self._cluster.deadline())

    async def close(self) -> None:
        self._cluster.close()


def _check(code: int, message: str) -> None:
    if code:
        raise KafkaError(ErrorCode(code), message)


def _outcome(error: KafkaError) -> RefusedError | UnknownOutcomeError:
    return (RefusedError if error.code in _NOT_DONE else UnknownOutcomeError)(_text(error))


def _text(error: KafkaError) -> str:
    return f"{error.code.name}: {error.message}"
