"""Axes of plots: from numbers to places on the paper, with ticks at round numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_LOWEST_MS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Scale:
    """``low`` is at ``from_px``, ``high`` at ``to_px``; what is outside is drawn at the edge."""

    low: float
    high: float
    from_px: float
    to_px: float
    logarithmic: bool = False

    def px(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.from_px + share * (self.to_px - self.from_px)


def round_ticks(high: float, most: int) -> list[float]:
    """At most ``most`` ticks from 0 to ``high`` or above, in steps of 1, 2 or 5 times a power of ten."""
    if high <= 0:
        return [0.0, 1.0]
    magnitude = 10.0 ** math.floor(math.log10(high / (most - 1)))
    step = next(s * magnitude for s in (1, 2, 5, 10) if math.ceil(high / (s * magnitude)) <= most - 1)
    return [round(n * step, 12) for n in range(math.ceil(high / step) + 1)]


def powers_of_ten(high: float) -> list[float]:
    """From 1 to the first that is not below ``high``, but at least 10."""
    top = max(1, math.ceil(math.log10(max(high, _LOWEST_MS))))
    return [10.0**n for n in range(top + 1)]


def time_ticks_s(end_s: float, most: int) -> list[int]:
    """From 0 on, at whole and round seconds, minutes or hours, none above ``end_s``."""
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200)
    days = 86400 * math.ceil(end_s / 86400 / (most - 1)) if end_s > 0 else 1
    step = next((s for s in steps if end_s / s <= most - 1), days)
    return list(range(0, math.floor(end_s) + 1, step))


def time_text(at_s: float) -> str:
    """``7 s``, ``2:05``, ``1:02:05``."""
    whole = round(at_s)
    if whole < 120:
        return f"{whole} s"
    minutes, seconds = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def milliseconds_text(value_ms: float) -> str:
    return f"{value_ms / 1000:g} s" if value_ms >= 1000 else f"{value_ms:g} ms"


def in_groups(values: Sequence[float | None], size: int) -> list[list[float]]:
    """Groups of ``size`` neighbours, without those that are None."""
    return [
        [value for value in values[first : first + size] if value is not None]
        for first in range(0, len(values), size)
    ]
