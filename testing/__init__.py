"""Kafka for tests: a cluster in the test's own process, faults on demand, a pytest plugin.

The names are looked up when they are used: child processes of a fault run need a module of this package, and
not a whole node.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {
    "ApiKey": "kafka_protocol.api_keys",
    "AsyncCluster": "testing.async_cluster",
    "Cluster": "testing.cluster",
    "ErrorCode": "kafka_protocol.errors",
    "KafkaError": "kafka_protocol.errors",
    "NodeFailedError": "testing.node_thread",
    "Record": "testing.records",
    "RequestFault": "testing.request_faults",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"pykraft.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
