"""The results of groups as markdown: every measure of both systems. No figure is written by hand."""

from __future__ import annotations

from collections.abc import Sequence

from comparison.results import FamilyResults, Measure, Results
from comparison.table import QUICK_WARNING, describe, figure, with_range


def render(runs: Sequence[Results]) -> str:
    lines: list[str] = []
    for results in runs:
        lines += [*([QUICK_WARNING, ""] if results.quick else []), *describe(results), ""]
    shown: set[str] = set()
    for family in (family for results in runs for family in results.families):
        about = [] if family.about in shown else [family.about, ""]
        shown.add(family.about)
        lines += [f"### {family.name}", "", *about, *family_table(family), ""]
    return "\n".join(lines)


def family_table(family: FamilyResults) -> list[str]:
    lines = ["| what | pykraft | Apache Kafka | ratio |", "|---|---:|---:|---:|"]
    for row in family.rows:
        first, *others = row.measures
        lines.append(_line(f"**{row.name}**: {first.name}", first))
        lines += [_line(f"… {other.name}", other) for other in others]
    for failure in family.failures:
        error = " ".join(failure.error.split()).replace("|", "/")
        lines += ["", f"Failed: {failure.row} ({failure.system}, round {failure.round + 1}): {error}"]
    return lines


def _line(name: str, measure: Measure) -> str:
    ours, theirs = (with_range(measure.spread(system), measure.unit) for system in ("pykraft", "kafka"))
    ratio = measure.ratio()
    return f"| {name} | {ours} | {theirs} | {'-' if ratio is None else figure(ratio.median)} |"
