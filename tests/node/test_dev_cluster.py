"""The nodes of a development cluster: their properties, and which data may be used again."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from pykraft.configuration.keys import ConfigError
from pykraft.jepsen_like.sim.memory_disk import MemoryDisk
from pykraft.kafka_protocol.ids import Uuid, make_uuid
from pykraft.node.dev_cluster import DevCluster, prepare_dev_cluster


@pytest.fixture
def prepare() -> Callable[..., DevCluster]:
    disk, numbers = MemoryDisk(), itertools.count(1)

    def new_uuid() -> Uuid:
        value = make_uuid(next(numbers).to_bytes(16, "big"))
        assert value is not None
        return value

    def run(nodes: int, directory: str = "/d", port: int = 0) -> DevCluster:
        return prepare_dev_cluster(disk, directory, nodes, new_uuid, 0, port=port)

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
