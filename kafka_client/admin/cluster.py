"""The cluster, its quorum with its voters (KIP-853), and its features (KIP-584): the levels that its software
supports, and the finalized level of each.

A change of voters is requested once and not retried: if its answer is lost, the change may have been made,
and a second request would then be refused. Describe the quorum before trying again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pykraft.kafka_client.admin.operations import Operations
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.errors import check
from pykraft.kafka_client.results import (
    BrokerDescription,
    ClusterDescription,
    ClusterFeatures,
    FeatureDescription,
    FeatureUpdate,
    QuorumDescription,
    QuorumReplica,
)
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.cluster import (
    AddRaftVoterRequest,
    ApiVersionsRequest,
    DescribeClusterRequest,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    FeatureUpdateKey,
    Listener,
    RemoveRaftVoterRequest,
    ReplicaState,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from pykraft.runtime.address import Address

METADATA_TOPIC = "__cluster_metadata"

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


class ClusterOperations(Operations):
    async def describe_cluster(
        self,
        *,
        include_fenced_brokers: bool = False,
        controllers: bool = False,
        timeout_ms: int | None = None,
    ) -> ClusterDescription:
        """``controllers``: the servers to connect to are controllers; they describe each other."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)

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
                    BrokerDescription(
                        broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced
                    )
                    for broker in sorted(response.brokers, key=lambda broker: broker.broker_id)
                ),
            )

        return await cluster.retrying("DescribeCluster", attempt, deadline_ms)

    async def unregister_broker(self, broker_id: int, *, timeout_ms: int | None = None) -> None:
        """Remove the registration of a broker. The controller refuses it for a broker that is not fenced."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)

        async def attempt() -> None:
            request = UnregisterBrokerRequest(broker_id=broker_id)
            response = await cluster.ask_any(request, deadline_ms)
            check(response.error_code, response.error_message, f"UnregisterBroker of {broker_id}")

        await cluster.retrying("UnregisterBroker", attempt, deadline_ms)

    async def describe_quorum(self, *, timeout_ms: int | None = None) -> QuorumDescription:
        """The metadata quorum; any broker forwards the request to the active controller."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)

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

    async def add_raft_voter(
        self,
        voter_id: int,
        directory_id: Uuid,
        endpoints: Mapping[str, Address],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Make a controller a voter of the metadata quorum; ``endpoints`` are its listeners by name."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=cluster.request_deadline(deadline_ms) - cluster.network.now_ms(),
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=[Listener(name=name, host=at.host, port=at.port) for name, at in endpoints.items()],
        )
        response = await cluster.ask_any(request, deadline_ms)
        check(response.error_code, response.error_message, "AddRaftVoter")

    async def remove_raft_voter(
        self, voter_id: int, directory_id: Uuid, *, timeout_ms: int | None = None
    ) -> None:
        """Make a voter an observer."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id)
        response = await cluster.ask_any(request, deadline_ms)
        check(response.error_code, response.error_message, "RemoveRaftVoter")

    async def describe_features(self, *, timeout_ms: int | None = None) -> ClusterFeatures:
        """Supported and finalized levels, as one of the brokers knows them."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)

        async def attempt() -> ClusterFeatures:
            request = ApiVersionsRequest(client_software_name="pykraft", client_software_version="admin")
            response = await cluster.ask_any(request, deadline_ms)
            check(response.error_code, None, "ApiVersions")
            finalized = {key.name: key.max_version_level for key in response.finalized_features}
            supported = {key.name: (key.min_version, key.max_version) for key in response.supported_features}
            return ClusterFeatures(
                epoch=response.finalized_features_epoch,
                features=tuple(
                    FeatureDescription(
                        name, *supported.get(name, (0, 0)), finalized_level=finalized.get(name, 0)
                    )
                    for name in sorted(supported.keys() | finalized.keys())
                ),
            )

        return await cluster.retrying("describe features", attempt, deadline_ms)

    async def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Finalize levels: all or none of them."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)

        async def attempt() -> None:
            request = UpdateFeaturesRequest(
                feature_updates=[
                    FeatureUpdateKey(
                        feature=update.name,
                        max_version_level=update.level,
                        upgrade_type=int(update.upgrade_type),
                    )
                    for update in updates
                ],
                validate_only=validate_only,
            )
            response = await cluster.ask_any(request, deadline_ms)
            check(response.error_code, response.error_message, "UpdateFeatures")
            for result in response.results:
                check(result.error_code, result.error_message, f"UpdateFeatures of {result.feature}")

        await cluster.retrying("UpdateFeatures", attempt, deadline_ms)


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
