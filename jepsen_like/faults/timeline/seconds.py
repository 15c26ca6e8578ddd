"""Seconds of a run, in which a timeline adds up what happened."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

US_PER_S: Final = 1_000_000
LONGEST_S: Final = 30 * 24 * 3600
"""A history that claims to be longer is not believed: there is a number for each of its seconds."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of ``count`` numbers, in the unit of what was measured. Each is one of the numbers."""

    count: int
    p50: float
    p99: float
    max: float


def second_of(time_us: int) -> int:
    """In which second of the run a moment is."""
    return max(0, time_us // US_PER_S)


def percentiles(numbers: Sequence[float]) -> Percentiles | None:
    """By nearest rank; None if there are no numbers."""
    if not numbers:
        return None
    ordered = sorted(numbers)
    return Percentiles(len(ordered), _rank(ordered, 0.5), _rank(ordered, 0.99), ordered[-1])


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[math.ceil(share * len(ordered)) - 1]
