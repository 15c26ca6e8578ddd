"""The base of the families of operations of :class:`~pykraft.kafka_client.admin.client.Admin`."""

from __future__ import annotations

from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.network import Network


class Operations:
    """``timeout_ms`` of an operation: see :mod:`.client`."""

    def __init__(self, network: Network, config: ClientConfig) -> None:
        self.cluster = Cluster(network, config)

    def close(self) -> None:
        self.cluster.close()
