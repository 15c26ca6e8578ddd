"""The faults of a history, each with its beginning and its repair, and the phases of its plan."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pykraft.jepsen_like.faults.history import NEMESIS, REPAIRED, Event, is_fault
from pykraft.jepsen_like.faults.nemeses.fault import Plan
from pykraft.jepsen_like.faults.timeline.seconds import US_PER_S

_TOLD_OTHERWISE: Final = frozenset({"number", "target", "for_s"})


@dataclass(frozen=True, slots=True)
class FaultSpan:
    """One fault as it was. ``number`` is its place in the plan, -1 if the history does not say.

    ``victims``: the nodes. ``planned_s``: how long it was to last. ``repaired_us``: None if the history ends
    before. ``settings``: those of its kind.
    """

    number: int
    kind: str
    target: str
    victims: tuple[str, ...]
    begin_us: int
    repaired_us: int | None
    planned_s: float
    settings: Mapping[str, Any]

    def in_force(self, begin_us: int, end_us: int) -> bool:
        """Whether it was for any part of this time."""
        return self.begin_us <= end_us and (self.repaired_us is None or begin_us <= self.repaired_us)

    def __str__(self) -> str:
        return " ".join((self.kind, ",".join(self.victims))).rstrip()


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """A part of a run: ``many``, ``few`` or ``none`` (faults of the plan), or what the runner does."""

    name: str
    begin_us: int
    end_us: int


class FaultCollector:
    """Collects the faults of a history, event by event."""

    def __init__(self) -> None:
        self._begun: list[Event] = []
        self._repaired: dict[tuple[int, str], int] = {}

    def add(self, event: Event) -> None:
        if is_fault(event):
            self._begun.append(event)
        elif event.process == NEMESIS and event.op == REPAIRED:
            detail = event.detail or {}
            self._repaired.setdefault((_number(detail), str(detail.get("kind"))), event.time_us)

    def result(self) -> tuple[FaultSpan, ...]:
        """In the order of their beginnings."""
        return tuple(self._span(event) for event in sorted(self._begun, key=lambda event: event.time_us))

    def _span(self, event: Event) -> FaultSpan:
        detail = event.detail or {}
        number, planned_s = _number(detail), detail.get("for_s")
        return FaultSpan(
            number=number,
            kind=event.op,
            target=str(detail.get("target", "")),
            victims=tuple(filter(None, (event.value or "").split(","))),
            begin_us=event.time_us,
            repaired_us=self._repaired.get((number, event.op)) if number >= 0 else None,
            planned_s=float(planned_s) if isinstance(planned_s, (int, float)) else 0.0,
            settings={name: value for name, value in detail.items() if name not in _TOLD_OTHERWISE},
        )


def faults_of(events: Iterable[Event]) -> tuple[FaultSpan, ...]:
    """All faults of a history, in the order of their beginnings."""
    collector = FaultCollector()
    for event in events:
        collector.add(event)
    return collector.result()


def planned_phases(
    plan: Plan, faults: Sequence[FaultSpan], faults_begin_us: int | None
) -> tuple[PhaseSpan, ...]:
    """The phases of a plan on the clock of the history.

    ``faults_begin_us``: when the nemesis began. If the history does not say, it is concluded from the faults,
    none of which begins before it is due.
    """
    if not plan.phases:
        return ()
    due_us = {fault.number: round(fault.at_s * US_PER_S) for fault in plan.faults}
    zero_us = faults_begin_us
    if zero_us is None:
        delays = [span.begin_us - due_us[span.number] for span in faults if span.number in due_us]
        if not delays:
            return ()
        zero_us = min(delays)
    starts_s = [phase.start_s for phase in plan.phases]
    return tuple(
        PhaseSpan(
            phase.intensity.value,
            zero_us + round(phase.start_s * US_PER_S),
            zero_us + round(end_s * US_PER_S),
        )
        for phase, end_s in zip(plan.phases, [*starts_s[1:], plan.time_limit_s], strict=True)
    )


def _number(detail: Mapping[str, Any]) -> int:
    number = detail.get("number")
    return number if isinstance(number, int) else -1
