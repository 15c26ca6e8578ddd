"""The world of a node: everything that it gets from outside.

A node is made from its configuration and a world only. :mod:`pykraft.node.run` makes the world of a process;
a simulation makes its own, and runs the same node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from pykraft.broker.apis.services import Loggers
from pykraft.broker.replicas.partition.observer import UNOBSERVED, PartitionObserver
from pykraft.group_coordinator.observer import UNOBSERVED as UNOBSERVED_GROUPS
from pykraft.group_coordinator.observer import GroupObserver
from pykraft.lazy_dataclass import dataclass
from pykraft.node.incarnation import Incarnation
from pykraft.runtime.clock import Clock
from pykraft.runtime.disk import Disk
from pykraft.runtime.network.tcp import StreamRuntime
from pykraft.runtime.rpc import RpcServer, RpcTransport
from pykraft.runtime.tasks import FatalHandler

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from random import Random

    from pykraft.kafka_protocol.connection import RequestHandler


def _as_they_come(handler: RequestHandler) -> RequestHandler:
    return handler


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Must be made on the event loop that the node runs on."""

    disk: Disk
    clock: Clock
    new_rng: Callable[[], Random]
    """Returns a new generator for each part that needs randomness."""
    executor: Callable[[int, str], Executor]
    """Makes a pool of at most this many worker threads, with this name. The node shuts it down."""
    rpc_transport: Callable[[], RpcTransport]
    rpc_server: Callable[[], RpcServer]
    streams: StreamRuntime
    """The shared state of connections to and from clients and brokers."""
    fatal: FatalHandler
    """Handles a fault that the node cannot survive. In a process it does not return."""
    exclude_from_gc: Callable[[], None]
    """Called when many long-lived objects have been allocated."""
    incarnation: Incarnation
    unusable_dirs: Mapping[str, str] = field(default_factory=dict)
    """Data directories that this process could not lock, with the reasons."""
    loggers: Loggers
    now_us: Callable[[], int] | None = None
    """Monotonic microseconds to measure requests with; None: they are not measured."""
    around_requests: Callable[[RequestHandler], RequestHandler] = _as_they_come
    """What the broker's listeners pass requests of clients to, made of the broker's own handler."""
    partition_observer: PartitionObserver = UNOBSERVED
    group_observer: GroupObserver = UNOBSERVED_GROUPS
    """What watches the broker's replicas, and the shards of its group coordinator."""
