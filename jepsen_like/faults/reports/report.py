"""The report on a terminal: seed, faults, counts, findings, and the verdict last."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pykraft.jepsen_like.faults.checkers.counting import MEASURES, USUAL, Verdict
from pykraft.jepsen_like.faults.checkers.findings import MEANING, Finding
from pykraft.jepsen_like.faults.checkers.history import Report
from pykraft.jepsen_like.faults.checkers.lag import Lag
from pykraft.jepsen_like.faults.run_files import PAGE
from pykraft.jepsen_like.faults.timeline.analysis import Analysis, Unavailability
from pykraft.jepsen_like.faults.timeline.overview import FAULTS_END
from pykraft.jepsen_like.faults.timeline.seconds import US_PER_S

EXIT_CLEAN = 0
EXIT_ANOMALY = 1
EXIT_DOES_NOT_COUNT = 3
EXIT_COULD_NOT_RUN = 4
EXIT_INTERRUPTED = 130

ALLOWED: Final[Mapping[str, str]] = {
    "client_resends": "written again by librdkafka (its issue 4953)",
    "write_cycles": "concurrent transactions that wrote in different orders",
    "antidependency_cycles": "circles of transactions that read and wrote",
    "send_skips": "records of others between those of one transaction",
    "unjudged_deletions": "deleted keys that nobody need have deleted",
    "undecided": "registers whose search was given up",
}
"""What is told without being an anomaly, by its name in the checkers' report."""

_MOST_NAMED: Final = 40

Outcome = Literal["clean", "anomaly", "does not count"]


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one run. ``longest_leaderless_s`` is the longest time a partition had no live leader,
    ``recovery_s`` that from the last repair until all was in sync; each is None if it is not known. ``lag``
    is None if it was not measured."""

    workload: str
    seed: int
    time_limit_s: float
    nodes: int
    history_path: Path
    verdict: Verdict
    report: Report
    longest_leaderless_s: float | None
    recovery_s: float | None
    records_read: int
    check_s: float
    analysis: Analysis
    lag: Lag | None

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.report.findings

    @property
    def settings(self) -> Mapping[str, Any]:
        """How it was run, as its history says."""
        return self.analysis.overview.settings

    @property
    def ended_early(self) -> bool:
        """Whether somebody wanted the faults to end before their time."""
        mark = self.analysis.overview.marks.get(FAULTS_END)
        return mark is not None and bool((mark.detail or {}).get("early"))

    @property
    def counted(self) -> str:
        """Name what the verdict counts as acknowledged."""
        return MEASURES.get(self.workload, USUAL).what

    @property
    def violations(self) -> Sequence[str]:
        """The findings of a simulated schedule's own checks."""
        return tuple(map(str, self.settings.get("violations", ())))

    @property
    def outcome(self) -> Outcome:
        if self.findings or self.violations:
            return "anomaly"
        return "clean" if self.verdict.counts else "does not count"

    @property
    def exit_status(self) -> int:
        """0 clean, 1 anomaly, 3 clean but too quiet to count."""
        statuses = {"clean": EXIT_CLEAN, "anomaly": EXIT_ANOMALY, "does not count": EXIT_DOES_NOT_COUNT}
        return statuses[self.outcome]


def print_start(console: Console, workload: str, seed: int, time_limit_s: float, plants: int) -> None:
    console.print(f"seed {seed}: {workload} for {time_limit_s:g} s")
    console.print(f"self-test: {plants} planted anomalies caught, none in the clean history")


def print_result(console: Console, result: Result) -> None:
    """Print a run's counts and findings, its verdict last; ``report.html`` says more."""
    for line in _counts(result):
        console.print(line, markup=False, highlight=False)
    if (longest := result.analysis.longest_unavailability) is not None:
        console.print(unavailability_text(longest), markup=False, highlight=False)
    print_findings(console, result.findings)
    if result.ended_early:
        console.print("the faults were ended early")
    for shortfall in result.verdict.shortfalls:
        console.print(f"does not count: {shortfall}", markup=False)
    if not result.findings:
        console.print(f"no anomaly in {result.records_read:,} records read ({result.check_s:.1f} s to check)")
    console.print(f"report: {result.history_path.with_name(PAGE)}", markup=False, soft_wrap=True)
    console.print(Text.assemble("verdict: ", (verdict_text(result), _STYLES[result.outcome])))


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    for finding in findings:
        console.print(f"[bold red]{finding.kind}[/]: {MEANING[finding.kind]}", highlight=False)
        console.print(f"  {finding}", markup=False, highlight=False, soft_wrap=True)


def print_runs(console: Console, results: Sequence[Result]) -> None:
    """One line for each of several runs."""
    columns = ("seed", "faults", "acknowledged", "leader changes", "controller changes", "unavailable s")
    table = Table(title=f"{len(results)} runs", title_justify="left", title_style="bold", box=None)
    table.add_column("verdict")
    for column in columns:
        table.add_column(column, justify="right")
    for result in results:
        tally, longest = result.verdict.tally, result.analysis.longest_unavailability
        table.add_row(
            verdict_text(result),
            str(result.seed),
            str(tally.faults),
            f"{tally.acknowledged:,}",
            str(tally.leader_changes),
            str(tally.controller_changes),
            "" if longest is None else f"{longest.window.length_us / US_PER_S:.1f}",
        )
    console.print(table)


def verdict_text(result: Result) -> str:
    """``clean``, ``does not count``, or the kinds found."""
    found = sorted({finding.kind.value for finding in result.findings})
    return ", ".join([*found, *result.violations]) or result.outcome


_STYLES: Final[Mapping[Outcome, str]] = {
    "clean": "bold green",
    "anomaly": "bold red",
    "does not count": "bold yellow",
}


def _counts(result: Result) -> Iterator[str]:
    had, needed = result.verdict.tally, result.verdict.minimum
    kinds = ", ".join(f"{count} {kind}" for kind, count in result.verdict.faults_by_kind)
    yield f"faults: {had.faults:,}, {needed.faults:,} needed ({kinds})"
    yield f"{result.counted}: {had.acknowledged:,}, {needed.acknowledged:,} needed"
    yield f"partition-leader changes: {had.leader_changes:,}, {needed.leader_changes:,} needed"
    yield f"controller changes: {had.controller_changes:,}, {needed.controller_changes:,} needed"
    for name, count in result.report.allowed.items():
        if count:
            yield f"{ALLOWED[name]}: {count:,}"
    if missing := [str(one.fault) for one in result.analysis.faults if one.missing]:
        yield f"never recovered from: {', '.join(missing[:_MOST_NAMED])}"


def unavailability_text(longest: Unavailability) -> str:
    """The longest unavailability and what is known of its reason, in a sentence."""
    window = longest.window
    parts = [f"longest unavailability: {window.length_us / US_PER_S:.1f} s of {window.place}"]
    parts[0] += f" at {window.begin_us / US_PER_S:.1f} s"
    if longest.in_force:
        parts.append("during " + ", ".join(map(str, longest.in_force)))
    elif longest.before is not None and longest.before.repaired_us is not None:
        ago_s = (window.begin_us - longest.before.repaired_us) / US_PER_S
        parts.append(f"{ago_s:.1f} s after the repair of {longest.before}")
    if len(longest.struck) > 1:
        parts.append(f"faults on nodes {','.join(longest.struck)} at once")
    if longest.leaderless_us:
        parts.append(f"without a leader for {longest.leaderless_us / US_PER_S:.1f} s")
    if len(longest.leaders) > 1:
        parts.append("led by " + " → ".join("nobody" if one == "-1" else one for one in longest.leaders))
    return "; ".join(parts)
