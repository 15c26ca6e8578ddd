"""The events of one simulated schedule, for people: a line for each event, with its time and its place.

Ring 1 runs on PyPy as well: only the standard library is imported here.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_US_PER_S = 1_000_000


class _Line(NamedTuple):
    at_us: int
    who: str
    what: str


@dataclass(slots=True)
class StoryFault:
    """``victim``: a node's name; empty if it is the whole cluster. ``end_us``: None while it is in force."""

    kind: str
    victim: str
    begin_us: int
    for_ms: int
    end_us: int | None = None


class Lead(NamedTuple):
    """``partition``: None of the controllers. ``leader``: a node, or -1."""

    at_us: int
    partition: str | None
    leader: int


class Story:
    """``has_messages``: every message between nodes is logged, too.

    ``preface``: the options of the schedule, before the first event. Frequent events, such as acknowledged
    writes, are counted and logged once a second. For a report in pictures are kept: the planned ``faults`` by
    number, and ``others`` that were counted beside them; and in ring 2 the number of ``nodes``, who ``leads``
    from when on, the clients' ``history`` and what its checkers found (``report``).
    """

    def __init__(self, *, has_messages: bool = False) -> None:
        self.has_messages = has_messages
        self.preface: list[str] = []
        self.faults: dict[int, StoryFault] = {}
        self.others: list[StoryFault] = []
        self.nodes = 0
        self.leads: list[Lead] = []
        self.history: Sequence[Any] = ()
        self.report: Any = None
        self._logged: list[_Line] = []
        self._counted: dict[tuple[int, str], Counter[str]] = {}

    def log(self, at_us: int, who: str, what: str) -> None:
        """``who``: a node, or another part of the world."""
        self._logged.append(_Line(at_us, who, what))

    def count(self, at_us: int, who: str, what: str, times: int = 1) -> None:
        """Count a frequent event."""
        self._counted.setdefault((at_us // _US_PER_S, who), Counter())[what] += times

    def lines(self, newest: int | None = None) -> list[str]:
        """The lines in the order of time, below a heading; at most the ``newest`` ones."""
        counted = [
            _Line((second + 1) * _US_PER_S, who, f"in this second: {_list(counts)}")
            for (second, who), counts in self._counted.items()
        ]
        logged = sorted([*self._logged, *counted], key=lambda line: line.at_us)
        shown = logged if newest is None else logged[max(len(logged) - newest, 0) :]
        width = max((len(line.who) for line in shown), default=0)
        heading = [*self.preface, f"{'seconds':>10}  {'where':<{width}}  what happened"]
        if len(shown) < len(logged):
            heading.append(
                f"{'...':>10}  {'':<{width}}  {len(logged) - len(shown)} earlier lines are left out"
            )
        return [
            *heading,
            *(f"{line.at_us / _US_PER_S:10.3f}  {line.who:<{width}}  {line.what}" for line in shown),
        ]


def _list(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
