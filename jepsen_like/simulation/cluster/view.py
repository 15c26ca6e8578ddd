"""The machines, and the world around them, as the checks and watches see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.options import WorldOptions
    from pykraft.jepsen_like.simulation.cluster.parts import Parts
    from pykraft.kafka_protocol.ids import Uuid
    from pykraft.metadata_log.image import MetadataImage
    from pykraft.node.incarnation import Incarnation
    from pykraft.quorum.core.voters import ReplicaKey, VoterSet
    from pykraft.runtime.simulated.processes import ProcessClock, SimProcess
    from pykraft.runtime.simulated.rpc import RpcNetwork
    from pykraft.runtime.simulated.streams import NetworkLoop


class Machine(Protocol):
    """One machine, and the process that runs on it now, or ran last."""

    id: int
    is_controller: bool
    is_broker: bool
    directory_id: Uuid
    clock: ProcessClock
    starts: int
    parts: Parts
    incarnation: Incarnation
    may_start: bool
    disk_is_new: bool
    """And no registration has reported it yet."""

    @property
    def key(self) -> ReplicaKey: ...

    @property
    def alive(self) -> bool: ...

    @property
    def image(self) -> MetadataImage: ...

    @property
    def serves(self) -> bool:
        """Whether any request of a client is answered."""
        ...

    @property
    def takes_unreplicated_writes(self) -> bool:
        """Whether a write with acks 0 or 1 is accepted."""
        ...

    def start(self) -> None: ...

    def kill(self, *, power_loss: bool) -> None: ...

    def replace_disk(self, directory_id: Uuid) -> None: ...


class Cluster(Protocol):
    """All machines, and the time that they share."""

    loop: NetworkLoop
    options: WorldOptions

    @property
    def nodes(self) -> Mapping[int, Machine]: ...

    @property
    def controllers(self) -> Sequence[Machine]: ...

    def log_event(self, who: str | int, what: str) -> None:
        """A line of the story. ``who``: a node's id, or another part of the world."""
        ...

    def lead(self, partition: str | None, leader: int) -> None:
        """Note who leads a partition, or None: the controllers, from now on."""
        ...

    def mark(self, what: str) -> None:
        """Add to the trace, which is equal for equal schedules."""
        ...

    def later(self, after_ms: float, callback: Callable[..., Any], *args: Any) -> None:
        """Call ``callback`` later, outside any process."""
        ...

    def failed(self, error: BaseException) -> None:
        """End the schedule with an error: a broken invariant or a bug."""
        ...


class TransactionFaults(Protocol):
    """Faults of the markers that a machine sends."""

    async def exchange(
        self, send: Callable[..., Awaitable[Any]], sender: Any, node_id: int, due: Sequence[Any]
    ) -> None:
        """Send the markers that are due at a broker; what did not pass is handed back to ``sender``."""
        ...


class MachineWorld(Cluster, Protocol):
    """The world around a machine."""

    seed: int
    cluster_id: str
    rpc: RpcNetwork
    voters: VoterSet
    """The first voters."""
    processes: list[SimProcess]
    events: int
    outside: Context
    """The context of callbacks that belong to no process."""

    @property
    def transaction_faults(self) -> TransactionFaults: ...

    def count_other(self, what: str, who: str = "") -> None:
        """Count a fault that the plan does not have."""
        ...
