"""A broker whose fetches of the metadata log are lost while its heartbeats pass: it must be fenced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykraft.jepsen_like.simulation.cluster.progress import CommitProgress
from pykraft.jepsen_like.simulation.violation import InvariantViolation

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.node import SimNode
    from pykraft.jepsen_like.simulation.cluster.world import World

STALE_FENCED = "a broker that does not follow the metadata log is fenced"
STARVED_SESSIONS: Final = 3
"""How long the fault lasts: long enough for the controller to fence the broker, whatever else happens."""

_POLL_MS: Final = 100
_SLACK_MS: Final = 3000


class Starvation:
    """Until :meth:`end` all fetches of the victim, which is no controller, are lost.

    The controller notices within half a session that the victim is behind, and fences it after a whole one;
    some retries are added. Only the time counts in which one and the same active controller ran and could
    commit: its successor starts a new session. The session also starts again when the controller receives a
    late request of the victim to be fenced: a broker that does not know the controller sends it nothing else,
    and counts as alive, and as far as that request says, from then on.
    """

    def __init__(self, world: World, victim: SimNode) -> None:
        self._world = world
        self._victim = victim
        self._active: tuple[int, int] | None = None
        self._fence_requests = 0
        self._progress = CommitProgress()
        self._watched_ms = 0
        self._over = False
        world.starved.append(victim.id)
        self._watch()

    def end(self) -> None:
        if not self._over:
            self._over = True
            self._world.starved.remove(self._victim.id)

    def _watch(self) -> None:
        if self._over:
            return
        world = self._world
        active = max(world.checker.active.items(), default=None)
        requests = world.watch.fence_requests[self._victim.id]
        if active is None or (active, requests) != (self._active, self._fence_requests):
            self._active, self._fence_requests, self._watched_ms = active, requests, 0
        else:
            controller = world.nodes[active[1]]
            if self._progress.commits(controller) and controller.runs and controller in world.active:
                self._watched_ms += _POLL_MS
        broker = world.checker.model.brokers.get(self._victim.id)
        patience_ms = world.options.session_ms * 3 // 2 + _SLACK_MS
        if self._watched_ms > patience_ms and broker is not None and not broker.fenced:
            detail = f"broker {self._victim.id} has fetched nothing for {self._watched_ms} ms, and is active"
            world.failed(InvariantViolation(STALE_FENCED, detail))
            return
        world.later(_POLL_MS, self._watch)
