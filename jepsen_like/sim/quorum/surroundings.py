"""What the worlds of this package give to what lives in them.

A replica (:mod:`.replica`) and a whole node (:mod:`.node`) are told how long things take, hand their messages
over and say what happened; the worlds (:mod:`.cluster`, :mod:`.nodes`) know and hold them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from pykraft.jepsen_like.sim.quorum.invariant_history import StoredBatch
    from pykraft.jepsen_like.sim.quorum.invariants import Checker
    from pykraft.jepsen_like.sim.quorum.options import ClusterOptions
    from pykraft.jepsen_like.sim.scheduler import Scheduler
    from pykraft.jepsen_like.sim.virtual_loop import VirtualLoop
    from pykraft.quorum.core.config import QuorumConfig
    from pykraft.quorum.core.effects import CheckSnapshot, Effect, Send
    from pykraft.quorum.core.events import Event
    from pykraft.quorum.core.messages import Response
    from pykraft.quorum.core.voters import VoterSet
    from pykraft.runtime.rpc import RpcServer, RpcTransport

Inhabitant = TypeVar("Inhabitant", contravariant=True)


class Surroundings(Protocol):
    """``kill_chance``: how likely a process dies right after an effect of this type."""

    seed: int
    options: ClusterOptions
    voters: VoterSet
    checker: Checker
    kill_chance: dict[type[Effect], float]


class ReplicaSurroundings(Surroundings, Protocol[Inhabitant]):
    """What a replica is put into."""

    scheduler: Scheduler
    configs: dict[int, QuorumConfig]
    max_fetch_batches: int
    has_stranger: bool

    def tell(self, who: int | str, what: str) -> None: ...

    def postpone(self, replica: Inhabitant, callback: Callable[..., None], *args: Any) -> bool:
        """Whether the replica is paused; the call is then postponed until it continues."""
        ...

    def note_step(self, replica: Inhabitant, event: Event) -> None: ...

    def killed(self, replica: Inhabitant, effect: Effect) -> None: ...

    def start_flush(self, replica: Inhabitant, end_offset: int, generation: int) -> None: ...

    def start_check(self, replica: Inhabitant, effect: CheckSnapshot) -> None: ...

    def send_request(self, sender: Inhabitant, effect: Send) -> None: ...

    def send_response(self, sender: Inhabitant, token: int, response: Response) -> None: ...

    def vote_granted(self, replica: Inhabitant) -> None: ...

    def leader_elected(self, replica: Inhabitant) -> None: ...

    def acknowledge(self, batch: StoredBatch) -> None: ...


class NodeSurroundings(Surroundings, Protocol[Inhabitant]):
    """What the process of a whole node is put into. ``acknowledged``: the values, with their offsets."""

    loop: VirtualLoop
    config: QuorumConfig
    segment_bytes: int
    acknowledged: dict[bytes, int]

    def transport(self, sender: Inhabitant) -> RpcTransport: ...

    def server(self, process: Inhabitant) -> RpcServer: ...

    def kill(self, process: Inhabitant) -> None: ...

    def failed(self, error: BaseException) -> None: ...
