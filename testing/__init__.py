"""Kafka for tests: a cluster in the test's own process, faults on demand, and a pytest plugin."""

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.testing.async_cluster import AsyncCluster
from pykraft.testing.cluster import Cluster
from pykraft.testing.node_thread import NodeFailedError
from pykraft.testing.records import Record
from pykraft.testing.request_faults import RequestFault

__all__ = [
    "ApiKey",
    "AsyncCluster",
    "Cluster",
    "ErrorCode",
    "KafkaError",
    "NodeFailedError",
    "Record",
    "RequestFault",
]
