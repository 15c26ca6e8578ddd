"""A broker whose fetches of the metadata log are lost while its heartbeats pass: it must be fenced for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykraft.jepsen_like.sim.cluster.image_invariants import InvariantViolation
from pykraft.jepsen_like.sim.cluster.progress import CommitProgress

if TYPE_CHECKING:
    from pykraft.jepsen_like.sim.cluster.node import SimNode
    from pykraft.jepsen_like.sim.cluster.world import World

STALE_FENCED = "a broker that does not follow the metadata log is fenced"
STARVED_SESSIONS: Final = 3
"""How long one starves: long enough for the controller's patience, whatever else goes on."""

_POLL_MS: Final = 100
_SLACK_MS: Final = 3000


class Starvation:
    """Until :meth:`end` the victim, which is no controller, fetches in vain.

    Its being behind is seen within half a session, and borne for a whole one; some retries come on top. Only
    time counts in which one and the same active controller ran and could commit: its successor is patient
    anew. So is one that hears a late wish of the victim: who does not know the controller sends it nothing
    else, and is taken to live, and to have got so far, from then on.
    """

    def __init__(self, world: World, victim: SimNode) -> None:
        self._world = world
        self._victim = victim
        self._reign: tuple[int, int] | None = None
        self._wishes = 0
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
        reign = max(world.checker.active.items(), default=None)
        wishes = world.watch.wishes_heard[self._victim.id]
        if reign is None or (reign, wishes) != (self._reign, self._wishes):
            self._reign, self._wishes, self._watched_ms = reign, wishes, 0
        else:
            controller = world.nodes[reign[1]]
            if self._progress.commits(controller) and controller.runs and controller in world.active:
                self._watched_ms += _POLL_MS
        broker = world.checker.model.brokers.get(self._victim.id)
        patience_ms = world.options.session_ms * 3 // 2 + _SLACK_MS
        if self._watched_ms > patience_ms and broker is not None and not broker.fenced:
            detail = f"broker {self._victim.id} has fetched nothing for {self._watched_ms} ms, and is active"
            world.failed(InvariantViolation(STALE_FENCED, detail))
            return
        world.later(_POLL_MS, self._watch)
