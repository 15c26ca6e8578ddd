"""The traffic of one broker over the last minutes, for the charts of the overview.

A sample is a handful of plain counters, taken every two seconds whether or not somebody looks: a chart that
begins to be drawn when one looks shows nothing of what led to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

from pykraft.runtime.loop_stalls import Timer

PERIOD_S: Final = 2.0
_SAMPLES: Final = 151


class Counters(NamedTuple):
    """Since the start of the process."""

    bytes_in: int
    bytes_out: int
    messages_in: int
    requests: int


class TrafficSamples:
    """``read``: the counters now, None while there is no broker; ``now_ms`` is monotonic."""

    def __init__(
        self,
        read: Callable[[], Counters | None],
        call_later: Callable[[float, Callable[[], None]], Timer],
        now_ms: Callable[[], int],
    ) -> None:
        self._read = read
        self._call_later = call_later
        self._now_ms = now_ms
        self._samples: deque[tuple[int, Counters]] = deque(maxlen=_SAMPLES)
        self._timer: Timer | None = None

    def start(self) -> None:
        counters = self._read()
        if counters is not None:
            self._samples.append((self._now_ms(), counters))
        self._timer = self._call_later(PERIOD_S, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def rates(self) -> dict[str, object]:
        """Rates per second between samples, oldest first. ``ago_s``: the age, seen from the newest one."""
        pairs = list(pairwise(self._samples))
        newest_ms = self._samples[-1][0] if self._samples else 0
        seconds = [max(1, later - earlier) / 1000 for (earlier, _), (later, _) in pairs]
        rates: dict[str, object] = {
            "period_s": PERIOD_S,
            "ago_s": [round((newest_ms - later) / 1000, 1) for _, (later, _) in pairs],
        }
        for place, name in enumerate(Counters._fields):
            rates[name] = [
                round(max(0, later[place] - earlier[place]) / length_s, 2)
                for ((_, earlier), (_, later)), length_s in zip(pairs, seconds, strict=True)
            ]
        return rates
