"""What became of each mutant of a draw: a file, written line by line, so that a run can go on."""

import json
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.mutants.at_random.coverage_map import ROOT
from tests.mutants.at_random.mutant import Mutant
from tests.mutants.run_mutants import is_simulation

EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
UNIT_TESTS, SIMULATION, SURVIVED, EQUIVALENT = "unit tests", "simulation", "survived", "equivalent"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``by``: the test or schedule that found it; ``why``: what it said, or why none did."""

    key: str
    package: str
    by: str | None
    why: str

    @property
    def way(self) -> str:
        if self.by is None:
            return SURVIVED
        is_test = "::" in self.by and not is_simulation(f"FAILED {ROOT.name}/{self.by}")
        return UNIT_TESTS if is_test else SIMULATION


class Results:
    """``keys``: of the mutants, as they were drawn; ``verdicts``: the newest of each that has any."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.keys: list[str] = []
        self.verdicts: dict[str, Verdict] = {}
        if path.exists():
            first, *rest = map(json.loads, path.read_text(encoding="utf-8").splitlines())
            self.keys = first["keys"]
            self.verdicts = {row["key"]: Verdict(**row) for row in rest}

    def begin(self, mutants: Iterable[Mutant]) -> None:
        self.keys = [mutant.key for mutant in mutants]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._append({"keys": self.keys})

    def add(self, verdict: Verdict) -> None:
        self.verdicts[verdict.key] = verdict
        self._append(asdict(verdict))

    def _append(self, row: Mapping[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def read_equivalents(path: Path = EQUIVALENTS) -> dict[str, dict[str, str]]:
    """Judged by hand, by key: the ``change`` in words, and the ``reason`` why nobody sees a difference."""
    rows = tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", [])
    return {row["key"]: row for row in rows}


def table(verdicts: Iterable[Verdict], equivalents: Iterable[str]) -> Iterator[str]:
    """The score, by package and in all, ready for docs/reliability.md. Equivalents do not count."""
    known = set(equivalents)
    rows: dict[str, list[str]] = defaultdict(list)
    for verdict in verdicts:
        way = EQUIVALENT if verdict.by is None and verdict.key in known else verdict.way
        rows[verdict.package].append(way)
        rows["all"].append(way)
    yield "| package | drawn | equivalent | found by unit tests | by simulation | survived | score |"
    yield "|---|---|---|---|---|---|---|"
    for package in (*sorted(rows.keys() - {"all"}), "all"):
        ways = rows[package]
        found = ways.count(UNIT_TESTS) + ways.count(SIMULATION)
        counted = found + ways.count(SURVIVED)
        counts = (len(ways), *(ways.count(way) for way in (EQUIVALENT, UNIT_TESTS, SIMULATION, SURVIVED)))
        score = f"{100 * found / counted:.0f} %" if counted else "-"
        yield f"| {package} | {' | '.join(map(str, counts))} | {score} |"


def survivor(mutant: Mutant, verdict: Verdict, source: bytes) -> str:
    """What to read when a test is written for it; its last lines are its entry if it is equivalent."""
    before, after = (" ".join(text.split())[:80] for text in (mutant.before, mutant.after))
    change = json.dumps(f"{mutant.path} {mutant.function}: {before} -> {after}", ensure_ascii=False)
    return "\n".join(
        (
            f"## {mutant.path}:{mutant.lines[0]} {mutant.function}: {mutant.operator}",
            f"{verdict.why}.",
            "```diff",
            mutant.diff(source),
            "```",
            "```toml",
            "[[equivalent]]",
            f'key = "{mutant.key}"',
            f"change = {change}",
            'reason = ""',
            "```",
            "",
        )
    )
