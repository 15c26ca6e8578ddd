"""Features of a cluster: the levels its software supports, and the finalized level of each (KIP-584)."""

from __future__ import annotations

from collections.abc import Sequence

from pykraft.kafka_client.admin.operations import Operations
from pykraft.kafka_client.errors import check
from pykraft.kafka_client.results import ClusterFeatures, FeatureDescription, FeatureUpdate
from pykraft.kafka_protocol.messages.cluster import (
    ApiVersionsRequest,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)


class FeatureOperations(Operations):
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
