"""Clusters of real server processes for unmodified clients."""

import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Final

from pykraft.kafka_client.cluster_probe import ClusterProbe
from pykraft.runtime.address import Address, parse_address
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until

_AS_INSTALLED: Final = {
    # What a test cluster is given otherwise, with the values of a node that is told nothing.
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "9000",
    "replica.lag.time.max.ms": "30000",
    "default.replication.factor": "1",
    "group.min.session.timeout.ms": "6000",
    "transaction.state.log.num.partitions": "50",
    # But not these.
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "6",
}

running: Final[list[Cluster]] = []


@contextmanager
def own_cluster(nodes: int, properties: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Combined nodes as processes. If all is well they have to stop in order, and may print no traceback."""
    with (
        tempfile.TemporaryDirectory(prefix="pykraft-interop-") as directory,
        Cluster(
            nodes, properties=_AS_INSTALLED | dict(properties or {}), processes=True, directory=directory
        ) as cluster,
    ):
        running.append(cluster)
        try:
            wait_ready(cluster)
            yield cluster
            with ThreadPoolExecutor(nodes) as pool:
                list(pool.map(cluster.shut_down, cluster.running_nodes))
            refuse_tracebacks(cluster)
        finally:
            running.remove(cluster)


def refuse_tracebacks(cluster: Cluster) -> None:
    """No node may have printed a traceback, whatever its clients did."""
    for node, file in cluster.output_files.items():
        printed = file.read_text("utf-8", "replace")
        at = printed.find("Traceback (most recent call last)")
        assert at < 0, f"node {node} printed a traceback:\n{printed[max(0, at - 500) : at + 3000]}"


def printed_by(cluster: Cluster, node: int) -> str:
    return cluster.output_files[node].read_text("utf-8", "replace")


def addresses_of(cluster: Cluster) -> dict[int, Address]:
    """Where each broker listens."""
    return {node: parse_address(at) for node, at in cluster.broker_addresses.items()}


@contextmanager
def probing(cluster: Cluster) -> Iterator[ClusterProbe]:
    with closing(ClusterProbe(addresses_of(cluster))) as probe:
        yield probe


def wait_ready(cluster: Cluster, timeout_s: float = PATIENCE_S) -> None:
    """Until every running broker lists all running brokers."""
    expected = frozenset(cluster.running_nodes)
    with probing(cluster) as probe:

        def is_ready() -> bool:
            views = [probe.topic(node, "__none") for node in expected]
            return all(view is not None and view.brokers >= expected for view in views)

        wait_until("all brokers listed by all brokers", is_ready, timeout_s)


def create_in_sync(
    cluster: Cluster, name: str, partitions: int, configs: Mapping[str, str] | None = None
) -> str:
    """A topic, with as many replicas as there are nodes; returns its name when all of them are in sync."""
    cluster.create_topic(name, partitions, configs=configs)
    cluster.wait_in_sync(name)
    return name
