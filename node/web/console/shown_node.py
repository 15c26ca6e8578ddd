"""The console's view of the node itself, which no client can ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from pykraft.node.node import Node
from pykraft.node.web.console.traffic import Counters
from pykraft.node.web.health import why_not_ready
from pykraft.node.web.server import WebServer
from pykraft.runtime.address import Address

OFF: Final = "off"
PRODUCE: Final = "produce"


class QuorumView(NamedTuple):
    """The quorum as this node knows it, also while there is no leader that could be asked."""

    leader_id: int | None
    epoch: int
    high_watermark: int
    log_end_offset: int


class ShownNode(Protocol):
    """The node that serves the console. ``mode`` is ``pykraft.http.console``."""

    @property
    def node_id(self) -> int: ...
    @property
    def is_broker(self) -> bool: ...
    @property
    def mode(self) -> str: ...
    def why_not_ready(self) -> str | None:
        """None if it serves."""
        ...

    def servers(self) -> Sequence[Address]:
        """Where to ask about the cluster; empty if that is not known yet, or nowhere."""
        ...

    def quorum(self) -> QuorumView | None: ...
    def counters(self) -> Counters | None: ...
    def now_ms(self) -> int:
        """Monotonic."""
        ...

    def wall_ms(self) -> int: ...


class OwnNode:
    """:class:`ShownNode` of a web server."""

    def __init__(self, server: WebServer) -> None:
        self._server = server
        self._config = server.node.config
        self.node_id = self._config.node_id
        self.is_broker = self._config.is_broker
        self.mode = str(self._config.values["pykraft.http.console"])
        self.now_ms = server.now_ms
        self.wall_ms = server.wall_ms

    @property
    def _node(self) -> Node:
        return self._server.node

    def why_not_ready(self) -> str | None:
        return why_not_ready(self._node, self.now_ms())

    def servers(self) -> Sequence[Address]:
        """A broker: itself, at the listener at which brokers reach each other. A controller: all controllers
        that have registered a listener for clients under the name of its own, since only the active one
        answers; it is not known beforehand which that is.
        """
        broker = getattr(self._node, "broker", None)
        if broker is not None:
            own = broker.metadata.image.brokers.get(self.node_id)
            endpoints = () if own is None else own.endpoints
            name = self._config.inter_broker_listener_name
            return [Address(one.host, one.port) for one in endpoints if one.name == name]
        controller = getattr(self._node, "controller", None)
        if controller is None or not self._config.controller_client_listeners:
            return []
        name = self._config.controller_client_listeners[0].name
        return [
            Address(one.host, one.port)
            for _, registered in sorted(controller.committed_image.controllers.items())
            for one in registered.endpoints
            if one.name == name
        ]

    def quorum(self) -> QuorumView | None:
        quorum = getattr(self._node, "quorum", None)
        if quorum is None:
            return None
        leader = quorum.leader
        return QuorumView(leader.leader_id, leader.epoch, quorum.high_watermark, quorum.log_end_offset)

    def counters(self) -> Counters | None:
        broker = getattr(self._node, "broker", None)
        if broker is None:
            return None
        traffic = broker.data.table.traffic.total()
        measured = broker.measured
        requests = 0
        if measured is not None:
            requests = sum(sum(times.requests.values()) for times in measured.times.values())
        return Counters(traffic.bytes_in, traffic.bytes_out, traffic.messages_in, requests)
