"""Checks that registers are linearizable, and that an allocator gives out each id once.

``register`` declares one: its writes are ``commit``, each of which the client sends once and never repeats,
and its reads are ``committed``, which begin at ``detail.asked_us``. What is written and found is value and
offset together. ``allocate`` is an id as a client was told it; one that nobody was told is not missed.
"""

from collections.abc import Iterable

from pykraft.jepsen_like.faults.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.faults.checkers.linear_models import REGISTER, Read, Write, without_unread
from pykraft.jepsen_like.faults.checkers.linearizable import DEFAULT_BUDGET, Operation, Verdict, judge
from pykraft.jepsen_like.faults.history import Event

Action = Write | Read


class _History:
    """The operations on one register. Those that certainly failed are none."""

    def __init__(self) -> None:
        self._answered: list[Operation[Action]] = []
        self._open: dict[tuple[str, str | None], Event] = {}

    def add(self, event: Event) -> None:
        if event.op == "committed":
            if event.type == "ok":
                asked_us = (event.detail or {}).get("asked_us", event.time_us)
                action = Read(None if event.value is None else _written(event))
                self._answered.append(Operation(action, asked_us, event.time_us))
        elif event.type == "invoke":
            self._open[event.process, event.value] = event
        elif event.type == "ok":
            asked = self._open.pop((event.process, event.value))
            self._answered.append(Operation(Write(_written(asked)), asked.time_us, event.time_us))
        elif event.type == "fail":
            del self._open[event.process, event.value]

    @property
    def operations(self) -> list[Operation[Action]]:
        unknown: list[Operation[Action]] = [
            Operation(Write(_written(asked)), asked.time_us, None) for asked in self._open.values()
        ]
        return without_unread([*self._answered, *unknown])


def check_linearizable(events: Iterable[Event], findings: Findings, budget: int = DEFAULT_BUDGET) -> int:
    """The number of registers for which ``budget`` configurations did not suffice to tell."""
    registers: dict[str, _History] = {}
    for event in events:
        if event.op == "register" and event.key is not None:
            registers.setdefault(event.key, _History())
        elif event.op in ("commit", "committed") and event.key in registers:
            registers[event.key].add(event)
    undecided = 0
    for key, history in sorted(registers.items()):
        judgement = judge(history.operations, REGISTER, budget)
        undecided += judgement.verdict is Verdict.UNDECIDED
        if judgement.stuck is not None:
            findings.add(Anomaly.NONLINEARIZABLE, key, f"no order explains {_told(judgement.stuck)}")
    return undecided


def check_ids(events: Iterable[Event], findings: Findings) -> None:
    """No id is given out twice."""
    given: dict[tuple[str, str], Event] = {}
    for event in events:
        if event.op == "allocate" and event.type == "ok" and event.value is not None:
            first = given.setdefault((event.key or "", event.value), event)
            if first is not event:
                example = f"{event.value} was given to {first.process}, and again to {event.process}"
                findings.add(Anomaly.REPEATED_ID, event.key or "", example)


def _written(event: Event) -> str:
    return f"{event.value}@{event.offset}"


def _told(operation: Operation[Action]) -> str:
    what = "the write of" if isinstance(operation.action, Write) else "that what was found is"
    times = f"from {operation.invoked_us} to {operation.answered_us} us"
    return f"{what} {operation.action.value or 'nothing'}, {times}"
