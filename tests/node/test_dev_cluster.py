"""The nodes of a development cluster: their properties, and which data may be used again."""

import itertools
import socket
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from pykraft.configuration.keys import ConfigError
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_protocol.ids import Uuid, make_uuid
from pykraft.node.cli.dev import dev
from pykraft.node.cli.dev.run import DevOptions
from pykraft.node.cli.root import cli
from pykraft.node.dev_cluster import DevCluster, prepare_dev_cluster
from pykraft.runtime.free_ports import first_of_free_ports
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.node.ipv6 import needs_ipv6


@pytest.fixture
def prepare() -> Callable[..., DevCluster]:
    disk, numbers = MemoryDisk(), itertools.count(1)

    def new_uuid() -> Uuid:
        value = make_uuid(next(numbers).to_bytes(16, "big"))
        assert value is not None
        return value

    def run(nodes: int, directory: str = "/d", port: int = 0, **others: Any) -> DevCluster:
        return prepare_dev_cluster(disk, directory, nodes, new_uuid, 0, port=port, **others)

    return run


def test_cluster_of_the_same_size_is_used_again(prepare: Callable[..., DevCluster]) -> None:
    assert len(prepare(3).configs) == 3
    assert [config.log_dirs for config in prepare(3).configs] == [
        ("/d/node-1",),
        ("/d/node-2",),
        ("/d/node-3",),
    ]


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (1, 3, r"/d holds a cluster of 1 node \(node-1\), not of 3 nodes: give --nodes 1"),
        (3, 1, r"/d holds a cluster of 3 nodes \(node-1, node-2, node-3\), not of 1 node: give --nodes 3"),
    ],
)
def test_cluster_of_another_size_is_refused_by_name(
    prepare: Callable[..., DevCluster], before: int, now: int, said: str
) -> None:
    prepare(before)
    with pytest.raises(ConfigError, match=said):
        prepare(now)
    prepare(before)
    prepare(now, "/elsewhere")


def test_all_ports_differ(prepare: Callable[..., DevCluster]) -> None:
    def ports(cluster: DevCluster) -> list[int]:
        listeners = [
            listener
            for config in cluster.configs
            for listener in (*config.broker_listeners, config.controller_listener)
            if listener is not None
        ]
        return [listener.port for listener in listeners]

    assert len(set(ports(prepare(3)))) == 6
    assert {41000, 41001, 41002} <= set(ports(prepare(3, port=41000)))


@pytest.mark.parametrize(
    ("host", "reached", "console"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1", "0.0.0.0"),
        pytest.param("::1", "[::1]", "[::1]", marks=needs_ipv6),
        pytest.param("::", "[::1]", "[::]", marks=needs_ipv6),
    ],
)
def test_addresses_of_a_host_are_those_that_clients_take(
    prepare: Callable[..., DevCluster], host: str, reached: str, console: str
) -> None:
    cluster = prepare(2, host=host, http_port=0)
    for addresses in (cluster.bootstrap_servers, cluster.bootstrap_controllers):
        assert [str(address).rpartition(":")[0] for address in parse_bootstrap_servers(addresses)] == [
            reached
        ] * 2
    assert [address.rpartition(":")[0] for address in cluster.http_addresses] == [console] * 2
    assert {listener.host for config in cluster.configs for listener in config.broker_listeners} == {host}
    voters = cluster.configs[0].static_voters
    second = None if voters is None else voters.get(2)
    assert second is not None and second.address.host == host


@needs_ipv6
def test_port_of_the_console_is_looked_for_at_an_ipv6_address_too() -> None:
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert first_of_free_ports("::1", port, 1) > port


def test_ports_in_a_row_begin_behind_the_last_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = first_of_free_ports("127.0.0.1", port - 1, 2)
        assert found == 0 or found > port


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), 9080),
        (("--http-port", "0"), 0),
        (("--http-port", "7000"), 7000),
        (("--port", "9000"), 0),
        (("--no-http",), None),
    ],
)
def test_console_of_a_cluster_at_the_default_port_has_one_too(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], expected: int | None
) -> None:
    asked: list[DevOptions] = []
    monkeypatch.setattr(dev, "run_cluster", asked.append)
    monkeypatch.setattr(dev, "first_of_free_ports", lambda host, first, count: first)
    assert CliRunner().invoke(cli, ["dev", *arguments]).exit_code == 0
    assert [options.http_port for options in asked] == [expected]


def test_packages_that_the_console_lacks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[DevOptions] = []
    monkeypatch.setattr(dev, "run_cluster", asked.append)
    monkeypatch.setattr(dev, "find_spec", lambda name: None)
    ended = CliRunner().invoke(cli, ["dev"])
    assert (ended.exit_code, [options.http_port for options in asked]) == (0, [None])
    assert ended.stderr == "Without console and metrics, which need: pip install 'pykraft[web]'\n"
    refused = CliRunner().invoke(cli, ["dev", "--http-port", "7000"])
    assert refused.exit_code == 1 and "pip install 'pykraft[web]'" in refused.stderr
    assert len(asked) == 1
