"""A Kafka cluster for tests: ``with Cluster() as cluster: …``.

Its nodes are the real ones, on loopback and free ports, with their data in a temporary directory. By default
they run in threads of the test's process, each on an event loop of its own, and install no signal handlers;
with ``processes=True`` each is a process that really is killed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from pykraft.kafka_client.admin import AdminClient
from pykraft.kafka_client.admin_results import NewTopic, PartitionDescription
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.testing.faults_on_demand import FaultsOnDemand
from pykraft.testing.node_process import NodeInProcess
from pykraft.testing.nodes import Nodes
from pykraft.testing.records import Record, Writable, produce, read

if TYPE_CHECKING:
    from pykraft.testing.async_cluster import AsyncCluster

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
_POLL_S: Final = 0.02


class Cluster(FaultsOnDemand):
    """``nodes`` brokers with ids from 1, each of them a controller as well.

    ``properties`` are those of ``server.properties``, for every node. ``http``: with metrics and console, at
    :attr:`http_addresses`. ``directory``: where the data are, and stay; otherwise they are removed at the
    end. Methods block and may be called from several threads, but for :meth:`start`, :meth:`stop` and what
    ends nodes. ``async with`` gives the same with coroutines (:class:`~pykraft.testing.AsyncCluster`). Errors
    of the cluster are :class:`~pykraft.kafka_protocol.errors.KafkaError`; :class:`TimeoutError` if something
    does not happen within ``timeout_s``.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        properties: Mapping[str, str] | None = None,
        processes: bool = False,
        http: bool = False,
        directory: str | os.PathLike[str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.timeout_s = timeout_s
        made = Nodes(
            nodes,
            {**PROPERTIES, **(properties or {})},
            None if directory is None else Path(directory),
            timeout_s,
            in_processes=processes,
            serve_http=http,
        )
        super().__init__(made)

    # --- life ----------------------------------------------------------------------------------------------

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

    # --- what there is -------------------------------------------------------------------------------------

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
    def http_addresses(self) -> Mapping[int, str]:
        """``host:port`` of metrics, health checks and console of each node."""
        return dict(zip(self.nodes, self._nodes.description.http_addresses, strict=False))

    def outputs(self) -> dict[int, str]:
        """The last of what each node has printed, if it is a process; nodes in threads use ``logging``."""
        return {node.node_id: node.output_tail() for node in self._nodes if isinstance(node, NodeInProcess)}

    def admin(self) -> AdminClient:
        """pykraft's admin client, which the caller closes."""
        return AdminClient(self.bootstrap_servers, default_api_timeout_ms=round(self.timeout_s * 1000))

    @property
    def _client(self) -> ClientConfig:
        return ClientConfig(
            parse_bootstrap_servers(self.bootstrap_servers),
            client_id="pykraft-testing",
            unknown_topic_grace_ms=0,  # every broker knows a topic that was created
        )

    # --- topics and records --------------------------------------------------------------------------------

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
        factor = min(3, len(self.nodes)) if replication_factor is None else replication_factor
        with self.admin() as admin:
            (created,) = admin.create_topics([NewTopic(name, partitions, factor, configs or {})])
            created.check()
            self._until(f"{name} has leaders", lambda: self._is_led(admin, name))
        return name

    def produce(
        self, topic: str, *records: Writable, partition: int | None = None, timeout_s: float | None = None
    ) -> list[Record]:
        """Write records in order, and wait until all replicas in sync have them; as they are in the log.

        A record is a value, a pair of key and value, or a :class:`Record`. ``partition`` None: by the key, or
        any.
        """
        return produce(self._client, topic, records, partition, self._timeout_s(timeout_s))

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
        return read(
            self._client,
            topic,
            count,
            partition,
            committed=committed,
            timeout_s=self._timeout_s(timeout_s),
        )

    def partition_leader(self, topic: str, partition: int = 0) -> int:
        """The id of the node that leads a partition; waits until there is one that runs."""
        leaders: list[int] = []

        def is_led() -> bool:
            leader = self._partitions(admin, topic)[partition].leader
            if leader is None or leader not in self.running_nodes:
                return False
            leaders.append(leader)
            return True

        with self.admin() as admin:
            self._until(f"{topic}-{partition} has a leader", is_led)
        return leaders[0]

    def _is_led(self, admin: AdminClient, topic: str) -> bool:
        return all(one.leader is not None for one in self._partitions(admin, topic).values())

    @staticmethod
    def _partitions(admin: AdminClient, topic: str) -> dict[int, PartitionDescription]:
        (described,) = admin.describe_topics([topic])
        return {one.index: one for one in described.partitions}

    # --- nodes ---------------------------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """End a node without handing anything over: ``kill -9`` with processes. In a thread its files are
        still closed in order, but the others learn of it only when its session has expired."""
        self._nodes[node].kill()

    def shut_down(self, node: int) -> None:
        """Stop a node in order: it hands its leaderships over first."""
        self._nodes[node].stop()

    def restart(self, node: int) -> None:
        """Start a node that does not run, after stopping it in order if it does; with the same data and
        address. Returns when it serves."""
        here = self._nodes[node]
        if here.running:
            here.stop()
        self._nodes.begin([here])

    def pause(self, node: int) -> None:
        """A node does nothing any more, as with SIGSTOP, until :meth:`resume`; its connections stay open."""
        self._nodes[node].pause()

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

    def _timeout_s(self, given: float | None) -> float:
        return self.timeout_s if given is None else given

    def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + self.timeout_s
        while True:
            try:
                if is_so():
                    return
                last = ""
            except KafkaError as error:
                last = f" ({error})"
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: not within {self.timeout_s:g} s{last}")
            time.sleep(_POLL_S)
