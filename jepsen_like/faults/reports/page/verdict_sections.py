"""The sections of the page about the verdict: head, numbers, findings, operations, and the run."""

from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from xml.etree.ElementTree import Element

from pykraft.jepsen_like.faults.checkers.findings import MEANING, Anomaly
from pykraft.jepsen_like.faults.reports.page.elements import Child, card_list, tag
from pykraft.jepsen_like.faults.reports.page.tables import UNKNOWN, Column, known, number, seconds, table
from pykraft.jepsen_like.faults.reports.report import ALLOWED, Outcome, Result, unavailability_text
from pykraft.jepsen_like.faults.reports.summary import anomaly_counts, command_to_repeat
from pykraft.jepsen_like.faults.run_files import files_of
from pykraft.jepsen_like.faults.timeline.seconds import US_PER_S

OUTCOME_STYLES: Final[dict[Outcome, str]] = {"clean": "good", "anomaly": "bad", "does not count": "warn"}


def head(result: Result) -> Element:
    settings = result.settings
    badge = tag("span", result.outcome, class_=f"badge {OUTCOME_STYLES[result.outcome]}")
    what = [f"{result.time_limit_s:g} s of faults", f"{result.nodes} nodes"]
    what += [
        f"{name} {settings[name]}" for name in ("nemesis", "tier", "client", "system") if name in settings
    ]
    shown = tag("header", tag("h1", f"Fault run: {result.workload}, seed {result.seed} ", badge))
    shown.append(tag("p", ", ".join(what)))
    if result.ended_early:
        shown.append(tag("p", "the faults were ended early", class_="warn"))
    for violation in result.violations:
        shown.append(tag("p", violation, class_="bad"))
    for shortfall in result.verdict.shortfalls:
        shown.append(tag("p", f"does not count: {shortfall}", class_="warn"))
    command = command_to_repeat(settings)
    if command is not None:
        shown.append(tag("pre", tag("code", command)))
    return shown


def cards(result: Result) -> Element:
    """The numbers to see first."""
    tally, analysis = result.verdict.tally, result.analysis
    longest = analysis.longest_unavailability
    found = sum(finding.count for finding in result.findings) + len(result.violations)
    every = [one.recovery_s for one in analysis.faults if one.recovery_s is not None]
    slowest: tuple[str, str, str | None]
    if any(one.missing for one in analysis.faults):
        slowest = ("never", "recovered from a fault", "bad")
    else:
        slowest = (_s(max(every, default=None)), "longest time to recover from a fault", None)
    rows: list[tuple[str, str, str | None]] = [
        (f"{found:,}", "anomalies", "bad" if found else "good"),
        (f"{tally.acknowledged:,}", result.counted, None),
        (f"{tally.faults:,}", "faults", None),
        slowest,
        (
            _s(None if longest is None else longest.window.length_us / US_PER_S),
            "longest unavailability",
            None,
        ),
        (_s(result.recovery_s), "from the last repair until all in sync", None),
        (f"{tally.leader_changes:,} / {tally.controller_changes:,}", "changes of leader / controller", None),
    ]
    if result.lag is not None:
        worst = result.lag.worst
        rows.append(
            (_s(0.0 if worst is None else worst.lag_us / US_PER_S), "worst realtime lag of a reader", None)
        )
    return card_list(rows)


def why_longest(result: Result) -> Element | None:
    longest = result.analysis.longest_unavailability
    if longest is None:
        return None
    text = unavailability_text(longest)
    return tag("p", f"{text[0].upper()}{text[1:]}.")


def findings_section(result: Result) -> list[Element]:
    """Show the findings with examples, and everything else that was looked for."""
    counts = anomaly_counts(result)
    shown: list[Element] = [tag("h2", "Findings")]
    if result.findings:
        columns = [Column("anomaly"), number("times"), Column("of"), Column("means, and examples", "text")]
        rows: list[list[Child]] = [
            [
                tag("strong", finding.kind.value, class_="bad"),
                f"{finding.count:,}",
                finding.key or "the cluster",
                tag(
                    "div",
                    MEANING[finding.kind],
                    tag("ul", *(tag("li", tag("code", example)) for example in finding.examples)),
                ),
            ]
            for finding in result.findings
        ]
        shown.append(table(columns, rows))
    else:
        shown.append(tag("p", f"None, in {result.records_read:,} records read."))
    looked_for: list[list[Child]] = [
        [kind.value, str(counts[kind.value]), MEANING[kind]] for kind in Anomaly if not counts[kind.value]
    ]
    summary = tag("summary", f"{len(looked_for)} anomalies were looked for and not found")
    columns = [Column("anomaly"), number("times"), Column("means", "text")]
    shown.append(tag("details", summary, table(columns, looked_for)))
    return shown


def operations_section(result: Result) -> list[Element]:
    outcomes = result.analysis.overview.outcomes
    kinds = ("invoke", "ok", "fail", "info")
    columns = [Column("event"), *map(number, ("invoked", "ok", "failed", "unknown, or information"))]
    rows: list[list[Child]] = [
        [op, *(f"{outcomes[op, kind]:,}" if outcomes[op, kind] else "" for kind in kinds)]
        for op in sorted({op for op, _ in outcomes})
    ]
    latencies: list[list[Child]] = [
        [rates.op, f"{rates.count:,}", *_latency_cells(rates.total_ms)] for rates in result.analysis.rates
    ]
    latency_columns = [Column("operation"), *map(number, ("outcomes", "p50 ms", "p99 ms", "max ms"))]
    return [
        tag("h2", "Operations"),
        table(latency_columns, latencies, caption="Latency of those that were acknowledged"),
        tag("details", tag("summary", "All events by type"), table(columns, rows)),
    ]


def run_section(result: Result, directory: Path) -> list[Element]:
    """With what it was made, and where everything is."""
    analysis = result.analysis
    facts: list[tuple[str, Any]] = [
        ("length of the history, s", seconds(analysis.overview.end_us)),
        ("events", f"{analysis.overview.events:,}"),
        ("records read", f"{result.records_read:,}"),
        ("time to check, s", known(result.check_s, 1)),
        ("longest time without a leader, s", known(result.longest_leaderless_s, 1)),
    ]
    facts += [(ALLOWED[name], f"{count:,}") for name, count in result.report.allowed.items() if count]
    for name in ("machine", "versions"):
        told = result.settings.get(name)
        if isinstance(told, dict):
            facts += [(one, UNKNOWN if value is None else str(value)) for one, value in told.items()]
    files = [file.relative_to(directory).as_posix() for file in files_of(directory)]
    links = [tag("li", tag("a", name, href=quote(f"./{name}"))) for name in files]
    return [
        tag("h2", "The run"),
        table([Column("fact"), number("")], [[name, value] for name, value in facts]),
        tag("h2", "Files"),
        tag("ul", *links),
    ]


def _latency_cells(found: Any) -> list[str]:
    if found is None:
        return [UNKNOWN] * 3
    return [known(value, 1) for value in (found.p50, found.p99, found.max)]


def _s(value_s: float | None) -> str:
    return UNKNOWN if value_s is None else f"{value_s:.1f} s"
