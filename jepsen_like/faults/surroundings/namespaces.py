"""A network of the run's own: the runner in namespaces of its own, and one network namespace for each node.

The kernel removes all of it with the last process inside, mounts and loop devices included, even if the
runner was killed. Each node has one link to a bridge; the runner has the bridge itself. A node is reached by
two addresses: clients and nodes use the first, whose traffic can be broken (:mod:`.namespace_links`), the run
itself asks nodes at the second, whatever is broken. Needs root, iproute2 and nftables (Linux).
"""

import ctypes
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pykraft.jepsen_like.faults.surroundings import loop_disk
from pykraft.jepsen_like.faults.surroundings.surroundings import CLIENTS
from pykraft.testing.processes.commands import CommandError, missing_commands, run_command

TABLE: Final = "inet jepsen"
BRIDGE: Final = "jepsen"
_NODE_LINK: Final = "eth0"
_NETNS_DIRECTORY: Final = Path("/run/netns")
_MOUNT_NAMESPACE, _NETWORK_NAMESPACE = 0x00020000, 0x40000000
_CLIENTS_HOST: Final = 254
LARGEST_NODE_ID: Final = _CLIENTS_HOST - 1

_has_own = False


class NamespacesError(RuntimeError):
    """There are no namespaces of the run's own; the message says why."""


def why_unavailable() -> str | None:
    """Return the reason why namespaces cannot work here, if one is known."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "not root"
    return missing_commands("ip", "tc", "nft", "nsenter", "mount")


def enter_own_namespaces() -> None:
    """Move this process, and all that it starts, into a network and a mount namespace of its own.

    Must be called before the process has a second thread: threads that exist stay outside. A second call
    does nothing. :class:`NamespacesError` if that is not possible.
    """
    global _has_own
    if _has_own:
        return
    reason = why_unavailable()
    if reason is not None:
        raise NamespacesError(reason)
    if len(os.listdir("/proc/self/task")) > 1:
        raise NamespacesError("this process has several threads already")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NETWORK_NAMESPACE | _MOUNT_NAMESPACE) != 0:
        raise NamespacesError(f"unshare: {os.strerror(ctypes.get_errno())}")
    try:
        run_command("mount", "--make-rprivate", "/")
        for mount_point in loop_disk.mount_points():
            run_command("umount", str(mount_point))  # of another run, which could not cut its power
        _NETNS_DIRECTORY.mkdir(parents=True, exist_ok=True)
        run_command("mount", "-t", "tmpfs", "jepsen", str(_NETNS_DIRECTORY))
        run_command("ip", "link", "set", "lo", "up")
    except (CommandError, OSError) as error:
        raise NamespacesError(str(error)) from error
    _has_own = True


def address(node_id: int) -> str:
    """The address of a node, or of the clients."""
    return f"10.77.0.{node_id or _CLIENTS_HOST}"


def address_for_the_run(node_id: int) -> str:
    """Where the run itself finds a node, or its own address on that network."""
    return f"10.78.0.{node_id or _CLIENTS_HOST}"


def inside(node_id: int) -> tuple[str, ...]:
    """Return the words before a command that is to run in a node's network namespace, and replaces them.

    Not ``ip netns exec``: that makes a mount namespace, too, which would keep the file systems of all nodes
    mounted as long as its process lives.
    """
    return () if node_id == CLIENTS else ("nsenter", f"--net={_NETNS_DIRECTORY / _name(node_id)}")


def link(node_id: int) -> str:
    """The device by which a node, or the clients, send to all others."""
    return BRIDGE if node_id == CLIENTS else _NODE_LINK


class Network:
    """The bridge, the nodes' namespaces and their links. Only in namespaces of the run's own."""

    def __init__(self, node_ids: Sequence[int]) -> None:
        self._node_ids = tuple(node_ids)

    def make(self) -> None:
        """:class:`NamespacesError` outside of own namespaces, :class:`CommandError` if a command fails."""
        if not _has_own:
            raise NamespacesError("the runner has not entered namespaces of its own")
        if max(self._node_ids) > LARGEST_NODE_ID:
            raise NamespacesError(f"there is no address for a node id above {LARGEST_NODE_ID}")
        self.remove()
        run_command("ip", "link", "add", BRIDGE, "type", "bridge")
        self._configure(CLIENTS)
        for node_id in self._node_ids:
            name, port = _name(node_id), _port(node_id)
            run_command("ip", "netns", "add", name)
            run_command("ip", "link", "add", port, "type", "veth", "peer", "name", _NODE_LINK, "netns", name)
            run_command("ip", "link", "set", port, "master", BRIDGE, "up")
            run_command(*inside(node_id), "ip", "link", "set", "lo", "up")
            self._configure(node_id)

    def _configure(self, node_id: int) -> None:
        within, device = inside(node_id), link(node_id)
        for one in (address(node_id), address_for_the_run(node_id)):
            run_command(*within, "ip", "address", "add", f"{one}/24", "dev", device)
        run_command(*within, "ip", "link", "set", device, "up")
        script = _INPUT_CHAIN
        if node_id != CLIENTS:
            script += _SECOND_ADDRESS.format(first=address(node_id), second=address_for_the_run(node_id))
        run_command(*within, "nft", "-f", "-", script=script)

    def remove(self) -> None:
        """Remove all of it that exists. No process is inside any more. A namespace takes its link with it,
        but not at once."""
        there = {name for _, name in socket.if_nameindex()}
        for node_id in self._node_ids:
            if _port(node_id) in there:
                run_command("ip", "link", "delete", _port(node_id))
            if (_NETNS_DIRECTORY / _name(node_id)).exists():
                run_command("ip", "netns", "delete", _name(node_id))
        if BRIDGE in there:
            run_command("ip", "link", "delete", BRIDGE)
            run_command("nft", "flush", "ruleset")


_INPUT_CHAIN: Final = f"""
add table {TABLE}
add chain {TABLE} input {{ type filter hook input priority 0; policy accept; }}
"""
_SECOND_ADDRESS: Final = f"""
add chain {TABLE} second {{{{ type nat hook prerouting priority -100; }}}}
add rule {TABLE} second ip daddr {{second}} dnat ip to {{first}}
"""


def _name(node_id: int) -> str:
    return f"node-{node_id}"


def _port(node_id: int) -> str:
    """The bridge's end of a node's link."""
    return f"to-{_name(node_id)}"
