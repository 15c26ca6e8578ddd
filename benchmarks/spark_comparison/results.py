"""What was measured: seconds of each side in each round. Less is better."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from comparison.table import figure

SIDES: Final = ("pykraft", "confluent", "connector")
"""``connector``: Spark's own."""


@dataclass
class Row:
    """``rows`` and ``size_bytes`` (of keys and values) were read or written in each round; 0: not said."""

    family: str
    name: str
    rows: int
    size_bytes: int
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def median_s(self, side: str) -> float | None:
        found = self.seconds.get(side)
        return median(found) if found else None

    def ratio(self, side: str) -> float | None:
        """Our time against that of another side."""
        ours, theirs = self.median_s(SIDES[0]), self.median_s(side)
        return None if ours is None or not theirs else ours / theirs


@dataclass
class Results:
    """``run`` says when, where and with what it was measured. ``parts``: where the time of one read goes, in
    seconds by part and row."""

    run: dict[str, Any]
    rounds: int
    rows: list[Row] = field(default_factory=list)
    parts: dict[str, dict[str, float]] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Results:
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(data["run"], data["rounds"], [Row(**row) for row in data["rows"]], data["parts"])


def render(results: Results, about: Mapping[str, str]) -> str:
    """The tables of docs/spark.md. ``about``: what is measured, by family."""
    run = results.run
    lines = [
        f"Medians of {results.rounds} rounds after a first one, the sides in turns, on {run['date']}:"
        f" pykraft {run['pykraft']}, Spark {run['spark']} (`{run['command']}`). {run['machine']}. Broker,"
        " driver and tasks (`local[2]`) share the cores. Ratios are of our time to the other's.",
        "",
    ]
    for family, text in about.items():
        rows = [row for row in results.rows if row.family == family]
        if rows:
            lines += [f"### {family}", "", text, "", *_HEAD, *map(_line, rows), ""]
    if results.parts:
        lines += ["### where the time goes", "", _PARTS_ABOUT, "", *_parts(results.parts), ""]
    return "\n".join(lines)


_PARTS_ABOUT: Final = (
    "Of a batch. *Fetch* and *decode*: processor time of one Python process without Spark, all partitions"
    " after each other (a task each, two at a time, in Spark). *Hand-over*: a job whose source yields one"
    " Arrow batch of 1 MiB again and again, as many rows: every source in Python pays it."
)

_HEAD: Final = (
    "| what | pykraft | rows/s | MB/s | confluent-kafka | ratio | Spark's connector | ratio |",
    "|---|---:|---:|---:|---:|---:|---:|---:|",
)


def _line(row: Row) -> str:
    ours = row.median_s(SIDES[0])
    cells = [row.name, _seconds(ours)]
    for amount, divisor in ((row.rows, 1), (row.size_bytes, 1e6)):
        cells.append(f"{amount / divisor / ours:,.0f}" if ours and amount else "-")
    for side in SIDES[1:]:
        ratio = row.ratio(side)
        cells += [_seconds(row.median_s(side)), "-" if ratio is None else f"**{figure(ratio)}**"]
    return "| " + " | ".join(cells) + " |"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def _parts(parts: Mapping[str, Mapping[str, float]]) -> list[str]:
    names = list(dict.fromkeys(name for of_row in parts.values() for name in of_row))
    lines = ["| what | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for row, found in parts.items():
        lines.append(f"| {row} | " + " | ".join(_seconds(found.get(name)) for name in names) + " |")
    return lines
