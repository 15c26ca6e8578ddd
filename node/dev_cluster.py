"""A cluster without configuration: properties and directories of N combined nodes on loopback."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from pykraft.broker.config import ListenerConfig
from pykraft.configuration.keys import ConfigError
from pykraft.configuration.properties import format_properties
from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.features import BOOTSTRAP_FEATURES
from pykraft.node.config import ServerConfig, load_server_config, parse_listener
from pykraft.node.format import format_directories, read_directory
from pykraft.runtime.address import Address
from pykraft.runtime.disk import Disk
from pykraft.runtime.free_ports import free_ports

_NODE_PREFIX: Final = "node-"
_QUORUM: Final = "CONTROLLER"
_NO_HOST: Final = frozenset({"", "0.0.0.0", "::"})
"""Listeners on every address."""
_LISTENERS_OF_A_NODE: Final = 8
"""For so many free ports are drawn."""


@dataclass(frozen=True, slots=True)
class DevCluster:
    """The configurations of a development cluster, also as properties files, and its bootstrap addresses."""

    configs: tuple[ServerConfig, ...]
    properties: tuple[str, ...]
    bootstrap_servers: str
    bootstrap_controllers: str
    http_addresses: tuple[str, ...] = ()
    """The address of each node that serves HTTP."""
    drawn_ports: tuple[int, ...] = ()
    """Ports for the end of the cluster to :func:`~pykraft.runtime.free_ports.give_back`."""


def _draw_ports(host: str, count: int) -> list[int]:
    try:
        return free_ports(count, host)
    except OSError as error:
        is_foreign = error.errno == errno.EADDRNOTAVAIL
        reason = "it is not an address of this machine" if is_foreign else error.strerror or error
        raise ConfigError(f"cannot listen on {host}: {reason}") from None


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
    metrics and console; None: they are not served. ``overrides`` are properties of every node; ``listeners``
    among them may leave out those of controllers, and a port 0 there becomes a free one. A directory that
    holds a cluster of the same nodes is used again, with its data, at new addresses. :class:`ConfigError` if
    it holds other nodes.
    """
    given = dict(overrides or {})
    wanted = [f"{_NODE_PREFIX}{n + 1}" for n in range(nodes)]
    _check_present(disk, directory, wanted)
    drawn = iter(drawn_ports := _draw_ports(host, _LISTENERS_OF_A_NODE * nodes))
    ports, http_ports = (list(islice(drawn, nodes)) for _ in range(2))
    if port:
        ports = list(range(port, port + nodes))
    if http_port:
        http_ports = list(range(http_port, http_port + nodes))
    listeners = [_listeners(host, ports[n], drawn, given) for n in range(nodes)]
    voters = ",".join(f"{n + 1}@{_quorum_address(host, listeners[n], given)}" for n in range(nodes))
    texts = []
    for n in range(nodes):
        properties = _replication_of(nodes) | {
            "process.roles": "broker,controller",
            "node.id": str(n + 1),
            "controller.listener.names": f"{_QUORUM},KAFKA_CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": f"{directory}/{wanted[n]}",
            # Tests do not wait for more consumers to join.
            "group.initial.rebalance.delay.ms": "0",
            "pykraft.http.listener": "" if http_port is None else str(Address(host, http_ports[n])),
        }
        texts.append(format_properties(properties | given | {"listeners": ",".join(listeners[n])}))
    configs = tuple(map(load_server_config, texts))
    _check_different(configs)
    first = read_directory(disk, configs[0].metadata_log_dir)
    cluster_id = uuid_to_str(new_uuid()) if first is None else first.cluster_id
    formatted = cluster_id, BOOTSTRAP_FEATURES, new_uuid, now_ms
    for config in configs:
        format_directories(disk, config, *formatted, ignore_formatted=True)
    controllers = (one for config in configs for one in config.controller_client_listeners[:1])
    return DevCluster(
        configs,
        tuple(texts),
        ",".join(str(_reached(config.broker_listeners[0], host)) for config in configs),
        ",".join(str(_reached(listener, host)) for listener in controllers),
        tuple(str(config.http_listener) for config in configs if config.http_listener is not None),
        tuple(drawn_ports),
    )


def _replication_of(nodes: int) -> dict[str, str]:
    replicas = min(3, nodes)
    return {
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min(2, nodes)),
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(max(1, replicas - 1)),
    }


def _listeners(host: str, port: int, drawn: Iterator[int], given: Mapping[str, str]) -> list[str]:
    """The listeners of one node. ``drawn``: free ports."""
    own = [f"{name}://{Address(host, 0)}" for name in (_QUORUM, "KAFKA_CONTROLLER")]
    found = [item.strip() for item in given.get("listeners", "").split(",") if item.strip()]
    if not found:
        found = [f"PLAINTEXT://{Address(host, port)}", *own]
    elif "controller.listener.names" not in given:
        names = {item.partition(":")[0].upper() for item in found}
        found += [item for item in own if item.partition(":")[0] not in names]
    return [re.sub(":0$", lambda _: f":{next(drawn)}", item) for item in found]


def _quorum_address(host: str, listeners: list[str], given: Mapping[str, str]) -> Address:
    name = given.get("controller.listener.names", _QUORUM).partition(",")[0].strip().upper()
    for found, at, port in map(parse_listener, listeners):
        if found == name:
            return Address(host if at in _NO_HOST else at, port)
    raise ConfigError(f"listeners has no {name}, which controller.listener.names requires")


def _reached(listener: ListenerConfig, host: str) -> Address:
    """Where clients on this machine find it."""
    if listener.host not in _NO_HOST:
        host = listener.host
    elif host in _NO_HOST:
        host = "::1" if listener.host == "::" else "127.0.0.1"
    return Address(host, listener.port)


def _check_different(configs: tuple[ServerConfig, ...]) -> None:
    """A property is of every node, so that of several nodes one alone could listen."""
    taken: dict[tuple[str, int], int] = {}
    for config in configs:
        quorum = [] if config.controller_listener is None else [config.controller_listener]
        for one in (*config.broker_listeners, *quorum, *config.controller_client_listeners):
            other = taken.setdefault((one.host, one.port), config.node_id)
            if other != config.node_id:
                raise ConfigError(
                    f"nodes {other} and {config.node_id} would both listen on {Address(one.host, one.port)}:"
                    " properties are those of every node; port 0 gives each a free one"
                )


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
