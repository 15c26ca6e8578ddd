"""A cluster without configuration: properties and directories of N combined nodes on loopback."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

from pykraft.configuration.keys import ConfigError
from pykraft.configuration.properties import format_properties
from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.features import BOOTSTRAP_FEATURES
from pykraft.node.config import ServerConfig, load_server_config
from pykraft.node.format import format_directories, read_directory
from pykraft.runtime.disk import Disk

_NODE_PREFIX: Final = "node-"


@dataclass(frozen=True, slots=True)
class DevCluster:
    """The configurations of a development cluster, also as properties files, and its bootstrap addresses."""

    configs: tuple[ServerConfig, ...]
    properties: tuple[str, ...]
    bootstrap_servers: str
    bootstrap_controllers: str
    http_addresses: tuple[str, ...] = ()
    """Of each node, if it serves HTTP."""


def free_ports(host: str, count: int) -> list[int]:
    """Different ports that are free at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind((host, 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()


def prepare_dev_cluster(
    disk: Disk,
    directory: str,
    nodes: int,
    new_uuid: Callable[[], Uuid],
    now_ms: int,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    http_port: int | None = None,
    overrides: Mapping[str, str] | None = None,
) -> DevCluster:
    """Describe and format ``nodes`` combined nodes below ``directory``.

    ``port`` is the first broker's, the others follow; 0 chooses free ones. ``http_port`` likewise, for
    metrics and console; None: they are not served. A directory that holds a cluster
    of the same nodes is used again, with its data, at new addresses. :class:`ConfigError` if it holds other
    nodes.
    """
    wanted = [f"{_NODE_PREFIX}{n + 1}" for n in range(nodes)]
    _check_present(disk, directory, wanted)
    drawn = iter(free_ports(host, 4 * nodes))
    quorum_ports, controller_ports, ports, http_ports = (list(islice(drawn, nodes)) for _ in range(4))
    if port:
        ports = list(range(port, port + nodes))
    if http_port:
        http_ports = list(range(http_port, http_port + nodes))
    voters = ",".join(f"{n + 1}@{host}:{quorum_ports[n]}" for n in range(nodes))
    texts = []
    for n in range(nodes):
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(n + 1),
            "listeners": f"PLAINTEXT://{host}:{ports[n]},CONTROLLER://{host}:{quorum_ports[n]},"
            f"KAFKA_CONTROLLER://{host}:{controller_ports[n]}",
            "controller.listener.names": "CONTROLLER,KAFKA_CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": f"{directory}/{wanted[n]}",
            "offsets.topic.replication.factor": str(min(3, nodes)),
            "transaction.state.log.replication.factor": str(min(3, nodes)),
            "transaction.state.log.min.isr": str(min(2, nodes)),
            "default.replication.factor": str(min(3, nodes)),
            "min.insync.replicas": str(max(1, min(3, nodes) - 1)),
            # Tests do not wait for more consumers to join.
            "group.initial.rebalance.delay.ms": "0",
            "pykraft.http.listener": "" if http_port is None else f"{host}:{http_ports[n]}",
        } | dict(overrides or {})
        texts.append(format_properties(properties))
    configs = tuple(map(load_server_config, texts))
    first = read_directory(disk, configs[0].metadata_log_dir)
    cluster_id = uuid_to_str(new_uuid()) if first is None else first.cluster_id
    for config in configs:
        format_directories(
            disk, config, cluster_id, BOOTSTRAP_FEATURES, new_uuid, now_ms, ignore_formatted=True
        )
    return DevCluster(
        configs,
        tuple(texts),
        _addresses(host, ports),
        _addresses(host, controller_ports),
        tuple(str(config.http_listener) for config in configs if config.http_listener is not None),
    )


def _addresses(host: str, ports: Sequence[int]) -> str:
    return ",".join(f"{host}:{port}" for port in ports)


def _check_present(disk: Disk, directory: str, wanted: list[str]) -> None:
    """Refuse a directory with a cluster of other nodes.

    The number of nodes fixes the voters of a development cluster: with another number, a voter could be
    elected that has never seen the metadata.
    """
    names = disk.list(directory) if disk.is_dir(directory) else []
    paths = {name: f"{directory}/{name}" for name in names if name.startswith(_NODE_PREFIX)}
    present = [
        name for name, path in paths.items() if disk.is_dir(path) and read_directory(disk, path) is not None
    ]
    if present and sorted(present) != sorted(wanted):
        raise ConfigError(
            f"{directory} holds a cluster of {_count(present)} ({', '.join(present)}), not of"
            f" {_count(wanted)}: give --nodes {len(present)}, or another --data-dir"
        )


def _count(names: list[str]) -> str:
    return f"{len(names)} node{'s' if len(names) > 1 else ''}"
