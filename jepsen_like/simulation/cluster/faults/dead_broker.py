"""A dead broker is fenced in time, also under an active controller that stalls repeatedly.

Random faults seldom leave a broker dead under one controller for long enough: other controllers are elected,
and each gives the broker a full session again. So in every fourth schedule there is a time in which a broker
is dead, the active controller stalls for less than it takes to depose it, and no other fault occurs
(:func:`plan_stalls`).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from pykraft.jepsen_like.simulation.cluster.faults.lease_race import CalmTime
from pykraft.jepsen_like.simulation.cluster.options import WorldOptions, draw_options
from pykraft.jepsen_like.simulation.cluster.progress import CommitProgress
from pykraft.jepsen_like.simulation.violation import InvariantViolation

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.node import SimNode
    from pykraft.jepsen_like.simulation.cluster.world import World

DEAD_FENCED = "a dead broker is fenced in time"

_POLL_MS: Final = 100
_SLACK_MS: Final = 4000
_STALL_MS: Final = 1700
"""Less than the fetch timeout of 2 s, after which the followers would elect another controller."""


def plan_stalls(seed: int) -> CalmTime | None:
    """Every fourth schedule has one, with time to become stable before it."""
    if seed % 4 != 3:
        return None
    options, rng = draw_options(seed), random.Random(f"stutter {seed}")
    at_ms = rng.randrange(8000)
    return CalmTime(at_ms, at_ms + 6000 + stalls_within_ms(options))


def stalls_within_ms(options: WorldOptions) -> int:
    """Long enough for :class:`DeadBrokerWatch` to find it."""
    return _patience_ms(options, _STALL_MS) + 2 * _STALL_MS


def _patience_ms(options: WorldOptions, longest_stall_ms: int) -> int:
    """Two sessions on a slow clock, and three stalls: a heartbeat may be unread during one, the first one
    extends the session, and the last one delays the fence."""
    return options.session_ms * 21 // 10 + 3 * longest_stall_ms + _SLACK_MS


class StallingController:
    """Until :meth:`end` the victim is dead, and the active controller runs for short times only."""

    def __init__(self, world: World, rng: random.Random, victim: SimNode) -> None:
        self._world = world
        self._victim = victim
        self._over = False
        self._stall_ms = rng.choice((1500, _STALL_MS))
        # Mostly shorter than the time between two checks of the sessions, so that each check is late.
        self._run_ms = int(world.options.session_ms / 8 * rng.choice((0.2, 0.7, 0.85, 0.98)))
        victim.kill(power_loss=False)
        victim.may_start = False
        self._stop()

    def end(self) -> None:
        """The active controller continues within one more stall."""
        if not self._over:
            self._over = True
            self._victim.may_start = True
            self._victim.start()

    def _stop(self) -> None:
        if self._over:
            return
        for node in self._world.active:
            if node.runs and node.process is not None:
                process = node.process
                process.pause()
                self._world.later(self._stall_ms, process.resume, self._world.loop)
        self._world.later(self._stall_ms + self._run_ms, self._stop)


class DeadBrokerWatch:
    """Checks all the time; only time in which one active controller ran and could commit counts."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._active: tuple[int, int] | None = None
        self._dead_ms: dict[int, int] = {}
        self._stall_ms = 0
        self._longest_stall_ms = 0
        self._ran_ms = 0
        self._progress = CommitProgress()
        world.later(_POLL_MS, self._look)

    def _look(self) -> None:
        world = self._world
        active = max(world.checker.active.items(), default=None)
        if active is None or active != self._active or world.nodes[active[1]] not in world.active:
            self._active, self._dead_ms = active, {}
            self._stall_ms = self._longest_stall_ms = self._ran_ms = 0
        elif world.nodes[active[1]].runs:
            self._stall_ms = 0
            self._ran_ms += _POLL_MS
        else:
            self._ran_ms = 0
            self._stall_ms += _POLL_MS
            self._longest_stall_ms = max(self._longest_stall_ms, self._stall_ms)
        counts = active is None or self._stall_ms > 0 or self._progress.commits(world.nodes[active[1]])
        for node in world.brokers:
            self._look_at(node, _POLL_MS if counts else 0)
        world.later(_POLL_MS, self._look)

    def _look_at(self, node: SimNode, passed_ms: int) -> None:
        broker = self._world.checker.model.brokers.get(node.id)
        if node.alive or broker is None or broker.fenced:
            self._dead_ms.pop(node.id, None)
            return
        dead_ms = self._dead_ms[node.id] = self._dead_ms.get(node.id, 0) + passed_ms
        patience_ms = _patience_ms(self._world.options, self._longest_stall_ms)
        if self._ran_ms and dead_ms > patience_ms:
            detail = f"broker {node.id} is dead for {dead_ms} ms under one controller, and active"
            self._world.failed(InvariantViolation(DEAD_FENCED, detail))
