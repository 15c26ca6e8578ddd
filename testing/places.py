"""Where everything of a cluster for tests is: addresses, data, processes and what they have printed."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from pykraft.testing.node_process import NodeInProcess
from pykraft.testing.nodes import Nodes


class Places:
    """The part of a cluster that says where it is. Keys are ids of nodes."""

    _nodes: Nodes

    @property
    def nodes(self) -> tuple[int, ...]:
        """Ids of all nodes, whether they run or not."""
        return tuple(node.node_id for node in self._nodes)

    @property
    def running_nodes(self) -> tuple[int, ...]:
        """Ids of those that run; a paused one does."""
        return tuple(node.node_id for node in self._nodes if node.running)

    @property
    def bootstrap_servers(self) -> str:
        """For clients: ``host:port`` of every broker, with commas between."""
        return self._nodes.description.bootstrap_servers

    @property
    def bootstrap_controllers(self) -> str:
        """For Kafka's tools with ``--bootstrap-controller``."""
        return self._nodes.description.bootstrap_controllers

    @property
    def broker_addresses(self) -> Mapping[int, str]:
        """``host:port`` at which each broker serves clients."""
        return dict(zip(self.nodes, self.bootstrap_servers.split(","), strict=True))

    @property
    def controller_addresses(self) -> Mapping[int, str]:
        """``host:port`` at which each controller serves Kafka's tools."""
        return dict(zip(self.nodes, self.bootstrap_controllers.split(","), strict=False))

    @property
    def http_addresses(self) -> Mapping[int, str]:
        """``host:port`` of metrics, health checks and console of each node."""
        return dict(zip(self.nodes, self._nodes.description.http_addresses, strict=False))

    @property
    def log_dirs(self) -> Mapping[int, Path]:
        """Each node's directory of metadata and replicas, as ``log_dirs[1] / "orders-0"``."""
        configs = self._nodes.description.configs
        return {config.node_id: Path(config.metadata_log_dir) for config in configs}

    @property
    def pids(self) -> Mapping[int, int]:
        """Process ids of the nodes that run as processes."""
        return {node.node_id: node.pid for node in self._processes() if node.pid is not None}

    @property
    def output_files(self) -> Mapping[int, Path]:
        """Return each process's output since the cluster began; nodes in threads use ``logging``."""
        return {node.node_id: node.output_file for node in self._processes()}

    def outputs(self) -> dict[int, str]:
        """The last of what is in :attr:`output_files`."""
        return {node.node_id: node.output_tail() for node in self._processes()}

    def _processes(self) -> Iterator[NodeInProcess]:
        return (node for node in self._nodes if isinstance(node, NodeInProcess))
