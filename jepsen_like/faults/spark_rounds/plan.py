"""The plan of a round for the streaming queries and their topics, drawn from a seed.

What happens to the brokers meanwhile is the business of :mod:`pykraft.jepsen_like.faults.nemeses`.
"""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MOST_PARTITIONS: Final = 10
"""Each is a task of every micro-batch: more would only make the run slower."""


class FaultKind(StrEnum):
    KILL_DRIVER = "kill -9 of the driver, its JVM and its workers"
    KILL_PYTHON = "kill -9 of the driver's Python alone; its JVM goes on"
    STALL_DRIVER = "driver stalled as a whole; it goes on beside the next one"
    KILL_WORKERS = "kill -9 of a worker, or of all, alone"
    MOVE = "partition moved"
    GROW = "partition added to the source"


_ENDS_DRIVER: Final = (FaultKind.KILL_DRIVER, FaultKind.KILL_PYTHON, FaultKind.STALL_DRIVER)


@dataclass(frozen=True, slots=True)
class Fault:
    """``rest_s``: before it. ``stall_s``: of a stalled driver. ``draw``: the seed of later choices."""

    kind: FaultKind
    rest_s: float
    stall_s: float
    draw: int


def plan_round(seed: int, number: int, time_limit_s: float) -> list[Fault]:
    """More faults than fit. Three rounds in a row end the driver in each of the three ways; every round
    begins with that, workers killed, a partition moved and one added, in any order."""
    rng = random.Random(f"{seed}/{number}")
    ending = _ENDS_DRIVER[(seed + number) % len(_ENDS_DRIVER)]
    kinds = [ending, FaultKind.KILL_WORKERS, FaultKind.MOVE, FaultKind.GROW]
    rng.shuffle(kinds)
    weights = {
        FaultKind.KILL_DRIVER: 3,
        FaultKind.KILL_PYTHON: 2,
        FaultKind.STALL_DRIVER: 2,
        FaultKind.KILL_WORKERS: 4,
        FaultKind.MOVE: 5,
    }
    kinds += rng.choices(list(weights), weights=list(weights.values()), k=int(time_limit_s) + 1)
    return [_fault(rng, kind) for kind in kinds]


def _fault(rng: random.Random, kind: FaultKind) -> Fault:
    """A driver needs some 8 s to start: many are killed on their way."""
    rest_s = rng.uniform(0.3, 6) if kind in _ENDS_DRIVER else rng.uniform(0.3, 2.5)
    return Fault(kind, rest_s, rng.uniform(1, 6), rng.randrange(1 << 30))
