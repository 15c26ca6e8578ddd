"""Time to recover of every fault, of every kind of fault, and of moments at which nothing was broken."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Final

from pykraft.jepsen_like.faults.timeline.availability import Window
from pykraft.jepsen_like.faults.timeline.faults import FaultSpan
from pykraft.jepsen_like.faults.timeline.recovery import Recovered, Recovery
from pykraft.jepsen_like.faults.timeline.seconds import US_PER_S, Percentiles, percentiles

_MOST_CALM_MOMENTS: Final = 2_000


@dataclass(frozen=True, slots=True)
class FaultRecovery:
    """``recovery_s`` from the beginning of a fault, ``after_repair_s`` from its repair: see ``recovery``.
    None if no place counts, or if it was not recovered from before the history ends; ``missing`` names the
    places that had not.

    Some faults strike later than they begin, or several times. If unavailability (see ``availability``) began
    while the fault was in force, ``recovery_s`` is not less than the time until the last of it had ended.

    ``alone``: from its beginning until it was repaired and recovered from, no other fault was in force or not
    yet recovered from. The recovery of a fault that was not alone is that of all of them together.
    """

    fault: FaultSpan
    recovery_s: float | None
    after_repair_s: float | None
    missing: tuple[str, ...]
    alone: bool


@dataclass(frozen=True, slots=True)
class KindRecovery:
    """Recovery from the faults of one kind, in seconds: from all, from lone ones, and from the repair on."""

    count: int
    alone: int
    not_recovered: int
    recovery_s: Percentiles | None
    alone_recovery_s: Percentiles | None
    after_repair_s: Percentiles | None


class FaultRecoveries:
    """Measures the recovery of all ``faults`` in one pass: tell :attr:`recovery` of the operations."""

    def __init__(self, faults: Sequence[FaultSpan], end_us: int) -> None:
        self._faults = faults
        step_us = max(US_PER_S, end_us // _MOST_CALM_MOMENTS)
        self._calm_us = range(step_us, end_us, step_us)
        repairs_us = [fault.repaired_us for fault in faults if fault.repaired_us is not None]
        self._moments_us = sorted({*(fault.begin_us for fault in faults), *repairs_us, *self._calm_us})
        self.recovery = Recovery(self._moments_us)

    def results(self, windows: Sequence[Window]) -> tuple[tuple[FaultRecovery, ...], Percentiles | None]:
        """Results for the faults, and for calm moments. When all operations have been told.

        ``windows``: all unavailability, ordered by its beginnings.
        """
        by_moment = dict(zip(self._moments_us, self.recovery.results(), strict=True))
        struck_us = [_struck_until_us(fault, windows) for fault in self._faults]
        spans = [
            (fault.begin_us, max(last_us, _over_us(fault, by_moment[fault.begin_us])))
            for fault, last_us in zip(self._faults, struck_us, strict=True)
        ]
        faults = tuple(
            _of_fault(fault, by_moment, last_us, is_alone)
            for fault, last_us, is_alone in zip(self._faults, struck_us, _alone(spans), strict=True)
        )
        return faults, percentiles(_calm(self._calm_us, by_moment, spans))


def by_kind(faults: Sequence[FaultRecovery]) -> dict[str, KindRecovery]:
    """The kinds in the order of their names."""
    kinds: dict[str, list[FaultRecovery]] = {}
    for one in faults:
        kinds.setdefault(one.fault.kind, []).append(one)
    return {
        kind: KindRecovery(
            count=len(ones),
            alone=sum(one.alone for one in ones),
            not_recovered=sum(bool(one.missing) for one in ones),
            recovery_s=percentiles([one.recovery_s for one in ones if one.recovery_s is not None]),
            alone_recovery_s=percentiles(
                [one.recovery_s for one in ones if one.recovery_s is not None and one.alone]
            ),
            after_repair_s=percentiles(
                [one.after_repair_s for one in ones if one.after_repair_s is not None]
            ),
        )
        for kind, ones in sorted(kinds.items())
    }


def _struck_until_us(fault: FaultSpan, windows: Sequence[Window]) -> int:
    """The end of the last unavailability that began during the fault; its beginning if none did."""
    first = bisect_left(windows, fault.begin_us, key=lambda window: window.begin_us)
    begun = takewhile(lambda window: fault.in_force(window.begin_us, window.begin_us), windows[first:])
    return max((window.end_us for window in begun), default=fault.begin_us)


def slowest(faults: Sequence[FaultRecovery], most: int) -> list[FaultRecovery]:
    """Those that took longest to recover from, at most so many, in the order of their beginnings."""
    by_time = sorted(faults, key=lambda one: float("inf") if one.missing else one.recovery_s or 0.0)
    return sorted(by_time[-most:], key=lambda one: one.fault.begin_us)


def _of_fault(
    fault: FaultSpan, by_moment: Mapping[int, Recovered], struck_until_us: int, is_alone: bool
) -> FaultRecovery:
    begun_s = _seconds(by_moment[fault.begin_us])
    struck_s = (struck_until_us - fault.begin_us) / US_PER_S
    repaired = None if fault.repaired_us is None else by_moment[fault.repaired_us]
    return FaultRecovery(
        fault,
        None if begun_s is None else max(begun_s, struck_s),
        None if repaired is None else _seconds(repaired),
        tuple(by_moment[fault.begin_us].missing),
        is_alone,
    )


def _seconds(recovered: Recovered) -> float | None:
    if recovered.missing or recovered.waited_us is None:
        return None
    return recovered.waited_us / US_PER_S


def _over_us(fault: FaultSpan, begun: Recovered) -> float:
    """When it was repaired and recovered from."""
    if fault.repaired_us is None or begun.missing:
        return float("inf")
    return max(fault.repaired_us, begun.at_us)


def _alone(spans: Sequence[tuple[int, float]]) -> list[bool]:
    """Whether each span meets no other one; they are ordered by their beginnings."""
    over = list(accumulate((end_us for _, end_us in spans), max))
    return [
        (n == 0 or over[n - 1] < begin_us) and (n + 1 == len(spans) or end_us < spans[n + 1][0])
        for n, (begin_us, end_us) in enumerate(spans)
    ]


def _calm(
    moments_us: Sequence[int], by_moment: Mapping[int, Recovered], spans: Sequence[tuple[int, float]]
) -> list[float]:
    """In seconds, of the moments from which nothing was broken until they were over."""
    found, over_us, following = [], -1.0, 0
    for moment_us in moments_us:
        while following < len(spans) and spans[following][0] <= moment_us:
            over_us = max(over_us, spans[following][1])
            following += 1
        recovered = by_moment[moment_us]
        waited_s = _seconds(recovered)
        next_us = spans[following][0] if following < len(spans) else float("inf")
        if waited_s is not None and over_us < moment_us and recovered.at_us < next_us:
            found.append(waited_s)
    return found
