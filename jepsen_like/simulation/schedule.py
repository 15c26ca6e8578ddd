"""A simulated schedule and its outcome, for every ring of the simulation.

A schedule is a seed, and what is left out of the plan that the seed draws: a shorter time, fewer faults, no
client. Leaving something out never changes what is drawn for the rest, so a failing schedule can be reduced
(:mod:`.reducing`) and written down as one command that repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.story import Story

DURATION_MS = 60_000
COMMAND = "python -m pykraft.jepsen_like.simulation"


@dataclass(frozen=True, slots=True)
class Schedule:
    """``faults``: numbers of the faults of the seed's plan that are kept; None keeps all.

    ``without``: parts of the world that are left out, by the ring's own names (such as "client").
    ``workload``: what the clients do, by the ring's own names; None: the seed draws it.
    """

    seed: int
    duration_ms: int = DURATION_MS
    faults: tuple[int, ...] | None = None
    without: frozenset[str] = frozenset()
    workload: str | None = None

    def keeps(self, number: int) -> bool:
        return self.faults is None or number in self.faults

    def command(self, ring: str) -> str:
        """The command line that repeats the schedule."""
        words = [COMMAND, "--ring", ring, "--seed", str(self.seed)]
        if self.duration_ms != DURATION_MS:
            words += ["--duration-ms", str(self.duration_ms)]
        if self.faults is not None:
            words += ["--faults", write_numbers(self.faults)]
        if self.workload is not None:
            words += ["--workload", self.workload]
        if self.without:
            words += ["--without", ",".join(sorted(self.without))]
        return " ".join(words)


def write_numbers(numbers: tuple[int, ...]) -> str:
    """Ascending numbers, with runs written as ranges: "0-4,7"; "none" for none."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs) or "none"


def read_numbers(text: str) -> tuple[int, ...]:
    """The inverse of :func:`write_numbers`. :class:`ValueError` for any other text."""
    if text == "none":
        return ()
    numbers: list[int] = []
    for run in text.split(","):
        first, _, last = run.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a schedule without a violation. Equal schedules have equal ``trace``, in any process.

    ``faults``: how often each kind of fault was really injected. ``counts``: other counts of the ring
    (elections, acknowledged values). ``planned``: how many faults the seed planned.
    """

    seed: int
    events: int
    virtual_ms: int
    trace: str
    faults: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    planned: int = 0


class RunSchedule(Protocol):
    """Run one schedule. Raises what an invariant or an assertion raises. ``story`` records events."""

    def __call__(self, schedule: Schedule, story: Story | None = None) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class Ring:
    """One ring. ``share``: its schedules for each requested one. ``parts``: what ``without`` may name.
    ``longest_ms``: schedules are no longer, whatever is asked for.

    ``planned``: the number of faults that a seed plans for a duration; None if faults cannot be left out.
    ``workloads``: what ``workload`` may name. ``directed``: schedules written by hand, by name; they raise
    as ``run`` does.
    """

    name: str
    run: RunSchedule
    share: float = 1.0
    parts: tuple[str, ...] = ()
    planned: Callable[[int, int], int] | None = None
    directed: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    workloads: tuple[str, ...] = ()
    longest_ms: int | None = None

    def schedule(self, seed: int, duration_ms: int, **options: Any) -> Schedule:
        if self.longest_ms is not None:
            duration_ms = min(duration_ms, self.longest_ms)
        return Schedule(seed, duration_ms, **options)

    def directed_command(self, name: str) -> str:
        return f"{COMMAND} --ring {self.name} --directed {name}"

    def without_directed(self) -> Ring:
        return replace(self, directed={})


def describe(error: BaseException) -> str:
    """The error of a schedule, in one line."""
    return f"{type(error).__name__}: {error}"
