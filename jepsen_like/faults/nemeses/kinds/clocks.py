"""Faults of wall clocks: they jump, run too fast or too slowly, or jump to and fro. Monotonic ones do not."""

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import Kind, Repair, between, each
from pykraft.jepsen_like.faults.nemeses.kinds.shims import shims_of, why_no_shims
from pykraft.jepsen_like.faults.nemeses.kinds.turns import in_turns
from pykraft.jepsen_like.faults.surroundings.shim import Shim

_CLOCK: Final = frozenset({"clock"})
_TARGETS: Final = {
    Target.ANY: 3.0,
    Target.CONTROLLER: 3.0,
    Target.BUSIEST: 3.0,
    Target.MINORITY: 1.0,
    Target.MAJORITY: 1.0,
    Target.ALL: 0.5,
}


def _change(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    offset_ms, rate = fault.settings.get("offset_ms", 0.0), fault.settings.get("rate", 1.0)
    return _set(shims_of(cluster, victims), offset_ms, rate)


def _strobe(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    shims, half_s = shims_of(cluster, victims), fault.settings["period_ms"] / 2000
    return in_turns(lambda: _set(shims, fault.settings["offset_ms"]), half_s, half_s)


def _set(shims: Sequence[Shim], offset_ms: float, rate: float = 1.0) -> Repair:
    for shim in shims:
        shim.set_clock(offset_ms / 1000, rate)
    return each(Shim.heal_clock, shims)


def _draw_offset(rng: random.Random) -> Mapping[str, float]:
    """From 4 ms to 262 s, every order of magnitude alike, forward or back."""
    return {"offset_ms": round(rng.choice((-1, 1)) * 2 ** rng.uniform(2, 18), 3)}


_kind = partial(Kind, family="clock", targets=_TARGETS, claims=_CLOCK, why_unavailable=why_no_shims)

KINDS: Final = (
    _kind(
        "clock-jump",
        "the wall clock jumps forward or back by 4 ms to 262 s, and later back to the true time",
        _change,
        between(2.0, 12.0),
        settings=_draw_offset,
    ),
    _kind(
        "clock-rate",
        "the wall clock runs at half to double speed, and then jumps back to the true time",
        _change,
        between(4.0, 15.0),
        # From half to double.
        settings=lambda rng: {"rate": round(2 ** rng.uniform(-1, 1), 6)},
        weight=0.6,
    ),
    _kind(
        "clock-strobe",
        "the wall clock jumps to and fro, several times a second",
        _strobe,
        between(3.0, 10.0),
        settings=lambda rng: {**_draw_offset(rng), "period_ms": round(rng.uniform(50, 500))},
        weight=0.6,
    ),
)
