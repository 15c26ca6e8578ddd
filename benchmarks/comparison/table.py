"""The results as markdown, and where the documentation shows them. No figure is written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

from comparison.results import FamilyResults, Results, Row, Spread

BEGIN: Final = "<!-- Begin of what `python benchmarks/vs_kafka.py --render` writes -->"
END: Final = "<!-- End of what `python benchmarks/vs_kafka.py --render` writes -->"
PLOT: Final = "vs_kafka.png"
LOSS_ABOVE: Final = 0.9
QUICK_WARNING: Final = "**A run with `--quick`: it shows that the rows work; its figures mean nothing.**"
_MISSING: Final = "-"


def figure(value: float) -> str:
    """Three significant digits, without an exponent."""
    if abs(value) >= 100 or value == 0:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def with_range(spread: Spread | None, unit: str = "") -> str:
    if spread is None:
        return _MISSING
    text = figure(spread.median) + (f" {unit}" if unit else "")
    low, high = figure(spread.low), figure(spread.high)
    return text if low == high else f"{text} ({low}\u2013{high})"


def published(runs: Sequence[Results]) -> str:
    """What stands between the markers: the plot and :func:`render`."""
    return f"![pykraft / Apache Kafka, row by row]({PLOT})\n\n{render(runs)}"


def render(runs: Sequence[Results]) -> str:
    """How it was measured, the summary, and a table for each family."""
    lines: list[str] = []
    for results in runs:
        lines += [*([QUICK_WARNING, ""] if results.quick else []), *describe(results), ""]
    families = [family for results in runs for family in results.families]
    lines += [*summary(families), ""]
    for family in families:
        lines += [*family_table(family), ""]
    return "\n".join(lines)


def describe(results: Results) -> list[str]:
    run = results.run
    names = ", ".join(family.name for family in results.families)
    rounds = f"{results.rounds} rounds" if results.rounds > 1 else "one round"
    return [
        f"{names}: {rounds} on {run['date']}, pykraft {run['pykraft']} and Apache Kafka"
        f" {run['kafka']} in turns (`{run['command']}`). {run['machine']}. {run['client']}. {run['values']}."
    ]


def summary(families: Iterable[FamilyResults]) -> list[str]:
    """The median over all rows, and by name every row that is not clearly cheaper."""
    ratios = {
        f"{family.name}: {row.name}": ratio
        for family in families
        for row in family.rows
        if (ratio := row.measures[0].ratio()) is not None
    }
    if not ratios:
        return ["No row was measured on both."]
    losses = sorted(
        (name for name, ratio in ratios.items() if ratio.median > LOSS_ABOVE),
        key=lambda name: -ratios[name].median,
    )
    text = ", ".join(f"{name} ({figure(ratios[name].median)})" for name in losses) or "none"
    middle = median(ratio.median for ratio in ratios.values())
    return [
        f"Median ratio over {len(ratios)} rows: **{figure(middle)}**. Rows above {LOSS_ABOVE}: {text}.",
    ]


def family_table(family: FamilyResults) -> list[str]:
    lines = [f"### {family.name}", "", family.about, ""]
    if family.rows:
        lines += [
            "| what | pykraft | Apache Kafka | ratio | time and the rest, as ratios |",
            "|---|---|---|---|---|",
            *map(table_row, family.rows),
        ]
    for failure in family.failures:
        error = " ".join(failure.error.split()).replace("|", "/")
        lines += ["", f"Failed: {failure.row} ({failure.system}, round {failure.round + 1}): {error}"]
    return lines


def table_row(row: Row) -> str:
    first, *others = row.measures
    cells = [
        f"{row.name}: {first.name}",
        with_range(first.spread("pykraft"), first.unit),
        with_range(first.spread("kafka"), first.unit),
        with_range(first.ratio()),
        ", ".join(f"{other.name} {with_range(other.ratio())}" for other in others) or _MISSING,
    ]
    return "| " + " | ".join(cells) + " |"


def replace_between_markers(page: str, text: str, begin: str = BEGIN, end: str = END) -> str:
    """The page with ``text`` between its two markers; ValueError unless it has both, once and in order."""
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError("the page does not have the two markers, each once")
    before, rest = page.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}"
