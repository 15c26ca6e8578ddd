"""Every figure of a comparison, by family, row, measure, system and round, and its JSON.

A family is what one process of each system is started for in one turn; a row is one load in it. The first
measure of a row is the one that is compared: nearly always processor time of the brokers. Less is better in
every measure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

SYSTEMS: Final = ("pykraft", "kafka")


class Spread(NamedTuple):
    """A median and the range around it."""

    median: float
    low: float
    high: float


@dataclass
class Measure:
    """One kind of figure of one row: a value of each round for each system, None where it failed."""

    name: str
    unit: str
    values: dict[str, list[float | None]]

    def spread(self, system: str) -> Spread | None:
        present = [value for value in self.values[system] if value is not None]
        return Spread(median(present), min(present), max(present)) if present else None

    def ratio(self) -> Spread | None:
        """pykraft/Kafka: of the medians, and the range of the ratios of the single rounds."""
        ours, theirs = (self.spread(system) for system in SYSTEMS)
        if ours is None or theirs is None or not theirs.median:
            return None
        pairs = zip(*(self.values[system] for system in SYSTEMS), strict=True)
        of_rounds = [a / b for a, b in pairs if a is not None and b]
        of_medians = ours.median / theirs.median
        return Spread(of_medians, min([of_medians, *of_rounds]), max([of_medians, *of_rounds]))


@dataclass
class Row:
    name: str
    measures: list[Measure] = field(default_factory=list)


@dataclass(frozen=True)
class Failure:
    """A row that one system did not finish in one round."""

    row: str
    system: str
    round: int
    error: str


@dataclass
class FamilyResults:
    """``seconds`` is how long each turn took, start, warm-up and stop included."""

    name: str
    about: str
    rows: list[Row] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=lambda: {system: [] for system in SYSTEMS})


@dataclass
class Results:
    """``run`` says when, where and with what it was measured: see :func:`comparison.machine.describe_run`."""

    run: dict[str, Any]
    rounds: int
    quick: bool
    families: list[FamilyResults] = field(default_factory=list)

    def family(self, name: str, about: str) -> FamilyResults:
        """The family of that name, entered if it is new."""
        for known in self.families:
            if known.name == name:
                return known
        self.families.append(FamilyResults(name, about))
        return self.families[-1]

    def note(
        self, family: FamilyResults, row: str, system: str, round_: int, figures: Iterable[Figure]
    ) -> None:
        """Enter the figures of one row, of one system in one round (counted from 0)."""
        entered = next((known for known in family.rows if known.name == row), None)
        if entered is None:
            entered = Row(row)
            family.rows.append(entered)
        for name, unit, value in figures:
            measure = next((known for known in entered.measures if known.name == name), None)
            if measure is None:
                measure = Measure(name, unit, {key: [None] * self.rounds for key in SYSTEMS})
                entered.measures.append(measure)
            measure.values[system][round_] = value


class Figure(NamedTuple):
    """One measured value, such as ``("CPU", "s/GB", 0.9)``."""

    measure: str
    unit: str
    value: float


def save(runs: Sequence[Results], path: Path) -> None:
    """Replace the file as a whole."""
    text = json.dumps([asdict(results) for results in runs], indent=1, ensure_ascii=False)
    lists_of_values = re.compile(r"\[[^][{}]+\]")
    written = path.with_suffix(".part")
    written.write_text(
        lists_of_values.sub(lambda found: re.sub(r"\s+", " ", found[0]), text) + "\n", encoding="utf-8"
    )
    written.replace(path)


def load(paths: Iterable[Path]) -> list[Results]:
    """The runs in these files; of a family that several of them measured, only the last results."""
    runs = [_decode(run) for path in paths for run in json.loads(path.read_text(encoding="utf-8"))]
    last = {family.name: family for run in runs for family in run.families}
    for run in runs:
        run.families = [family for family in run.families if last[family.name] is family]
    return [run for run in runs if run.families]


def _decode(data: dict[str, Any]) -> Results:
    families = [
        FamilyResults(
            name=family["name"],
            about=family["about"],
            rows=[
                Row(row["name"], [Measure(**measure) for measure in row["measures"]])
                for row in family["rows"]
            ],
            failures=[Failure(**failure) for failure in family["failures"]],
            seconds=family["seconds"],
        )
        for family in data["families"]
    ]
    return Results(data["run"], data["rounds"], data["quick"], families)
