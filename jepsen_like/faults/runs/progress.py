"""The progress of a run: a line every ten seconds, and one for each fault.

Times at the beginning of a line are those of the history. ``pykraft jepsen watch`` shows more.
"""

import threading
from collections import Counter, deque
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console

from pykraft.jepsen_like.faults.history import NEMESIS, OBSERVER, REPAIRED, Event, is_fault
from pykraft.jepsen_like.faults.nemeses.fault import Plan
from pykraft.jepsen_like.faults.timeline.seconds import US_PER_S

LINE_EVERY_S: Final = 10.0
_TICK_S: Final = 1.0
_RATE_OVER_S: Final = 5.0
_NOBODY: Final = "-1"


class Counted(Protocol):
    """The part of a history that is needed here: its clock, and how much it holds."""

    @property
    def outcomes(self) -> Mapping[tuple[str, str], int]: ...

    def now_us(self) -> int: ...


class Progress:
    """The progress of one run, whose plan begins now. Use as a context manager. Told by several threads."""

    def __init__(self, console: Console, history: Counted, plan: Plan) -> None:
        self._console = console
        self._history = history
        self._plan = plan
        self._begin_s = self._now_s()
        self._stage: str | None = None
        self._lock = threading.Lock()
        self._in_force: dict[tuple[object, str], tuple[str, float]] = {}
        self._leaders: dict[str, str] = {}
        self._controller = _NOBODY
        self._samples: deque[tuple[float, int]] = deque([(self._begin_s, self._acknowledged())])
        self._line_due_s = self._begin_s + LINE_EVERY_S
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def say(self, what: str) -> None:
        """Something happened, in one line."""
        line = f"{self._now_s():6.1f} s  {what}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def enter(self, stage: str) -> None:
        """The faults are over; what the run does now."""
        self._stage = stage
        self.say(stage)

    def note(self, event: Event) -> None:
        """Note an event of the nemesis or the observer."""
        with self._lock:
            if event.process == NEMESIS:
                self._note_fault(event)
            elif event.process == OBSERVER and event.value is not None:
                if event.op == "controller":
                    self._controller = event.value
                elif event.key is not None:
                    self._leaders[event.key] = event.value

    def tick(self) -> None:
        """Some time has passed."""
        now_s = self._now_s()
        with self._lock:
            self._samples.append((now_s, self._acknowledged()))
            while len(self._samples) > 2 and self._samples[1][0] <= now_s - _RATE_OVER_S:
                self._samples.popleft()
        if now_s >= self._line_due_s:
            self._line_due_s = now_s + LINE_EVERY_S
            self.say(self.line())

    def line(self) -> str:
        """All of it in one line."""
        with self._lock:
            parts = [self._where(), self._counts(), f"in force: {self._faults()}", self._who()]
        return "; ".join(parts)

    def _run(self) -> None:
        while not self._stopping.wait(_TICK_S):
            self.tick()

    def _note_fault(self, event: Event) -> None:
        detail = event.detail or {}
        if is_fault(event):
            name = f"{event.op} {event.value or ''}".rstrip()
            self._in_force[detail.get("number"), event.op] = (name, event.time_us / US_PER_S)
        elif event.op == REPAIRED:
            self._in_force.pop((detail.get("number"), str(detail.get("kind"))), None)

    def _where(self) -> str:
        if self._stage is not None:
            return self._stage
        done_s = self._now_s() - self._begin_s
        if done_s > self._plan.time_limit_s:
            return "waits for the last repairs"
        return self._plan.where(done_s)

    def _counts(self) -> str:
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        per_s = (last - first) / (last_s - first_s) if last_s > first_s else 0.0
        return f"acknowledged {self._acknowledged():,}, {per_s:,.0f}/s"

    def _faults(self) -> str:
        now_s = self._now_s()
        shown = [f"{name} for {now_s - begin_s:.1f} s" for name, begin_s in self._in_force.values()]
        return ", ".join(shown) or "nothing"

    def _who(self) -> str:
        led = Counter(self._leaders.values())
        unled = led.pop(_NOBODY, 0)
        shown = [f"{node} of {count}" for node, count in sorted(led.items())]
        leaders = f"leaders: {', '.join(shown) or 'none'}{f', {unled} without' if unled else ''}"
        return f"controller {'unknown' if self._controller == _NOBODY else self._controller}, {leaders}"

    def _acknowledged(self) -> int:
        """Sends; where there are none, whatever was answered with success."""
        outcomes = dict(self._history.outcomes)
        sends = outcomes.get(("send", "ok"), 0)
        return sends or sum(count for (_, kind), count in outcomes.items() if kind == "ok")

    def _now_s(self) -> float:
        return self._history.now_us() / US_PER_S
