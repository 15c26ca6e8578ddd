"""The worlds of this package, as a replica or a process of a whole node sees them.

A replica (:mod:`.replica`) and a whole node (:mod:`.quorum_nodes.node`) take delays from their world, pass
their messages to it and report events; the worlds (:mod:`.cluster`, :mod:`.quorum_nodes.cluster`) hold the
replicas and nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.quorum.invariants.checker import Checker
    from pykraft.jepsen_like.simulation.quorum.invariants.history import StoredBatch
    from pykraft.jepsen_like.simulation.quorum.options import ClusterOptions
    from pykraft.jepsen_like.simulation.quorum.scheduler import Scheduler
    from pykraft.quorum.core.config import QuorumConfig
    from pykraft.quorum.core.effects import CheckSnapshot, Effect, Send
    from pykraft.quorum.core.events import Event
    from pykraft.quorum.core.messages import Response
    from pykraft.quorum.core.voters import VoterSet
    from pykraft.runtime.rpc import RpcServer, RpcTransport
    from pykraft.runtime.simulated.virtual_loop import VirtualLoop

Process = TypeVar("Process", contravariant=True)


class World(Protocol):
    """``kill_chance``: the probability that a process dies right after an effect of this type."""

    seed: int
    options: ClusterOptions
    voters: VoterSet
    checker: Checker
    kill_chance: dict[type[Effect], float]


class ReplicaWorld(World, Protocol[Process]):
    """The world of a replica."""

    scheduler: Scheduler
    configs: dict[int, QuorumConfig]
    max_fetch_batches: int
    has_stranger: bool

    def log_event(self, who: int | str, what: str) -> None: ...

    def postpone(self, replica: Process, callback: Callable[..., None], *args: Any) -> bool:
        """Whether the replica is paused; the call is then postponed until it continues."""
        ...

    def note_step(self, replica: Process, event: Event) -> None: ...

    def killed(self, replica: Process, effect: Effect) -> None: ...

    def start_flush(self, replica: Process, end_offset: int, generation: int) -> None: ...

    def start_check(self, replica: Process, effect: CheckSnapshot) -> None: ...

    def send_request(self, sender: Process, effect: Send) -> None: ...

    def send_response(self, sender: Process, token: int, response: Response) -> None: ...

    def vote_granted(self, replica: Process) -> None: ...

    def leader_elected(self, replica: Process) -> None: ...

    def acknowledge(self, batch: StoredBatch) -> None: ...


class NodeWorld(World, Protocol[Process]):
    """The world of a process of a whole node. ``acknowledged``: the values, with their offsets."""

    loop: VirtualLoop
    config: QuorumConfig
    segment_bytes: int
    acknowledged: dict[bytes, int]

    def note(self, process: Process, what: object) -> None:
        """Something has happened to a process that equal schedules have in common."""
        ...

    def stepped(self, process: Process, event: Event) -> None: ...

    def kill_between_effects(self, process: Process, effect: Effect) -> None: ...

    def transport(self, sender: Process) -> RpcTransport: ...

    def server(self, process: Process) -> RpcServer: ...

    def failed(self, error: BaseException) -> None: ...
