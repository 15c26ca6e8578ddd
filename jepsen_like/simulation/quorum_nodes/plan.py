"""A seed's plan for whole quorum nodes, drawn before the first event.

Each fault has its own source of chance, as in the plan of the cores (:mod:`.quorum.plan`); what it does to
whom is decided when it strikes (:mod:`.nemesis`).
"""

import random
from dataclasses import dataclass, replace
from typing import Final

from pykraft.jepsen_like.simulation.quorum.cluster import CONFIG
from pykraft.jepsen_like.simulation.quorum.options import ClusterOptions
from pykraft.jepsen_like.simulation.quorum.plan import Fault, draw_options
from pykraft.jepsen_like.simulation.schedule import Schedule
from pykraft.quorum.core import effects
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.effects import Effect

WEIGHTS: Final = {
    "kill": 2,
    "restart of a leader": 2,
    "lost power and a flipped bit": 1,
    "partition": 1,
    "cut out": 1,
    "cut in": 1,
    "heal": 2,
}
PARTS: Final = ("client", "loss", "repeats", "stragglers", "kills between effects")


@dataclass(frozen=True, slots=True)
class Plan:
    """``kill_chance``: the probability that a process dies right after an effect of this type."""

    options: ClusterOptions
    config: QuorumConfig
    segment_bytes: int
    drop: float
    duplicate: float
    straggle: float
    kill_chance: dict[type[Effect], float]
    faults: tuple[Fault, ...]


def draw_plan(schedule: Schedule) -> Plan:
    rng = random.Random(schedule.seed)
    options = draw_options(rng)
    segment_bytes = rng.choice((400, 2000, 1 << 20))
    config = replace(CONFIG, fetch_max_bytes=rng.choice((1000, 1 << 20)))
    drop = rng.choice((0.0, 0.0, 0.02)) * ("loss" not in schedule.without)
    duplicate = rng.choice((0.0, 0.05, 0.2)) * ("repeats" not in schedule.without)
    straggle = rng.choice((0.0, 0.02, 0.1)) * ("stragglers" not in schedule.without)
    chance = rng.choice((0.0, 0.0, 0.002, 0.002, 0.01)) * ("kills between effects" not in schedule.without)
    faults = _draw_faults(rng, schedule.seed, schedule.duration_ms)
    kept = tuple(fault for fault in faults if schedule.keeps(fault.number))
    return Plan(options, config, segment_bytes, drop, duplicate, straggle, _kill_chance(chance), kept)


def _kill_chance(chance: float) -> dict[type[Effect], float]:
    """Effects that are rare, or after which a death is dangerous, are hit more often."""
    return {
        effects.AppendFetched: chance,
        effects.AppendProposal: chance,
        effects.AppendLeaderChange: 4 * chance,
        effects.TruncateTo: 8 * chance,
        effects.PersistElectionState: 2 * chance,
        effects.FlushLog: chance,
        effects.Reply: chance / 4,
    }


def _draw_faults(rng: random.Random, seed: int, duration_ms: int) -> list[Fault]:
    gap_ms = rng.choice((50, 150, 400))
    faults: list[Fault] = []
    at_ms = gap_ms
    while at_ms < duration_ms:
        kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        number = len(faults)
        faults.append(Fault(number, at_ms, 0, kind, seed * 1_000_003 + number))
        at_ms += 1 + rng.randrange(2 * gap_ms)
    return faults


def planned(seed: int, duration_ms: int) -> int:
    return len(draw_plan(Schedule(seed, duration_ms)).faults)
