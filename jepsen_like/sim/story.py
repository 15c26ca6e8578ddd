"""What happened in one simulated schedule, for people: a line for each thing, with its time and its place.

Ring 1 runs on PyPy as well: only the standard library is imported here.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

_US_PER_S = 1_000_000


class _Line(NamedTuple):
    at_us: int
    who: str
    what: str


class Story:
    """``has_messages``: every message between nodes is told, too.

    ``preface``: what the schedule is like, before anything happens. What happens often, such as a write that
    is acknowledged, is counted and told once a second.
    """

    def __init__(self, *, has_messages: bool = False) -> None:
        self.has_messages = has_messages
        self.preface: list[str] = []
        self._told: list[_Line] = []
        self._counted: dict[tuple[int, str], Counter[str]] = {}

    def tell(self, at_us: int, who: str, what: str) -> None:
        """``who``: a node, or another part of the world."""
        self._told.append(_Line(at_us, who, what))

    def count(self, at_us: int, who: str, what: str, times: int = 1) -> None:
        """It is one of many of its kind."""
        self._counted.setdefault((at_us // _US_PER_S, who), Counter())[what] += times

    def lines(self, newest: int | None = None) -> list[str]:
        """In the order of time, below a heading; only the ``newest`` lines if that many are wanted."""
        counted = [
            _Line((second + 1) * _US_PER_S, who, f"in this second: {_list(counts)}")
            for (second, who), counts in self._counted.items()
        ]
        told = sorted([*self._told, *counted], key=lambda line: line.at_us)
        shown = told if newest is None else told[max(len(told) - newest, 0) :]
        width = max((len(line.who) for line in shown), default=0)
        heading = [*self.preface, f"{'seconds':>10}  {'where':<{width}}  what happened"]
        if len(shown) < len(told):
            heading.append(f"{'...':>10}  {'':<{width}}  {len(told) - len(shown)} earlier lines are left out")
        return [
            *heading,
            *(f"{line.at_us / _US_PER_S:10.3f}  {line.who:<{width}}  {line.what}" for line in shown),
        ]


def _list(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
