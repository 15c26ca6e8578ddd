"""What a person sees of a fault run: the seed first, then faults, counts, findings and the verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pykraft.jepsen_like.checkers.counting import Verdict
from pykraft.jepsen_like.checkers.findings import MEANING, Finding
from pykraft.jepsen_like.history import Event

EXIT_CLEAN = 0
EXIT_ANOMALY = 1
EXIT_DOES_NOT_COUNT = 3
EXIT_COULD_NOT_RUN = 4

REPAIRS = frozenset({"start", "resume"})


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one run. ``longest_leaderless_s`` is the longest time a partition had no live leader."""

    workload: str
    seed: int
    time_limit_s: float
    nodes: int
    history_path: Path
    verdict: Verdict
    findings: tuple[Finding, ...]
    client_resends: int
    longest_leaderless_s: float
    recovery_s: float | None
    records_read: int
    check_s: float

    @property
    def exit_status(self) -> int:
        """0 clean, 1 anomaly, 3 clean but too quiet to count."""
        if self.findings:
            return EXIT_ANOMALY
        return EXIT_CLEAN if self.verdict.counts else EXIT_DOES_NOT_COUNT

    def write_json(self, path: Path) -> None:
        """The same as a file, for machines."""
        path.write_text(json.dumps(asdict(self), default=str, indent=2) + "\n", encoding="utf-8")


def print_start(console: Console, workload: str, seed: int, time_limit_s: float, plants: int) -> None:
    console.print(f"seed {seed}: {workload} for {time_limit_s:g} s")
    console.print(f"self-test: {plants} planted anomalies caught, none in the clean history")


def print_result(console: Console, result: Result, events: Sequence[Event]) -> None:
    """The tables of one run."""
    console.print(_fault_table(events))
    console.print(_tally_table(result))
    print_findings(console, result.findings)
    if not result.findings:
        console.print(f"no anomaly in {result.records_read:,} records read ({result.check_s:.1f} s to check)")
    for shortfall in result.verdict.shortfalls:
        console.print(f"does not count: {shortfall}", markup=False)
    console.print(f"history: {result.history_path}", markup=False, soft_wrap=True)


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    for finding in findings:
        console.print(f"[bold red]{finding.kind}[/]: {MEANING[finding.kind]}", highlight=False)
        console.print(f"  {finding}", markup=False, highlight=False)


def print_runs(console: Console, results: Sequence[Result]) -> None:
    """One line for each of several runs."""
    table = Table(title=f"{len(results)} runs")
    columns = (
        "seed",
        "faults",
        "acknowledged",
        "leader changes",
        "controller changes",
        "leaderless s",
        "verdict",
    )
    for column in columns:
        table.add_column(column, justify="left" if column == "verdict" else "right")
    for result in results:
        tally = result.verdict.tally
        table.add_row(
            str(result.seed),
            str(tally.faults),
            f"{tally.acknowledged:,}",
            str(tally.leader_changes),
            str(tally.controller_changes),
            f"{result.longest_leaderless_s:.1f}",
            verdict_text(result),
        )
    console.print(table)


def verdict_text(result: Result) -> str:
    """``clean``, ``does not count``, or the kinds found."""
    if result.findings:
        return ", ".join(sorted({finding.kind.value for finding in result.findings}))
    return "clean" if result.verdict.counts else "does not count"


def _fault_table(events: Sequence[Event]) -> Table:
    table = Table(title="faults")
    for column in ("at s", "fault", "node", "aimed at", "for s"):
        table.add_column(column, justify="left" if column in ("fault", "aimed at") else "right")
    for event in events:
        if event.process == "nemesis" and event.op not in REPAIRS:
            detail = event.detail or {}
            length = f"{detail.get('down_s', 0):.1f}"
            at = f"{event.time_us / 1e6:.1f}"
            table.add_row(at, event.op, event.value or "", str(detail.get("target", "")), length)
    return table


def _tally_table(result: Result) -> Table:
    table = Table(title=f"seed {result.seed}")
    for column, justify in (("", "left"), ("had", "right"), ("needed", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    had, needed = result.verdict.tally, result.verdict.minimum
    kinds = ", ".join(f"{count} {kind}" for kind, count in result.verdict.faults_by_kind)
    table.add_row(f"faults ({kinds})", str(had.faults), str(needed.faults))
    table.add_row("acknowledged writes", f"{had.acknowledged:,}", f"{needed.acknowledged:,}")
    table.add_row("partition-leader changes", str(had.leader_changes), str(needed.leader_changes))
    table.add_row("controller changes", str(had.controller_changes), str(needed.controller_changes))
    sends = dict(result.verdict.sends_by_status)
    table.add_row("sends with unknown outcome", str(sends.get("info", 0)), "")
    table.add_row("written again by librdkafka (its issue 4953)", str(result.client_resends), "")
    table.add_row("longest time without a leader, s", f"{result.longest_leaderless_s:.1f}", "")
    recovery = "never" if result.recovery_s is None else f"{result.recovery_s:.1f}"
    table.add_row("all in sync after the last repair, s", recovery, "")
    return table
