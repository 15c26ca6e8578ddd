"""The nodes of a cluster for tests: made, started, ended, paused, and brought back."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Protocol

from pykraft.node.dev_cluster import DevCluster, prepare_dev_cluster
from pykraft.node.incarnation import draw_uuid
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.free_ports import give_back
from pykraft.runtime.os_disk import OsDisk
from pykraft.testing.node_process import NodeInProcess
from pykraft.testing.node_thread import NodeThread
from pykraft.testing.request_faults import RequestFaults


class SettableClock(SystemClock):
    """The time of day that was set, and goes on from there. Elapsed time cannot be changed."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms

    def set(self, wall_ms: int) -> None:
        """Milliseconds since 1970-01-01 UTC."""
        self._ahead_ms = wall_ms - super().wall_ms()

    def reset(self) -> None:
        self._ahead_ms = 0


class Node(Protocol):
    """In a thread or in a process."""

    @property
    def node_id(self) -> int: ...
    @property
    def running(self) -> bool: ...
    @property
    def paused(self) -> bool: ...
    def begin(self) -> Future[None]: ...
    def stop(self) -> bool: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Nodes:
    """As many as are asked for, with ids from 1; there are none before :meth:`start` and after :meth:`stop`.

    ``clocks`` and ``faults`` reach those in threads only.
    """

    def __init__(
        self,
        count: int,
        properties: Mapping[str, str],
        directory: Path | None,
        timeout_s: float,
        *,
        host: str,
        port: int,
        in_processes: bool,
        serve_http: bool,
    ) -> None:
        if count < 1:
            raise ValueError(f"a cluster has at least one node, not {count}")
        self.in_processes = in_processes
        self.clocks: dict[int, SettableClock] = {}
        self.faults = RequestFaults()
        self._count = count
        self._properties = properties
        self._directory = directory
        self._timeout_s = timeout_s
        self._host = host
        self._port = port
        self._serve_http = serve_http
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._described: DevCluster | None = None
        self._nodes: dict[int, Node] = {}

    def __iter__(self) -> Iterator[Node]:
        return iter(tuple(self._nodes.values()))

    def __getitem__(self, node: int) -> Node:
        if node not in self._nodes:
            raise ValueError(f"no node {node}; there are {', '.join(map(str, self._nodes)) or 'none'}")
        return self._nodes[node]

    @property
    def description(self) -> DevCluster:
        """:class:`RuntimeError` if there are no nodes."""
        if self._described is None or not self._nodes:
            raise RuntimeError("the cluster does not run")
        return self._described

    def start(self) -> None:
        """Returns when every node serves. :class:`ConfigError` or :class:`StartError` if one does not."""
        if self._nodes:
            raise RuntimeError("the cluster is already running")
        if self._directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="pykraft-test-", ignore_cleanup_errors=True)
        try:
            self._make()
            self.begin(self)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every node, and remove the data unless a directory was given."""
        self._end()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def begin(self, nodes: Sequence[Node] | Nodes) -> None:
        """Start these at once, and wait until all serve or one fails: others may need it."""
        starting = {node.begin(): node.node_id for node in nodes}
        ended, waiting = wait(starting, self._timeout_s, FIRST_EXCEPTION)
        for one in ended:
            one.result()
        if waiting:
            node_id = min(starting[one] for one in waiting)
            others = [str(one.node_id) for one in self if not one.running]
            missing = f"; nodes that do not run: {', '.join(others)}" if others else ""
            raise TimeoutError(f"node {node_id} does not serve within {self._timeout_s:g} s{missing}")

    def _make(self) -> None:
        directory = str(self._directory) if self._temporary is None else self._temporary.name
        described = self._described = prepare_dev_cluster(
            OsDisk(),
            directory,
            self._count,
            partial(draw_uuid, os.urandom),
            SystemClock().wall_ms(),
            host=self._host,
            port=self._port,
            http_port=0 if self._serve_http else None,
            overrides=self._properties,
        )
        for config, properties in zip(described.configs, described.properties, strict=True):
            if self.in_processes:
                self._nodes[config.node_id] = NodeInProcess(config.node_id, properties, Path(directory))
            else:
                clock = self.clocks[config.node_id] = SettableClock()
                around = self.faults.around(config.node_id)
                self._nodes[config.node_id] = NodeThread(config, clock, around)

    def _end(self) -> None:
        """In order only if somebody may use the data again."""
        self.faults.clear()
        nodes = tuple(self)
        for node in nodes:
            node.resume()
        with ThreadPoolExecutor(max(1, len(nodes))) as pool:
            for _ in pool.map(lambda node: node.kill() if self._temporary else node.stop(), nodes):
                pass
        self._nodes.clear()
        if self._described is not None:
            give_back(self._described.drawn_ports)
            self._described = None
