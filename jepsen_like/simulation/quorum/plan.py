"""The faults that a seed plans for a simulated quorum, and their times, drawn before the first event.

A plan is a list of numbered faults, each with its time, its length and its own source of chance, so that
leaving one out does not change the others. Storms of faults alternate with calm times, in which the cluster
elects and commits. The victim is chosen when a fault strikes (:mod:`.nemesis`): often it is the leader.

Besides uniform faults there are aimed ones, because uniform chance hardly ever hits the critical windows: a
crash right after granting a vote, or between an append and its flush.
"""

import random
from dataclasses import dataclass, replace

from pykraft.jepsen_like.simulation.quorum.options import ClusterOptions
from pykraft.jepsen_like.simulation.quorum.upgrades import upgrades
from pykraft.jepsen_like.simulation.schedule import Schedule

# Kind → how often it is drawn when its seed draws it at all. "After", "in a" and "a new leader" are aimed.
WEIGHTS = {
    "crash": 3,
    "crash the leader": 2,
    "crash all": 1,
    "restart": 2,
    "pause": 2,
    "hand over": 1,
    "isolate": 2,
    "cut out": 2,
    "cut in": 2,
    "split": 2,
    "flapping cut": 2,
    "lossy links": 1,
    "repeating links": 1,
    "straggling links": 1,
    "slow disk": 1,
    "small fetches": 1,
    "clock ahead": 1,
    "clock rate": 1,
    "disk loss": 1,
    "damaged log": 2,
    "snapshot": 4,
    "add voter": 2,
    "remove voter": 2,
    "crash after a vote": 2,
    "crash after an append": 2,
    "crash between effects": 2,
    "crash a new leader": 2,
    "crash in a snapshot": 2,
}
# The shortest and longest duration of a fault, unless its storm ends before; all others are over at once.
LASTS_MS = {
    "isolate": (20, 800),
    "cut out": (20, 800),
    "cut in": (20, 800),
    "split": (20, 800),
    "flapping cut": (300, 1500),
    "lossy links": (100, 2000),
    "repeating links": (100, 2000),
    "straggling links": (100, 2000),
    "slow disk": (100, 1000),
    "small fetches": (100, 2000),
    "clock rate": (500, 3000),
    "crash after a vote": (300, 2000),
    "crash after an append": (100, 1000),
    "crash between effects": (100, 1000),
    "crash a new leader": (300, 1500),
    "crash in a snapshot": (300, 2000),
}
# Parts of the world that `without` may name, besides the kinds of faults, which are left out one by one.
PARTS = (
    "client",
    "stranger",
    "lasting faults",
    "loss",
    "repeats",
    "stragglers",
    "slow flushes",
    "long delays",
    "observers",
    "upgrade",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault. ``duration_ms`` 0: it is over at once."""

    number: int
    at_ms: int
    duration_ms: int
    kind: str
    seed: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is drawn before the first event.

    ``lasting``: after the faults a minority stays broken for a while. ``drop``, ``duplicate``,
    ``straggle``: what the links do all the time, besides what storms add.
    """

    options: ClusterOptions
    drop: float
    duplicate: float
    straggle: float
    leader_bias: float
    lasting: bool
    faults: tuple[Fault, ...]


def draw_options(rng: random.Random) -> ClusterOptions:
    return ClusterOptions(
        voters=rng.choice((3, 3, 3, 4, 5, 5)),
        observers=rng.choice((0, 0, 1, 2)),
        max_delay_ms=rng.choice((2, 5, 5, 20)),
        max_flush_ms=rng.choice((1, 4, 4, 20)),
        max_fetch_batches=rng.choice((1, 3, 1000, 1000)),
        proposal_gap_ms=rng.choice((5, 20, 60)),
        static_voters=rng.choice((False, False, True)),
        auto_join=rng.choice((False, True)),
        snapshot_piece_bytes=rng.choice((10_000, 50_000)),
    )


def draw_plan(schedule: Schedule) -> Plan:
    rng = random.Random(schedule.seed)
    without = schedule.without
    options = draw_options(rng)
    options = replace(options, voters_in_log=not options.static_voters)
    if options.static_voters and upgrades(schedule.seed) and "upgrade" not in without:
        options = replace(options, upgraded=True)
    if "observers" in without:
        options = replace(options, observers=0)
    if "long delays" in without:
        options = replace(options, max_delay_ms=1)
    if "slow flushes" in without:
        options = replace(options, max_flush_ms=1)
    drop = rng.choice((0.0, 0.0, 0.02, 0.1)) * ("loss" not in without)
    duplicate = rng.choice((0.0, 0.05, 0.2)) * ("repeats" not in without)
    straggle = rng.choice((0.0, 0.02, 0.1)) * ("stragglers" not in without)
    leader_bias = rng.choice((0.3, 0.7))
    lasting = rng.random() < 0.5 and "lasting faults" not in without
    faults = _draw_faults(rng, schedule.seed, schedule.duration_ms)
    kept = tuple(fault for fault in faults if schedule.keeps(fault.number))
    return Plan(options, drop, duplicate, straggle, leader_bias, lasting, kept)


def _draw_faults(rng: random.Random, seed: int, duration_ms: int) -> list[Fault]:
    """The weights of the kinds: each seed prefers some and omits others, so that all mixes differ."""
    kinds = list(WEIGHTS)
    weights = [WEIGHTS[kind] * rng.choice((0, 1, 1, 3)) for kind in kinds]
    weights[0] += 1
    gap_ms = rng.choice((40, 100, 250))
    faults: list[Fault] = []
    at_ms = 1 + rng.randrange(2 * gap_ms)
    storm_ends_ms = rng.choice((500, 2000, 5000))
    while at_ms < duration_ms:
        if at_ms >= storm_ends_ms:
            at_ms = storm_ends_ms + rng.choice((100, 500, 1500))
            storm_ends_ms = at_ms + rng.choice((300, 1000, 3000))
            continue
        kind = rng.choices(kinds, weights)[0]
        shortest_ms, longest_ms = LASTS_MS.get(kind, (0, 0))
        lasts_ms = shortest_ms + rng.randrange(longest_ms - shortest_ms + 1)
        lasts_ms = min(lasts_ms, storm_ends_ms - at_ms)
        number = len(faults)
        faults.append(Fault(number, at_ms, lasts_ms, kind, seed * 1_000_003 + number))
        at_ms += 1 + rng.randrange(2 * gap_ms)
    return faults


def planned(seed: int, duration_ms: int) -> int:
    return len(draw_plan(Schedule(seed, duration_ms)).faults)
