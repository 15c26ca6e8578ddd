"""The targeted fault on leases: a broker is cut off just after it got a lease, while clocks differ most.

Whether a lease outlives the fence shows only when a broker that is cut off lives to the end of its session
under one controller, while all clocks run as they did at its last heartbeat. Few random races last that long:
another fault, or an administrator who removes a voter, kills the broker or brings a new controller and with
it a new session. So every second schedule holds one race during which no other fault occurs
(:func:`plan_calm_race`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pykraft.jepsen_like.simulation.cluster.options import WorldOptions, draw_options

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.node import SimNode
    from pykraft.jepsen_like.simulation.cluster.world import World

MAX_CLOCK_ERROR = 0.05
"""How much faster or slower than true time a clock may run: the bound under which leases are safe."""

POLL_MS = 10


class CalmTime(NamedTuple):
    """From ``at_ms`` until ``until_ms`` no other fault begins, and those under way end."""

    at_ms: int
    until_ms: int


def plan_calm_race(seed: int) -> CalmTime | None:
    """Every second schedule has one: most of these at the beginning, where all brokers soon serve."""
    if seed % 2:
        return None
    options, rng = draw_options(seed), random.Random(f"lease race {seed}")
    if rng.random() < 0.75:
        return CalmTime(0, 4000 + race_ms(options))
    at_ms = rng.randrange(8000, 30_000)
    return CalmTime(at_ms, at_ms + options.session_ms + 2000 + race_ms(options))


def race_ms(options: WorldOptions) -> int:
    """A slow response to a heartbeat, and then the session until the controller's next check of it."""
    return options.session_ms * 8 // 5


def is_stable(world: World) -> bool:
    """Whether one controller is active and every broker serves."""
    return len(world.active) == 1 and all(node.is_serving for node in world.brokers)


def racers(world: World) -> list[SimNode]:
    """The brokers that serve, and that another node would fence."""
    return [node for node in world.brokers if node not in world.active and node.is_serving]


class LeaseRace:
    """The victim's clock is as slow, the controllers' are as fast as allowed. Ends with ``cut_off``.

    Before that, responses to the victim take almost as long as its timeout, and one of them has just arrived;
    or ``paused``, an active controller, is stopped for so long that it may have been deposed without knowing
    it.
    """

    def __init__(
        self,
        world: World,
        rng: random.Random,
        victim: SimNode,
        paused: SimNode | None,
        cut_off: Callable[[], object],
    ) -> None:
        self._world = world
        self._victim = victim
        self._cut_off = cut_off
        self._under_way = True
        self._process = None if paused is None or not paused.runs else paused.process
        for node in world.controllers:
            node.set_clock_error(MAX_CLOCK_ERROR)
        victim.set_clock_error(-MAX_CLOCK_ERROR)
        if self._process is not None:
            self._process.pause()
            world.later(2000 + rng.randrange(1200), self._resume)
            return
        heartbeat_ms = world.options.heartbeat_ms
        self._slow_ms = heartbeat_ms * 9 // 10
        for node in world.controllers:
            world.links.slow_ms[node.id, victim.id] = self._slow_ms
        self._lease_end_ms = self._granted_lease_end_ms()
        self._began_ms = self._now_ms()
        self._wait_until_ms = self._began_ms + 2 * (self._slow_ms + heartbeat_ms)
        world.later(POLL_MS, self._aim)

    def end(self) -> None:
        """End everything but the cut."""
        self._under_way = False
        if self._process is not None:
            self._process.resume(self._world.loop)
        self._world.links.slow_ms.clear()
        for node in (*self._world.controllers, self._victim):
            node.set_clock_error(0.0)

    def _resume(self) -> None:
        if self._under_way and self._process is not None:
            self._process.resume(self._world.loop)
            self._world.later(60, self._cut_off_victim)

    def _cut_off_victim(self) -> None:
        if self._under_way:
            self._cut_off()

    def _aim(self) -> None:
        """Cut the victim off when a slow response has granted a lease."""
        if not self._under_way:
            return
        lease_end_ms, self._lease_end_ms = self._lease_end_ms, self._granted_lease_end_ms()
        now_ms = self._now_ms()
        answered = lease_end_ms != self._lease_end_ms and now_ms - self._began_ms >= self._slow_ms * 0.9
        if answered or now_ms >= self._wait_until_ms:
            self._cut_off()
        else:
            self._world.later(POLL_MS, self._aim)

    def _granted_lease_end_ms(self) -> int | None:
        lifecycle = self._victim.parts.lifecycle
        return None if lifecycle is None else lifecycle._lease_end_ms

    def _now_ms(self) -> float:
        return self._world.loop.now_s * 1000
