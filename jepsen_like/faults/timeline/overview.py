"""One pass over a whole history, before its timeline can be drawn."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pykraft.jepsen_like.faults.history import OBSERVER, Event, HistoryError
from pykraft.jepsen_like.faults.timeline.faults import FaultCollector, FaultSpan
from pykraft.jepsen_like.faults.timeline.seconds import LONGEST_S, second_of

RUNNER: Final = "runner"
ACKS_ALL: Final = -1
FAULTS_BEGIN: Final = "faults-begin"
FAULTS_END: Final = "faults-end"
IN_SYNC: Final = "in-sync"
LEADERLESS: Final = "leaderless"
MARKS: Final = frozenset({FAULTS_BEGIN, FAULTS_END, IN_SYNC, LEADERLESS})
TRANSACTION_ENDS: Final = frozenset({"txn-init", "txn-commit", "txn-abort"})
READS: Final = frozenset({"poll", "final"})
"""Recorded when they have found something, and waiting is what they are for: they say nothing about
availability."""

Changes = Sequence[tuple[int, str]]
"""Who leads, from when on (microseconds); ``-1``: nobody."""


@dataclass(slots=True)
class Overview:
    """``settings``: those of the run, as the runner recorded them. ``end_us``: the time of the last event.

    ``outcomes``: how many events of each (op, type). ``marks``: the runner's own events by name, the last of
    each. ``acks``: what each producer asks for. ``leaders`` by partition.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[FaultSpan, ...] = ()
    end_us: int = 0
    records_read: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    marks: dict[str, Event] = field(default_factory=dict)
    acks: dict[str, int] = field(default_factory=dict)
    leaders: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    @property
    def events(self) -> int:
        return self.outcomes.total()

    @property
    def waited_on(self) -> frozenset[str]:
        """The operations by which availability is judged.

        Sends, but of transactions their beginnings and ends: a send of one is acknowledged by its commit,
        before which a client may rest. Without either, every operation whose invocation was recorded, except
        reads.
        """
        if self.outcomes["txn-commit", "invoke"]:
            return TRANSACTION_ENDS
        if self.outcomes["send", "invoke"]:
            return frozenset({"send"})
        return frozenset(op for op, kind in self.outcomes if kind == "invoke" and op not in READS)

    @property
    def place_name(self) -> str:
        """Name the kind of place that clients wait for: see ``operations.place``."""
        names = {frozenset({"send"}): "partition", TRANSACTION_ENDS: "client"}
        return names.get(self.waited_on, "key")

    def mark_us(self, name: str) -> int | None:
        """When the runner came to this point; None if the history does not say."""
        mark = self.marks.get(name)
        return None if mark is None else mark.time_us


class Surveyor:
    """Makes an overview of a history, event by event."""

    def __init__(self) -> None:
        self._overview = Overview()
        self._faults = FaultCollector()

    def add(self, event: Event) -> None:
        overview = self._overview
        overview.outcomes[event.op, event.type] += 1
        if event.time_us > overview.end_us:
            overview.end_us = event.time_us
        if event.records is not None:
            overview.records_read += len(event.records)
        if event.type == "info":
            _note(overview, event)
        self._faults.add(event)

    def result(self) -> Overview:
        """The overview so far. :class:`.history.HistoryError` if the history is too long for any run."""
        overview = self._overview
        if second_of(overview.end_us) > LONGEST_S:
            raise HistoryError(f"an event after {second_of(overview.end_us):,} s: no run is that long")
        overview.faults = self._faults.result()
        return overview


def survey(events: Iterable[Event]) -> Overview:
    """One pass. :class:`~pykraft.jepsen_like.faults.history.HistoryError` as :meth:`Surveyor.result`."""
    surveyor = Surveyor()
    for event in events:
        surveyor.add(event)
    return surveyor.result()


def _note(overview: Overview, event: Event) -> None:
    detail = event.detail or {}
    if event.process == OBSERVER and event.value is not None:
        if event.op == "leader" and event.key is not None:
            overview.leaders.setdefault(event.key, []).append((event.time_us, event.value))
    elif event.process == RUNNER:
        if event.op == "run":
            overview.settings = detail
        elif event.op in MARKS:
            overview.marks[event.op] = event
    elif event.op == "producer":
        acks = detail.get("acks", ACKS_ALL)
        overview.acks[event.process] = acks if isinstance(acks, int) else ACKS_ALL
