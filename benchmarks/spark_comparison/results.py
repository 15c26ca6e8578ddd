"""Results: seconds of each side in each round. Less is better."""

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
    """``run`` says when, where and with what it was measured."""

    run: dict[str, Any]
    rounds: int
    rows: list[Row] = field(default_factory=list)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Results:
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(data["run"], data["rounds"], [Row(**row) for row in data["rows"]])


def render(results: Results, about: Mapping[str, str]) -> str:
    """The tables in docs/performance.md. ``about``: what is measured, by family. Of several codecs one is
    shown; the JSON file has the others."""
    run = results.run
    lines = [
        f"Medians of {results.rounds} rounds on {run['date']}: pykraft {run['pykraft']}, Spark {run['spark']}"
        f" (`{run['command']}`), on {run['machine']}. Broker, driver and tasks (`local[2]`) share the cores."
        f" Compressed with {_SHOWN}. Ratios are of our time to the other's.",
        "",
    ]
    shown = [row for row in results.rows if row.family in about and _is_shown(row)]
    families = [family for family in about if any(row.family == family for row in shown)]
    lines += [f"- *{family}*: {about[family]}" for family in families]
    if shown:
        lines += [
            "",
            *_HEAD,
            *(_line(row) for family in families for row in shown if row.family == family),
            "",
        ]
    return "\n".join(lines)


_SHOWN: Final = "lz4"

_HEAD: Final = (
    "| what | pykraft | to confluent-kafka | to Spark's connector |",
    "|---|---:|---:|---:|",
)


def _is_shown(row: Row) -> bool:
    """A row that names no codec is."""
    words = row.name.split(", ")
    return _SHOWN in words or not {"none", "zstd"} & set(words)


def _line(row: Row) -> str:
    ours = row.median_s(SIDES[0])
    name = ", ".join(word for word in row.name.split(", ") if word != _SHOWN)
    cells = [f"{row.family}, {name}", _seconds(ours)]
    for side in SIDES[1:]:
        ratio = row.ratio(side)
        cells.append("-" if ratio is None else figure(ratio))
    return f"| {' | '.join(cells)} |"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms"
