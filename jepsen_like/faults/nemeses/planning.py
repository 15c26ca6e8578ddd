"""Draws the plan of a run from a seed: phases of many, few and no faults, and which fault when.

A pure function of its arguments. It is biased towards what finds bugs: the active controller, the broker that
leads most partitions, pauses just past the session timeout (a leader that does not know that it was deposed).
"""

import random
from collections.abc import Iterator, Sequence
from typing import Final

from pykraft.jepsen_like.faults.nemeses.fault import Fault, Intensity, Phase, Plan, Target
from pykraft.jepsen_like.faults.nemeses.kind import Kind, Timing

QUIET_START_S: Final = 1.5
QUIET_END_S: Final = 2.0
RECKLESS_SHARE: Final = 0.1
_PHASE_S: Final = {Intensity.NONE: (3.0, 6.0), Intensity.FEW: (12.0, 25.0), Intensity.MANY: (10.0, 20.0)}
_GAP_S: Final = {Intensity.FEW: (2.0, 4.5), Intensity.MANY: (0.4, 2.0)}


def plan_faults(
    seed: int, time_limit_s: float, kinds: Sequence[Kind], session_timeout_s: float = 3.0
) -> Plan:
    """All faults of ``time_limit_s`` seconds. In phases of few faults one ends before the next begins.

    If ``kill`` is among the kinds, a kill of the active controller and two of the busiest broker are among
    the first faults, so that leaderships change in any run that is long enough.
    """
    rng = random.Random(seed)
    phases = tuple(_phases(rng, time_limit_s))
    faults: list[Fault] = []
    if kinds:
        opening = _opening(rng, kinds)
        timing = Timing(session_timeout_s)
        weights = [kind.weight for kind in kinds]
        for phase, end_s in zip(phases, [*(p.start_s for p in phases[1:]), time_limit_s], strict=True):
            moments = _Moments(rng, phase, min(end_s, time_limit_s - QUIET_END_S))
            for at_s in moments:
                kind, target = opening.pop() if opening else (rng.choices(kinds, weights)[0], None)
                fault = _draw(rng, len(faults), kind, target, at_s, timing)
                if at_s + fault.lasts_s <= time_limit_s - QUIET_END_S:
                    faults.append(fault)
                    moments.taken_until(at_s + fault.lasts_s)
    return Plan(seed, time_limit_s, phases, tuple(faults))


def _phases(rng: random.Random, time_limit_s: float) -> Iterator[Phase]:
    """A run begins with faults, and two calm phases never meet."""
    start_s, before = 0.0, Intensity.NONE
    while start_s < time_limit_s:
        choices = [one for one in Intensity if one is not before]
        intensity = rng.choice(choices)
        yield Phase(intensity, round(start_s, 3))
        start_s += rng.uniform(*_PHASE_S[intensity])
        before = intensity


class _Moments:
    """Beginnings of faults in one phase; told how long each lasts, the next begins later where few are."""

    def __init__(self, rng: random.Random, phase: Phase, end_s: float) -> None:
        self._rng, self._phase, self._end_s = rng, phase, end_s
        self._next_s = max(phase.start_s, QUIET_START_S)

    def __iter__(self) -> Iterator[float]:
        if self._phase.intensity is Intensity.NONE:
            return
        while self._next_s < self._end_s:
            now_s = self._next_s
            self._next_s += self._rng.uniform(*_GAP_S[self._phase.intensity])
            yield now_s

    def taken_until(self, end_s: float) -> None:
        if self._phase.intensity is Intensity.FEW:
            self._next_s = max(self._next_s, end_s + self._rng.uniform(*_GAP_S[Intensity.FEW]) / 3)


def _opening(rng: random.Random, kinds: Sequence[Kind]) -> list[tuple[Kind, Target | None]]:
    kills = [kind for kind in kinds if kind.name == "kill"]
    if not kills:
        return []
    first: list[tuple[Kind, Target | None]] = [
        (kills[0], Target.CONTROLLER),
        (kills[0], Target.BUSIEST),
        (kills[0], Target.BUSIEST),
    ]
    first += [(rng.choice(kinds), None) for _ in range(2)]
    rng.shuffle(first)
    return first


def _draw(
    rng: random.Random, number: int, kind: Kind, target: Target | None, at_s: float, timing: Timing
) -> Fault:
    if target is None:
        target = rng.choices(list(kind.targets), list(kind.targets.values()))[0]
    lasts_s = round(kind.lasts_s(rng, timing), 3)
    settings = dict(kind.settings(rng))
    reckless = rng.random() < RECKLESS_SHARE
    return Fault(number, kind.name, target, round(at_s, 3), lasts_s, rng.random(), reckless, settings)
