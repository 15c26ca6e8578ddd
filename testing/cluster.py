"""A Kafka cluster for tests: ``with Cluster() as cluster: …``.

Its nodes are the real ones, on loopback and free ports, with their data in a temporary directory. By default
they run in threads of the test's process, each on an event loop of its own, and install no signal handlers;
with ``processes=True`` each is a process that really is killed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.cluster_probe import ClusterProbe, TopicView
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_client.results import NewTopic
from pykraft.runtime.address import parse_address
from pykraft.testing.faults_on_demand import FaultsOnDemand
from pykraft.testing.node_thread import NodeFailedError
from pykraft.testing.nodes import Nodes
from pykraft.testing.places import Places
from pykraft.testing.records import Record, Writable, no_partition, produce, read

if TYPE_CHECKING:
    from pykraft.testing.async_cluster import AsyncCluster

from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def blocking(method: Callable[P, T]) -> Callable[P, T]:
    """A method that waits. :class:`RuntimeError` on the thread of a running event loop, which it would stop:
    what it waits for may well have to happen there."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if asyncio._get_running_loop() is not None:
            raise RuntimeError(
                f"{method.__name__}() waits, and would stop the event loop that runs in this thread: use the"
                f" fixture kafka_async, or `async with Cluster() as cluster`, and await {method.__name__}()"
            )
        return method(*args, **kwargs)

    return call


TIMEOUT_S: Final = 30.0
PROPERTIES: Final[Mapping[str, str]] = {
    # A node that is killed is noticed soon.
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "2000",
    "group.min.session.timeout.ms": "100",
    # Internal topics of 50 partitions are of no use to a test.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""Beside those of ``pykraft dev``."""
_CLIENT_ID: Final = "pykraft-testing"
_POLL_S: Final = 0.02


class Cluster(Places, FaultsOnDemand):
    """``nodes`` brokers with ids from 1, each of them a controller as well.

    ``properties`` are those of ``server.properties``, for every node, and override everything. ``port`` is
    the first broker's, at ``host``, and the others follow; 0 chooses free ones. ``http``: with metrics and
    console, at :attr:`http_addresses`. ``directory``: where the data are, and stay; otherwise they are
    removed at the end. Methods block and may be called from several threads, except :meth:`start`,
    :meth:`stop` and what ends nodes. ``async with`` gives the same with coroutines
    (:class:`~pykraft.testing.AsyncCluster`).

    Errors of the cluster are :class:`~pykraft.kafka_protocol.errors.KafkaError`; :class:`TimeoutError` if
    something does not happen within ``timeout_s``. A call that can never succeed is a :class:`RuntimeError`
    at once: for nodes that do not run, or on the thread of the event loop that it would stop.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        properties: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        processes: bool = False,
        http: bool = False,
        directory: str | os.PathLike[str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.timeout_s = timeout_s
        self._nodes = Nodes(
            nodes,
            {**PROPERTIES, **(properties or {})},
            None if directory is None else Path(directory),
            timeout_s,
            host=host,
            port=port,
            in_processes=processes,
            serve_http=http,
        )

    # --- life ----------------------------------------------------------------------------------------------

    @blocking
    def start(self) -> Self:
        """Returns when every node serves. :class:`ConfigError` or :class:`StartError` if one does not."""
        self._nodes.start()
        return self

    def stop(self) -> None:
        """End every node, and remove its data unless a directory was given."""
        self._nodes.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> AsyncCluster:
        from pykraft.testing.async_cluster import AsyncCluster

        await asyncio.to_thread(self.start)
        return AsyncCluster(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    # --- topics and records --------------------------------------------------------------------------------

    def admin(self) -> AdminClient:
        """pykraft's admin client, which the caller closes."""
        return AdminClient(self.bootstrap_servers, default_api_timeout_ms=round(self.timeout_s * 1000))

    @property
    def _client(self) -> ClientConfig:
        return ClientConfig(
            parse_bootstrap_servers(self.bootstrap_servers),
            client_id=_CLIENT_ID,
            unknown_topic_grace_ms=0,  # every broker knows a topic that was created
        )

    @blocking
    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Returns its name, when every running broker knows it and every partition has a leader.

        ``replication_factor`` None: 3, or the number of nodes if there are fewer.
        """
        self._need_a_majority(f"topic {name} cannot be created")
        factor = min(3, len(self.nodes)) if replication_factor is None else replication_factor
        with self.admin() as admin:
            (created,) = admin.create_topics([NewTopic(name, partitions, factor, configs or {})])
            created.check()
        self._until_seen(f"{name} has leaders", name, lambda views: all(view.is_led for view in views))
        return name

    @blocking
    def wait_in_sync(self, topic: str, timeout_s: float | None = None) -> None:
        """Until all replicas of the topic are on nodes that run, each partition has a leader and all of them
        in sync, and every running broker knows it."""

        def is_in_sync(views: Sequence[TopicView]) -> bool:
            needed = {node for view in views for one in view.partitions.values() for node in one.replicas}
            return needed <= set(self.running_nodes) and all(view.fully_in_sync for view in views)

        self._until_seen(f"{topic} is in sync", topic, is_in_sync, timeout_s)

    @blocking
    def produce(
        self, topic: str, *records: Writable, partition: int | None = None, timeout_s: float | None = None
    ) -> list[Record]:
        """Write records in order, and wait until all replicas in sync have them; as they are in the log.

        A record is a value, a pair of key and value, or a :class:`Record`. ``partition`` None: by the key, or
        any.
        """
        self._need_a_node()
        timeout_s = self._timeout_s(timeout_s)
        with self._told():
            return produce(self._client, topic, records, partition, timeout_s, self.running_nodes)

    @blocking
    def read(
        self,
        topic: str,
        count: int | None = None,
        *,
        partition: int | None = None,
        committed: bool = False,
        timeout_s: float | None = None,
    ) -> list[Record]:
        """All records there are, or ``count`` records, waiting for them; by partition and offset.

        ``committed``: without those of open and aborted transactions.
        """
        self._need_a_node()
        timeout_s = self._timeout_s(timeout_s)
        with self._told():
            return read(self._client, topic, count, partition, committed=committed, timeout_s=timeout_s)

    @blocking
    def partition_leader(self, topic: str, partition: int = 0) -> int:
        """The id of the node that leads a partition; waits until there is one that runs."""
        self._need_a_node()
        leaders: list[int] = []

        def is_led(views: Sequence[TopicView]) -> bool:
            counts = {len(view.partitions) for view in views}
            if 0 < max(counts) <= partition or partition < 0:
                raise no_partition(topic, partition, max(counts))
            known = [view.partitions[partition] for view in views if partition in view.partitions]
            newest = max(known, key=lambda one: one.leader_epoch, default=None)
            if newest is None or newest.leader not in self.running_nodes:
                return False
            leaders.append(newest.leader)
            return True

        self._until_seen(f"{topic}-{partition} has a leader", topic, is_led)
        return leaders[0]

    # --- nodes ---------------------------------------------------------------------------------------------

    @blocking
    def kill(self, node: int) -> None:
        """End a node without handing anything over: ``kill -9`` with processes. In a thread its files are
        still closed in order, but the others learn of it only when its session has expired."""
        self._nodes[node].kill()

    @blocking
    def shut_down(self, node: int) -> None:
        """Stop a node in order: it hands over first. :class:`NodeFailedError` if it ends in another way."""
        if not self._nodes[node].stop():
            raise NodeFailedError(f"node {node} did not stop in order")

    @blocking
    def restart(self, node: int) -> None:
        """Start a node with its data and address, after stopping it if it runs. Returns when it serves."""
        here = self._nodes[node]
        if here.running:
            here.stop()
        self._nodes.begin([here])

    @blocking
    def pause(self, node: int) -> None:
        """A node does nothing any more, as with SIGSTOP, until :meth:`resume`; its connections stay open."""
        self._nodes[node].pause()

    @blocking
    def resume(self, node: int) -> None:
        self._nodes[node].resume()

    def heal(self) -> None:
        """Every node runs again, no request meets a fault, and the clocks are right."""
        self.clear_faults()
        self.reset_clock()
        for node in self._nodes:
            node.resume()
        self._nodes.begin([node for node in self._nodes if not node.running])

    # --- waiting -------------------------------------------------------------------------------------------

    def _need_a_node(self) -> None:
        if self.nodes and not self.running_nodes:
            raise RuntimeError(f"no node of the cluster runs{self._state()}: restart() or heal() starts them")

    def _need_a_majority(self, what: str) -> None:
        """Every node is a voter of the quorum."""
        self._need_a_node()
        if len(self.running_nodes) * 2 <= len(self.nodes):
            raise RuntimeError(f"{what}: the controllers have no majority{self._state()}")

    def _state(self) -> str:
        """Names nodes that do not do their work, for messages."""
        ended = [f"node {node.node_id} does not run" for node in self._nodes if not node.running]
        paused = [f"node {node.node_id} is paused" for node in self._nodes if node.running and node.paused]
        return f" ({', '.join(ended + paused)})" if ended or paused else ""

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Add news of the nodes to a timeout: it may be due to one of them."""
        try:
            yield
        except TimeoutError as error:
            raise TimeoutError(f"{error}{self._state()}") from error.__cause__

    def _timeout_s(self, given: float | None) -> float:
        return self.timeout_s if given is None else given

    def _until_seen(
        self,
        what: str,
        topic: str,
        is_so: Callable[[Sequence[TopicView]], bool],
        timeout_s: float | None = None,
    ) -> None:
        """``is_so`` gets what each running broker knows; a paused one is left out."""
        addresses = {node: parse_address(at) for node, at in self.broker_addresses.items()}
        with closing(ClusterProbe(addresses, _CLIENT_ID)) as probe:

            def is_seen() -> bool:
                asked = [probe.topic(node, topic) for node in self.running_nodes]
                views = [view for view in asked if view is not None]
                if not any(view.partitions for view in views):
                    raise _NotSeenError(f"no broker that answers knows the topic {topic}")
                return is_so(views)

            self._until(what, is_seen, timeout_s)

    def _until(self, what: str, is_so: Callable[[], bool], timeout_s: float | None = None) -> None:
        timeout_s = self._timeout_s(timeout_s)
        end = time.monotonic() + timeout_s
        while True:
            try:
                if is_so():
                    return
                last = ""
            except _NotSeenError as error:
                last = f": {error}"
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: not within {timeout_s:g} s{last}{self._state()}")
            time.sleep(_POLL_S)


class _NotSeenError(Exception):
    """Why something is not so yet."""
