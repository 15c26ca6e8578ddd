"""The nodes' surroundings: addresses, links, clocks and disks that a nemesis can break.

:class:`Surroundings` is the bare one: processes on loopback, of which nothing but the processes themselves
can be broken. The tiers derive from it: ``portable`` (no privileges: a proxy for each link, a preloaded
shim) and ``root`` (network namespaces and file systems of the run's own). Decides where a node listens, where
it is found and how its process is started; never when something is broken.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from pykraft.runtime.address import Address
from pykraft.testing.processes.listeners import LOOPBACK, Listeners

if TYPE_CHECKING:
    from pykraft.jepsen_like.faults.surroundings.cgroup import Cgroups
    from pykraft.jepsen_like.faults.surroundings.loop_disk import LoopDisk
    from pykraft.jepsen_like.faults.surroundings.shim import Shim

CLIENTS: Final = 0
"""In the place of a node id: the workload's clients."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """One direction of one link. ``loss`` is the share of lost packets, ``bytes_per_s`` a throttle.

    A cut direction carries nothing; with ``resets`` connections over it are reset instead, old and new ones.
    """

    cut: bool = False
    resets: bool = False
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    bytes_per_s: float | None = None

    def joined(self, other: LinkState) -> LinkState:
        """How a direction fares on which both are imposed: what is worse of each; delays add up."""
        silent = (self.cut and not self.resets) or (other.cut and not other.resets)
        rates = [one.bytes_per_s for one in (self, other) if one.bytes_per_s is not None]
        return LinkState(
            cut=self.cut or other.cut,
            resets=(self.resets or other.resets) and not silent,
            delay_ms=self.delay_ms + other.delay_ms,
            jitter_ms=self.jitter_ms + other.jitter_ms,
            loss=max(self.loss, other.loss),
            bytes_per_s=min(rates, default=None),
        )


WHOLE: Final = LinkState()


Direction = tuple[int, int]
"""From whom to whom."""
LinkStates = Mapping[Direction, LinkState]


class Links(Protocol):
    """The links between nodes, and between the clients (:data:`CLIENTS`) and nodes."""

    def set(self, source: int, target: int, state: LinkState) -> None:
        """From now on whatever ``source`` sends to ``target`` fares like this, on every connection between
        the two, no matter who opened it. ``WHOLE`` repairs the direction."""
        ...

    def why_unavailable(self, state: LinkState) -> str | None:
        """Why this cannot be done here; None if it can."""
        ...


class Surroundings:
    """The bare surroundings, and what the tiers have in common.

    ``links`` is None where they cannot be broken, ``cgroups`` where there are none. ``disks`` and ``shims``
    hold what there is by node id; they are empty where there is nothing.
    """

    tier: ClassVar[str] = "bare"

    def __init__(self) -> None:
        self.links: Links | None = None
        self.disks: Mapping[int, LoopDisk] = {}
        self.shims: dict[int, Shim] = {}
        self.cgroups: Cgroups | None = None
        self.missing: list[str] = []
        """What this tier has elsewhere but not here, each with the reason: said loudly by the run."""
        self._imposed: list[LinkStates] = []
        self._imposing = threading.Lock()

    def host(self, node_id: int) -> str:
        """The host on which a node listens and is reached."""
        return LOOPBACK

    def open(self, directory: Path, listeners: Mapping[int, Listeners]) -> None:
        """Make what must stand before nodes are formatted; called once, with all nodes there will ever be."""

    def close(self) -> None:
        """Remove everything; every node has ended. May be called twice, and after a failed :meth:`open`."""

    def advertised(self, node_id: int, listener: Address) -> Address:
        """Where clients find a broker that listens at ``listener``."""
        return listener

    def probed(self, node_id: int, listener: Address) -> Address:
        """Where the run itself finds such a broker, whatever happens to the links of clients."""
        return listener

    def impose(self, states: LinkStates) -> Callable[[], None]:
        """Break directions of links, by themselves or on top of what else breaks them. The result ends it;
        it is to be called once. For several threads; only where there are :attr:`links`."""
        with self._imposing:
            self._imposed.append(states)
            self._set_links(states)

        def lift() -> None:
            with self._imposing:
                self._imposed = [one for one in self._imposed if one is not states]
                self._set_links(states)

        return lift

    def _set_links(self, directions: Iterable[Direction]) -> None:
        assert self.links is not None
        for direction in directions:
            imposed = [states[direction] for states in self._imposed if direction in states]
            self.links.set(*direction, reduce(LinkState.joined, imposed, WHOLE))

    def data_directory(self, directory: Path, node_id: int) -> Path:
        """Where a node keeps its data; ``directory`` is the cluster's."""
        return directory / f"node-{node_id}"

    def remove_data(self, directory: Path, node_id: int) -> None:
        """Remove what :meth:`close` has left of a node's data."""
        shutil.rmtree(self.data_directory(directory, node_id), ignore_errors=True)

    def prefix(self, node_id: int) -> tuple[str, ...]:
        """Return the words before a node's command, which replaces them: the pid is the node's."""
        return ()

    def environment(self, node_id: int) -> Mapping[str, str]:
        """Return the environment of a node's process, besides the runner's."""
        return self.shims[node_id].environment() if node_id in self.shims else {}
