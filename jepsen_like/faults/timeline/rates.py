"""Throughput and latency of every operation for each second, by the time of its outcome."""

from array import array
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import Final

from pykraft.jepsen_like.faults.timeline.seconds import Percentiles, percentiles, second_of

_LONGEST_US: Final = 2**32 - 1

Outcomes = Counter[int]


@dataclass(frozen=True, slots=True)
class OpRates:
    """One operation. ``ok``, ``failed`` and ``unknown``: how many for each second. ``latency_ms``: for each
    second those of the acknowledged ones, None if there were none; ``total_ms``: of all of them."""

    op: str
    ok: list[int]
    failed: list[int]
    unknown: list[int]
    latency_ms: list[Percentiles | None]
    total_ms: Percentiles | None

    @property
    def count(self) -> int:
        return sum(self.ok) + sum(self.failed) + sum(self.unknown)


class Rates:
    """Told of every operation that has an outcome. Keeps four bytes for each acknowledged one."""

    def __init__(self) -> None:
        self._outcomes: dict[tuple[str, str], Outcomes] = {}
        self._latencies_us: dict[str, dict[int, array[int]]] = {}

    def ended(self, op: str, kind: str, invoked_us: int, at_us: int) -> None:
        """``kind`` is the type of the event."""
        second = second_of(at_us)
        outcomes = self._outcomes.get((op, kind))
        if outcomes is None:
            outcomes = self._outcomes[op, kind] = Counter()
        outcomes[second] += 1
        if kind == "ok":
            of_op = self._latencies_us.setdefault(op, {})
            latencies = of_op.get(second)
            if latencies is None:
                latencies = of_op[second] = array("I")
            latencies.append(min(max(0, at_us - invoked_us), _LONGEST_US))

    def results(self, seconds: int) -> tuple[OpRates, ...]:
        """The rates of each operation in the order of their number, the most frequent first."""
        ops = {op for op, _ in self._outcomes}
        found = [self._of_op(op, seconds) for op in ops]
        return tuple(sorted(found, key=lambda rates: (-rates.count, rates.op)))

    def _of_op(self, op: str, seconds: int) -> OpRates:
        ok, failed, unknown = (
            [counts[second] for second in range(seconds)]
            for counts in (self._outcomes.get((op, kind), Counter()) for kind in ("ok", "fail", "info"))
        )
        of_op = self._latencies_us.get(op, {})
        latency_ms = [_in_ms(percentiles(of_op[s])) if s in of_op else None for s in range(seconds)]
        everything = array("I", chain.from_iterable(of_op.values()))
        return OpRates(op, ok, failed, unknown, latency_ms, _in_ms(percentiles(everything)))


def _in_ms(found: Percentiles | None) -> Percentiles | None:
    if found is None:
        return None
    return Percentiles(found.count, found.p50 / 1000, found.p99 / 1000, found.max / 1000)
