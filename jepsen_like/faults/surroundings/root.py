"""The root tier: each node in a network namespace, on a file system and in control groups of its own.

The runner must have entered namespaces of its own (:func:`.namespaces.enter_own_namespaces`) before it has
started a thread. What is missing besides the network is said, and the rest is played.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pykraft.jepsen_like.faults.surroundings import loop_disk, shim
from pykraft.jepsen_like.faults.surroundings.cgroup import (
    CgroupError,
    Cgroups,
    find_hierarchies,
    remove_leftovers,
)
from pykraft.jepsen_like.faults.surroundings.loop_disks import LoopDisks
from pykraft.jepsen_like.faults.surroundings.namespace_links import NamespaceLinks
from pykraft.jepsen_like.faults.surroundings.namespaces import Network, address, address_for_the_run, inside
from pykraft.jepsen_like.faults.surroundings.shim import Shim, ShimError, build_shim
from pykraft.runtime.address import Address
from pykraft.testing.processes.commands import CommandError
from pykraft.testing.processes.listeners import Listeners


class Root(LoopDisks):
    """Needs root, iproute2 and nftables; for all of it loop devices, control groups and a C compiler."""

    tier: ClassVar[str] = "root"

    def host(self, node_id: int) -> str:
        return address(node_id)

    def probed(self, node_id: int, listener: Address) -> Address:
        return Address(address_for_the_run(node_id), listener.port)

    def open(self, directory: Path, listeners: Mapping[int, Listeners]) -> None:
        """:class:`.namespaces.NamespacesError` or :class:`CommandError` if
        there can be no network."""
        network = Network(list(listeners))
        self._made.callback(network.remove)
        network.make()
        self.links = NamespaceLinks(list(listeners))
        self._open_disks(directory, listeners)
        self._open_cgroups(directory, listeners)
        self._open_shims(directory, listeners)

    def prefix(self, node_id: int) -> tuple[str, ...]:
        groups = () if self.cgroups is None else self.cgroups.prefix(node_id)
        return (*groups, *inside(node_id))

    def _open_disks(self, directory: Path, listeners: Mapping[int, Listeners]) -> None:
        reason = loop_disk.why_unavailable()
        if reason is None:
            try:
                super().open(directory, listeners)
            except CommandError as error:
                reason = str(error)
        if reason is not None:
            self.missing.append(f"file systems of the nodes' own: {reason}")

    def _open_cgroups(self, directory: Path, listeners: Mapping[int, Listeners]) -> None:
        try:
            hierarchies = find_hierarchies()
            remove_leftovers(hierarchies)
            cgroups = Cgroups(hierarchies, list(listeners), directory.parent.name)
            self._made.callback(cgroups.close)
            cgroups.make()
            self.cgroups = cgroups
        except CgroupError as error:
            self.missing.append(f"control groups: {error}")

    def _open_shims(self, directory: Path, listeners: Mapping[int, Listeners]) -> None:
        reason = shim.why_unavailable()
        if reason is None:
            try:
                library = build_shim(directory)
                self.shims = {i: Shim(library, directory / f"node-{i}.shim") for i in listeners}
            except ShimError as error:
                reason = str(error)
        if reason is not None:
            self.missing.append(f"preloaded shim: {reason}")
