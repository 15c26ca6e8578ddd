"""The cluster for tests with coroutines: each call waits in a thread, not on the test's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from pykraft.testing.cluster import Cluster

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    method: Callable[Concatenate[Cluster, P], T],
) -> Callable[Concatenate[AsyncCluster, P], Coroutine[Any, Any, T]]:
    @wraps(method)
    async def call(self: AsyncCluster, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self.cluster, *args, **kwargs)

    return call


class AsyncCluster:
    """The cluster of ``async with Cluster() as cluster``; ``cluster.cluster`` has the methods that block.

    Those that only set something (faults of requests, clocks) do not wait, and are called without ``await``.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.refuse = cluster.refuse
        self.delay = cluster.delay
        self.drop = cluster.drop
        self.lose_answer = cluster.lose_answer
        self.drop_connections = cluster.drop_connections
        self.clear_faults = cluster.clear_faults
        self.set_clock = cluster.set_clock
        self.reset_clock = cluster.reset_clock

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    @property
    def bootstrap_controllers(self) -> str:
        return self.cluster.bootstrap_controllers

    @property
    def nodes(self) -> tuple[int, ...]:
        return self.cluster.nodes

    @property
    def running_nodes(self) -> tuple[int, ...]:
        return self.cluster.running_nodes

    create_topic = _awaited(Cluster.create_topic)
    wait_in_sync = _awaited(Cluster.wait_in_sync)
    produce = _awaited(Cluster.produce)
    read = _awaited(Cluster.read)
    partition_leader = _awaited(Cluster.partition_leader)
    kill = _awaited(Cluster.kill)
    shut_down = _awaited(Cluster.shut_down)
    restart = _awaited(Cluster.restart)
    pause = _awaited(Cluster.pause)
    resume = _awaited(Cluster.resume)
    heal = _awaited(Cluster.heal)
