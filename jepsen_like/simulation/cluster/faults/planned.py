"""The faults of whole nodes and their times, planned from the seed; each has its own randomness.

A fault that is left out does not change the others, so a failing schedule can be reduced. Storms and calm
alternate. A schedule prefers some kinds of faults, so that they often overlap. A fault that no other may
disturb (:mod:`.lease_race`) keeps its time in the plan, even if it is left out.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pykraft.jepsen_like.simulation.cluster import transaction_faults
from pykraft.jepsen_like.simulation.cluster.faults.dead_broker import (
    StallingController,
    plan_stalls,
    stalls_within_ms,
)
from pykraft.jepsen_like.simulation.cluster.faults.lease_race import (
    MAX_CLOCK_ERROR,
    POLL_MS,
    LeaseRace,
    is_stable,
    plan_calm_race,
    race_ms,
    racers,
)
from pykraft.jepsen_like.simulation.cluster.faults.starvation import STARVED_SESSIONS, Starvation
from pykraft.jepsen_like.simulation.schedule import Schedule
from pykraft.jepsen_like.simulation.story import StoryFault
from pykraft.runtime.simulated.virtual_loop import VirtualClock

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.node import SimNode
    from pykraft.jepsen_like.simulation.cluster.world import World

CALM_RACE = "undisturbed lease race"
CALM_STALLS = "undisturbed stalls"
CALM = (CALM_RACE, CALM_STALLS)
"""Drawn separately from the other faults, which are postponed by them."""

KINDS = (
    "kill",
    "kill",
    "power loss",
    "power loss",
    "power loss of all",
    "disk fault",
    "death in a disk call",
    "death in a disk call",
    "pause",
    "pause",
    "isolation",
    "cut out",
    "cut in",
    "flapping cut",
    "bad network",
    "clock rate",
    "lease race",
    "starvation",
    "wall clock jump",
    "graceful restart",
    "disk loss",
    "rot",
    "bad sector",
    "stalled replication",
    "stalled replication",
)

DIRECTORY_FAILURE = "directory failure"
"""In the place of some faults of these kinds, where brokers have several directories."""
_MADE_DIRECTORY_FAILURES = ("disk fault", "rot", "bad sector", "death in a disk call", "pause")

_UNTARGETED = (*transaction_faults.KINDS, "power loss of all", "bad network", "lease race", CALM_RACE)
_LASTING = (
    *("pause", "isolation", "cut out", "cut in", "flapping cut", "bad network", "stalled replication"),
    *("clock rate", "lease race", "starvation", DIRECTORY_FAILURE, *CALM),
    *transaction_faults.KINDS[1:],
)
"""Kinds that have a beginning and an end; of the others the story shows the effect."""

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of ``kind``, from ``at_ms`` on for ``for_ms``. ``number`` is its place in the plan."""

    number: int
    at_ms: int
    for_ms: int
    kind: str


def plan_faults(seed: int, duration_ms: int) -> tuple[Fault, ...]:
    """The plan for a shorter duration is the beginning of the plan for a longer one."""
    rng = random.Random(f"faults {seed}")
    preferred = rng.sample(sorted(set(KINDS)), 4)
    gap_ms = rng.choice((400, 1200, 3000))
    at_ms = rng.randrange(500, 4000)
    calm_at_ms = at_ms + rng.randrange(3000, 15_000)
    faults: list[Fault] = []
    race, stalls = plan_calm_race(seed), plan_stalls(seed)
    calm_kind, calm = (CALM_RACE, race) if race is not None else (CALM_STALLS, stalls)
    while at_ms < duration_ms:
        if calm is not None and at_ms >= calm.at_ms:
            faults.append(Fault(len(faults), calm.at_ms, calm.until_ms - calm.at_ms, calm_kind))
            at_ms += calm.until_ms - calm.at_ms
            calm_at_ms += calm.until_ms - calm.at_ms
            calm = None
            continue
        kind = rng.choice(preferred) if rng.random() < 0.6 else rng.choice(KINDS)
        for_ms = rng.choice((50, 300, 1000, 2500, 6000, 11_000))
        faults.append(Fault(len(faults), at_ms, for_ms, kind))
        at_ms += 1 + int(2 * gap_ms * rng.random())
        if at_ms > calm_at_ms:
            at_ms += rng.randrange(2000, 9000)
            calm_at_ms = at_ms + rng.randrange(3000, 15_000)
    return tuple(faults)


class ClusterNemesis:
    """Carries out the plan of one schedule, and ends all faults at the end.

    ``change_voters`` has an administrator request another voter set, and is called while other faults begin.
    """

    def __init__(self, world: World, schedule: Schedule, change_voters: Undo) -> None:
        self._world = world
        self._change_voters = change_voters
        self._active = True
        self._undo: dict[int, Undo] = {}
        self._cuts: dict[int, set[tuple[int, int]]] = {}
        self._bad_network: dict[int, tuple[float, float, float]] = {}
        self._stalls: dict[int, set[tuple[int, int]]] = {}
        world.transaction_faults.ends_at_ms = schedule.duration_ms
        self.plan = plan_faults(schedule.seed, schedule.duration_ms)
        for fault in self.plan:
            if schedule.keeps(fault.number):
                begin = self._calm_down if fault.kind in CALM else self._inject
                world.later(fault.at_ms, begin, fault)

    def heal(self) -> None:
        """End all faults: start dead nodes, heal cuts, resume paused processes, set wall clocks right."""
        self._active = False
        self._world.transaction_faults.end()
        self._world.log_event("faults", "everything is healed")
        self._repair()
        wall_ms = VirtualClock(self._world.loop).wall_ms()
        for node in self._world.nodes.values():
            node.clock.set_wall(wall_ms)

    def _repair(self) -> None:
        for number in sorted(self._undo):
            self._note_end(number)
            self._undo[number]()
        self._undo.clear()
        self._world.links.become_perfect()
        self._world.loop.streams.stalled.clear()
        self._stalls.clear()
        for node in self._world.nodes.values():
            node.disk.live_on()
            node.stop_without_directory()
            self._world.later(0, node.start)

    def _calm_down(self, fault: Fault) -> None:
        """No other fault runs while this one does."""
        if self._active:
            self._repair()
            self._world.voters_stay = True
            self._world.later(fault.for_ms, self._let_change)
            self._when_stable(fault, fault.for_ms - self._lasts_ms(fault))

    def _when_stable(self, fault: Fault, left_ms: int) -> None:
        if is_stable(self._world) or left_ms <= 0:
            self._inject(fault)
        else:
            self._world.later(POLL_MS, self._when_stable, fault, left_ms - POLL_MS)

    def _let_change(self) -> None:
        self._world.voters_stay = False

    def _inject(self, fault: Fault) -> None:
        if not self._active:
            return
        world = self._world
        rng = random.Random(f"fault {world.seed} {fault.number}")
        fault = self._as_it_is(fault)
        victim = self._choose_for(fault.kind, rng)
        undo = self._carry_out(fault, rng, victim)
        if undo is None:
            return
        world.count(fault.kind)
        aim = "" if fault.kind in _UNTARGETED else f" of node {victim.id}"
        begins = " begins" if fault.kind in _LASTING else ""
        world.log_event("faults", f"{fault.kind}{aim}{begins} (fault {fault.number})")
        self._undo[fault.number] = undo
        if world.story is not None:
            where = "" if fault.kind in _UNTARGETED else str(victim.id)
            lasts_ms = self._lasts_ms(fault)
            world.story.faults[fault.number] = StoryFault(fault.kind, where, world.now_us, lasts_ms)
        if rng.random() < world.options.fault_change_chance and not world.voters_stay:
            world.count_other("voter change")
            world.later(rng.randrange(200), self._change_voters)
        world.later(self._lasts_ms(fault), self._end, fault.number)

    def _as_it_is(self, fault: Fault) -> Fault:
        rng = random.Random(f"of transactions {self._world.seed} {fault.number}")
        is_replaced = fault.kind in transaction_faults.REPLACED or rng.random() < transaction_faults.SHARE
        if not self._world.options.keeps_tails or fault.kind in CALM or not is_replaced:
            return self._in_a_directory(fault)
        return replace(fault, kind=rng.choice(transaction_faults.KINDS))

    def _in_a_directory(self, fault: Fault) -> Fault:
        options = self._world.options
        if options.log_dirs == 1 or options.keeps_tails or fault.kind not in _MADE_DIRECTORY_FAILURES:
            return fault
        chosen = random.Random(f"directory {self._world.seed} {fault.number}").random() < 0.7
        return replace(fault, kind=DIRECTORY_FAILURE) if chosen else fault

    def _lasts_ms(self, fault: Fault) -> int:
        if "lease race" in fault.kind:
            return race_ms(self._world.options)
        if fault.kind == CALM_STALLS:
            return stalls_within_ms(self._world.options)
        if fault.kind == "starvation":
            return STARVED_SESSIONS * self._world.options.session_ms
        return fault.for_ms

    def _end(self, number: int) -> None:
        undo = self._undo.pop(number, None)
        if undo is not None:
            self._note_end(number)
            kind = self._as_it_is(self.plan[number]).kind
            if kind in _LASTING:
                self._world.log_event("faults", f"{kind} ends (fault {number})")
            undo()

    def _note_end(self, number: int) -> None:
        story = self._world.story
        if story is not None:
            story.faults[number].end_us = self._world.now_us

    def _choose_for(self, kind: str, rng: random.Random) -> SimNode:
        if kind == "disk loss":
            return self._choose_disk(rng)
        if kind == CALM_STALLS:
            able = [node for node in self._world.brokers if self._can_be_done_without(node)]
            return rng.choice(able or self._world.brokers)
        if kind == DIRECTORY_FAILURE:
            return rng.choice(self._world.brokers)
        followers = [node for node in self._world.brokers if not node.is_controller]
        return rng.choice(followers) if kind == "starvation" and followers else self._choose(rng)

    def _can_be_done_without(self, node: SimNode) -> bool:
        """Whether the other controllers continue under the same leader."""
        return node not in self._world.active and self._world.voter_watch.may_lose_disk(node)

    def _choose(self, rng: random.Random) -> SimNode:
        world = self._world
        active = world.active
        chance = rng.random()
        if active and chance < 0.4:
            return rng.choice(active)
        if chance < 0.7:
            return rng.choice(world.brokers)
        return rng.choice(list(world.nodes.values()))

    def _choose_disk(self, rng: random.Random) -> SimNode:
        """Mostly a controller's, if the quorum can lose one."""
        nodes = list(self._world.nodes.values())
        able = [node for node in nodes if self._world.voter_watch.may_lose_disk(node)]
        controllers = [node for node in able if node.is_controller]
        return rng.choice(controllers if controllers and rng.random() < 0.8 else able or nodes)

    def _carry_out(self, fault: Fault, rng: random.Random, victim: SimNode) -> Undo | None:
        ids = list(self._world.nodes)
        others = rng.sample(ids, rng.randrange(1, len(ids) + 1))
        match fault.kind:
            case "kill" | "power loss" if victim.alive:
                victim.kill(power_loss=fault.kind == "power loss")
                return victim.start
            case "power loss of all":
                return self._power_loss_of_all(rng)
            case "disk fault" if victim.alive:
                return self._fail_disk(rng, victim)
            case kind if kind in transaction_faults.KINDS:
                return self._world.transaction_faults.begin(kind, fault.number, rng)
            case kind if kind == DIRECTORY_FAILURE and victim.is_broker and victim.may_mend:
                return victim.fail_directory(rng)
            case "death in a disk call" if victim.alive:
                number = rng.choice((1, 2, 3, 5, 10))
                part = rng.choice(("", "", ".log", "quorum-state", ".checkpoint"))
                victim.disk.die_in_call(number, part, power_loss=rng.random() < 0.6)
                return victim.disk.live_on
            case "pause" if victim.runs:
                return self._pause(victim)
            case "isolation":
                return self._cut(fault, [(victim.id, id) for id in ids] + [(id, victim.id) for id in ids])
            case "cut out":
                return self._cut(fault, [(victim.id, id) for id in others])
            case "cut in":
                return self._cut(fault, [(id, victim.id) for id in others])
            case "flapping cut":
                return self._flap(fault, rng, [(victim.id, id) for id in others])
            case "bad network":
                chances = (rng.choice((0.02, 0.1, 0.3)), rng.choice((0.0, 0.1)), rng.choice((0.0, 0.1, 0.3)))
                return self._corrupt(fault, chances)
            case "clock rate":
                return self._skew(rng, victim)
            case kind if "lease race" in kind:
                return self._race(fault, rng)
            case "starvation" if not victim.is_controller:
                return Starvation(self._world, victim).end
            case "undisturbed stalls" if victim.alive and self._can_be_done_without(victim):
                return StallingController(self._world, rng, victim).end
            case "wall clock jump":
                victim.clock.jump_wall(rng.choice((-3_600_000, -5000, 5000, 3_600_000)))
                return _nothing
            case "graceful restart" if victim.runs:
                return self._restart(victim)
            case "rot" | "bad sector" if victim.is_broker:
                return self._damage(rng, victim, rots=fault.kind == "rot")
            case "stalled replication" if victim.is_broker:
                peers = rng.sample(self._world.brokers, rng.randrange(1, len(self._world.brokers) + 1))
                return self._stall(fault, rng, victim, peers)
            case "disk loss" if self._world.voter_watch.may_lose_disk(victim) and victim.may_lose_tail:
                self._world.voter_watch.lose_disk(victim, rng, fault.for_ms)
                return _nothing
        return None

    def _power_loss_of_all(self, rng: random.Random) -> Undo:
        nodes = list(self._world.nodes.values())
        for node in nodes:
            node.kill(power_loss=True)

        def undo() -> None:
            for node in nodes:
                self._world.later(rng.randrange(500), node.start)

        return undo

    def _fail_disk(self, rng: random.Random, victim: SimNode) -> Undo:
        operation, number = rng.choice(
            (
                ("flush", errno.EIO),
                ("append", errno.ENOSPC),
                ("append", errno.EIO),
                ("write_atomic", errno.EIO),
            )
        )
        victim.disk.inject(operation, number)
        return _nothing

    def _pause(self, victim: SimNode) -> Undo:
        process = victim.process
        assert process is not None
        process.pause()

        def undo() -> None:
            process.resume(self._world.loop)

        return undo

    def _cut(self, fault: Fault, pairs: list[tuple[int, int]]) -> Undo:
        self._cuts[fault.number] = {(a, b) for a, b in pairs if a != b}
        self._join_cuts()

        def undo() -> None:
            self._cuts.pop(fault.number, None)
            self._join_cuts()

        return undo

    def _join_cuts(self) -> None:
        self._world.links.cuts = set().union(*self._cuts.values())

    def _stall(self, fault: Fault, rng: random.Random, victim: SimNode, peers: list[SimNode]) -> Undo:
        """Fetches of these brokers, or the responses, are lost; everything else passes."""
        pairs = [(victim.id, peer.id) for peer in peers if peer is not victim]
        if rng.random() < 0.5:
            pairs = [(b, a) for a, b in pairs]
        self._stalls[fault.number] = set(pairs)
        self._join_stalls()

        def undo() -> None:
            self._stalls.pop(fault.number, None)
            self._join_stalls()

        return undo

    def _join_stalls(self) -> None:
        self._world.loop.streams.stalled = set().union(*self._stalls.values())

    def _damage(self, rng: random.Random, victim: SimNode, *, rots: bool) -> Undo:
        """A machine loses power; afterwards some flushed bytes of a log have changed or cannot be read."""
        victim.kill(power_loss=True)
        found = [one for one in victim.disk.flushed_logs() if self._may_damage(victim, one[0])]
        if not found:
            return victim.start
        path, size_bytes = rng.choice(found)
        position = rng.randrange(size_bytes)
        replica = victim.disk.replica_of(path)
        if replica is not None:
            self._world.checker.data.copy_lost(victim.id, *replica)
        if rots:
            victim.disk.flip_bit(path, position, rng.randrange(8))
        else:
            victim.disk.make_unreadable(path, position // 512 * 512)
        self._world.log_event(victim.id, f"its disk is damaged: {path}, byte {position}")
        return victim.start

    def _may_damage(self, victim: SimNode, path: str) -> bool:
        replica = victim.disk.replica_of(path)
        options = self._world.options
        if replica is None or not (options.spares_tails or options.keeps_tails):
            return True
        if options.keeps_tails:
            return False
        return self._world.checker.data.may_lose_copy(victim.id, *replica)

    def _flap(self, fault: Fault, rng: random.Random, pairs: list[tuple[int, int]]) -> Undo:
        flapping = True

        def turn() -> None:
            if not flapping:
                return
            if fault.number in self._cuts:
                del self._cuts[fault.number]
                self._join_cuts()
            else:
                self._cut(fault, pairs)
            self._world.later(rng.choice((20, 200, 900)), turn)

        def undo() -> None:
            nonlocal flapping
            flapping = False
            self._cuts.pop(fault.number, None)
            self._join_cuts()

        turn()
        return undo

    def _corrupt(self, fault: Fault, chances: tuple[float, float, float]) -> Undo:
        self._bad_network[fault.number] = chances
        self._mix_networks()

        def undo() -> None:
            self._bad_network.pop(fault.number, None)
            self._mix_networks()

        return undo

    def _mix_networks(self) -> None:
        links, worst = self._world.links, [(0.0, 0.0, 0.0), *self._bad_network.values()]
        links.drop, links.duplicate, links.straggle = (max(column) for column in zip(*worst, strict=True))

    def _skew(self, rng: random.Random, victim: SimNode) -> Undo:
        victim.set_clock_error(MAX_CLOCK_ERROR * rng.choice((-1.0, -0.5, 0.5, 1.0)))

        def undo() -> None:
            victim.set_clock_error(0.0)

        return undo

    def _race(self, fault: Fault, rng: random.Random) -> Undo | None:
        world = self._world
        able = racers(world)
        if not able:
            return None
        victim = rng.choice(able)
        may_pause = fault.kind != CALM_RACE and world.active
        paused = rng.choice(world.active) if may_pause and rng.random() < 0.5 else None
        pairs = [(victim.id, id) for id in world.nodes]
        world.log_event(victim.id, "is to be cut off just when it has a lease")
        race = LeaseRace(world, rng, victim, paused, lambda: self._cut(fault, pairs))

        def undo() -> None:
            race.end()
            self._cuts.pop(fault.number, None)
            self._join_cuts()

        return undo

    def _restart(self, victim: SimNode) -> Undo:
        process = victim.process
        victim.stop()

        def undo() -> None:
            if victim.process is process:
                victim.kill(power_loss=False)  # nothing, if it has ended by now
                victim.start()

        return undo


def _nothing() -> None:
    """A fault of this kind ends by itself."""
