"""The portable tier: without any privilege, a proxy for each link, and a preloaded shim in each node.

The shim sends each connection of a node to the proxy's port for the link that it belongs to, so nodes and
their configurations know nothing of the proxy. Clients come through the addresses that brokers advertise.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from pykraft.jepsen_like.faults.surroundings import shim
from pykraft.jepsen_like.faults.surroundings.proxies import ProxyLinks
from pykraft.jepsen_like.faults.surroundings.surroundings import CLIENTS, Surroundings
from pykraft.runtime.address import Address
from pykraft.runtime.free_ports import free_ports
from pykraft.testing.processes.listeners import LOOPBACK, Listeners


class Portable(Surroundings):
    """Without a shim (it needs Linux and a C compiler) no link can be broken; :attr:`missing` says so."""

    tier: ClassVar[str] = "portable"

    def __init__(self) -> None:
        super().__init__()
        self._proxies: ProxyLinks | None = None
        self._client_ports: dict[Address, int] = {}
        self._no_shim = shim.why_unavailable()
        if self._no_shim is not None:
            self.missing.append(f"no links, disks or clocks that can be broken: {self._no_shim}")

    def open(self, directory: Path, listeners: Mapping[int, Listeners]) -> None:
        """:class:`~pykraft.jepsen_like.faults.surroundings.shim.ShimError` if the shim cannot be compiled."""
        if self._no_shim is not None:
            return
        library = shim.build_shim(directory)
        self._proxies = self.links = ProxyLinks(directory / "proxy.log")
        for target, addresses in listeners.items():
            for address in addresses:
                self._proxies.listen(CLIENTS, target, address, self.advertised(target, address).port)
        self.shims = {i: shim.Shim(library, directory / f"node-{i}.shim") for i in listeners}
        for node_id, of_node in self.shims.items():
            of_node.redirect(dict(self._ports_for(node_id, listeners)))

    def close(self) -> None:
        if self._proxies is not None:
            self._proxies.close()

    def advertised(self, node_id: int, listener: Address) -> Address:
        if self._no_shim is not None:
            return listener
        if listener not in self._client_ports:
            (self._client_ports[listener],) = free_ports(1)
        return Address(LOOPBACK, self._client_ports[listener])

    def _ports_for(self, source: int, listeners: Mapping[int, Listeners]) -> Iterator[tuple[int, int]]:
        """Where the node gets to instead, for each port that it may connect to."""
        assert self._proxies is not None
        for target, addresses in listeners.items():
            for address in addresses:
                to = address.port
                if target != source:
                    to = self._proxies.listen(source, target, address)
                    yield address.port, to
                yield self._client_ports[address], to
