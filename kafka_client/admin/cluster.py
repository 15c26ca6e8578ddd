"""The cluster, its quorum, and configurations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.results import (
    BrokerDescription,
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    QuorumDescription,
    QuorumReplica,
)
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType, ConfigSource
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.cluster import (
    DescribeClusterRequest,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    ReplicaState,
    UnregisterBrokerRequest,
)
from pykraft.kafka_protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    IncrementalAlterConfigsRequest,
)
from pykraft.runtime.address import Address

METADATA_TOPIC = "__cluster_metadata"

_CORDONED: Final = "cordoned.log.dirs"
_BROKERS: Final = 1
_CONTROLLERS: Final = 2


async def describe_cluster(
    cluster: Cluster, deadline_ms: int, include_fenced_brokers: bool = False, controllers: bool = False
) -> ClusterDescription:
    """``controllers``: ask a controller, for all of them (KIP-919)."""

    async def attempt() -> ClusterDescription:
        connection = await cluster.any_broker(deadline_ms)
        request = DescribeClusterRequest(
            include_fenced_brokers=include_fenced_brokers,
            endpoint_type=_CONTROLLERS if controllers else _BROKERS,
        )
        if not connection.serves(request.API_KEY):
            await cluster.refresh([], deadline_ms)
            return _from_metadata(cluster)
        response = await cluster.ask_any(request, deadline_ms)
        check(response.error_code, response.error_message, "DescribeCluster")
        return ClusterDescription(
            cluster_id=response.cluster_id,
            controller_id=response.controller_id if response.controller_id >= 0 else None,
            brokers=tuple(
                BrokerDescription(broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced)
                for broker in sorted(response.brokers, key=lambda broker: broker.broker_id)
            ),
        )

    return await cluster.retrying("DescribeCluster", attempt, deadline_ms)


async def unregister_broker(cluster: Cluster, broker_id: int, deadline_ms: int) -> None:
    """Remove the registration of a broker. The controller refuses it for a broker that is not fenced."""

    async def attempt() -> None:
        request = UnregisterBrokerRequest(broker_id=broker_id)
        response = await cluster.ask_any(request, deadline_ms)
        check(response.error_code, response.error_message, f"UnregisterBroker of {broker_id}")

    await cluster.retrying("UnregisterBroker", attempt, deadline_ms)


async def describe_quorum(cluster: Cluster, deadline_ms: int) -> QuorumDescription:
    """The metadata quorum; any broker forwards the request to the active controller."""

    async def attempt() -> QuorumDescription:
        partition = DescribeQuorumRequestPartitionData(partition_index=0)
        topic = DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        request = DescribeQuorumRequest(topics=[topic])
        response = await cluster.ask_any(request, deadline_ms)
        check(response.error_code, response.error_message, "DescribeQuorum")
        result = response.topics[0].partitions[0]
        check(result.error_code, result.error_message, "DescribeQuorum")
        return QuorumDescription(
            leader_id=result.leader_id,
            leader_epoch=result.leader_epoch,
            high_watermark=result.high_watermark,
            voters=tuple(_replica(replica) for replica in result.current_voters),
            observers=tuple(_replica(replica) for replica in result.observers),
            nodes={
                node.node_id: {
                    listener.name: Address(listener.host, listener.port) for listener in node.listeners
                }
                for node in response.nodes
            },
        )

    return await cluster.retrying("DescribeQuorum", attempt, deadline_ms)


async def describe_configs(
    cluster: Cluster,
    resource_type: ConfigResourceType,
    name: str,
    deadline_ms: int,
    keys: Sequence[str] | None = None,
    include_documentation: bool = False,
) -> list[ConfigEntry]:
    """All configurations of a resource (or only ``keys``), with their synonyms."""

    async def attempt() -> list[ConfigEntry]:
        resource = DescribeConfigsResource(
            resource_type=int(resource_type),
            resource_name=name,
            configuration_keys=None if keys is None else list(keys),
        )
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=include_documentation
        )
        if resource_type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and name:
            await _find_broker(cluster, int(name), deadline_ms)
            response = await cluster.ask_broker(int(name), request, deadline_ms)
        else:
            response = await cluster.ask_any(request, deadline_ms)
        result = response.results[0]
        check(result.error_code, result.error_message, f"DescribeConfigs of {name}")
        return [_entry(config) for config in result.configs]

    return await cluster.retrying(f"DescribeConfigs of {name}", attempt, deadline_ms)


async def alter_configs(
    cluster: Cluster,
    resource_type: ConfigResourceType,
    name: str,
    changes: Sequence[ConfigChange],
    deadline_ms: int,
    validate_only: bool = False,
) -> None:
    """Apply changes key by key, leaving other keys alone; all of them or none.

    Any broker takes them, except for log levels, which are those of one node, and for directories that are to
    be cordoned: only their broker knows them.
    """
    adds = {change.name for change in changes if change.operation is not ConfigOperation.DELETE}
    is_cordon = resource_type == ConfigResourceType.BROKER and name.isdecimal() and _CORDONED in adds
    is_for_one = is_cordon or resource_type == ConfigResourceType.BROKER_LOGGER

    async def attempt() -> None:
        resource = AlterConfigsResource(
            resource_type=int(resource_type),
            resource_name=name,
            configs=[
                AlterableConfig(name=change.name, config_operation=int(change.operation), value=change.value)
                for change in changes
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        if is_for_one:
            await _find_broker(cluster, int(name), deadline_ms)
            answer = cluster.ask_broker(int(name), request, deadline_ms)
        else:
            answer = cluster.ask_any(request, deadline_ms)
        for result in (await answer).responses:
            check(result.error_code, result.error_message, f"IncrementalAlterConfigs of {name}")

    await cluster.retrying(f"IncrementalAlterConfigs of {name}", attempt, deadline_ms)


async def _find_broker(cluster: Cluster, broker_id: int, deadline_ms: int) -> None:
    """It may be at another address by now. Controllers have no Metadata: they stay where they were found."""
    if broker_id not in cluster.metadata.brokers or not cluster.asks_controllers:
        await cluster.refresh([], deadline_ms)


def check(code: int, message: str | None, what: str) -> None:
    """Raise if ``code`` is an error."""
    if code:
        known = ErrorCode(code)
        raise KafkaError(known, message or f"{what}: {known.name}")


def _from_metadata(cluster: Cluster) -> ClusterDescription:
    metadata = cluster.metadata
    return ClusterDescription(
        cluster_id=metadata.cluster_id or "",
        controller_id=metadata.controller_id,
        brokers=tuple(
            BrokerDescription(broker.id, broker.address.host, broker.address.port, broker.rack)
            for _, broker in sorted(metadata.brokers.items())
        ),
    )


def _replica(state: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        replica_id=state.replica_id,
        directory_id=Uuid(state.replica_directory_id),
        log_end_offset=state.log_end_offset,
        last_fetch_timestamp_ms=state.last_fetch_timestamp if state.last_fetch_timestamp >= 0 else None,
        last_caught_up_timestamp_ms=(
            state.last_caught_up_timestamp if state.last_caught_up_timestamp >= 0 else None
        ),
    )


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=_source(config.config_source),
        read_only=config.read_only,
        is_sensitive=config.is_sensitive,
        documentation=config.documentation,
        synonyms=tuple(
            (synonym.name, synonym.value, _source(synonym.source)) for synonym in config.synonyms or ()
        ),
    )


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if number in ConfigSource.__members__.values() else ConfigSource.UNKNOWN
