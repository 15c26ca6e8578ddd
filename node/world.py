"""The world of a node: everything that is not its own decision.

A node is made from its configuration and a world, and from nothing else. :mod:`pykraft.node.run` makes the
world of a process; a simulation makes its own, and runs the same node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykraft.broker.apis.services import Loggers
from pykraft.node.incarnation import Incarnation
from pykraft.runtime.clock import Clock
from pykraft.runtime.disk import Disk
from pykraft.runtime.rpc import RpcServer, RpcTransport
from pykraft.runtime.tasks import FatalHandler
from pykraft.runtime.tcp import StreamRuntime

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Made on the event loop that the node runs on."""

    disk: Disk
    clock: Clock
    chance: Callable[[], Random]
    """A new generator for each part that draws."""
    executor: Callable[[int, str], Executor]
    """Worker threads, at most so many, named for their purpose. The node shuts them down."""
    rpc_transport: Callable[[], RpcTransport]
    rpc_server: Callable[[], RpcServer]
    streams: StreamRuntime
    """Connections to and from clients and brokers."""
    fatal: FatalHandler
    """What to do about a fault that the node cannot survive. In a process it does not return."""
    settle_memory: Callable[[], None]
    """Called when much has been allocated that stays."""
    incarnation: Incarnation
    loggers: Loggers
