"""Many fault runs added up, as tables of Markdown."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.timeline.seconds import percentiles

BROKE_OFF, DID_NOT_END = "broke off", "did not end"
_VERDICTS: Final = {0: "clean", 1: "anomaly", 3: "does not count"}
ENDINGS: Final = (*_VERDICTS.values(), BROKE_OFF, DID_NOT_END)
_MOST_SPELLS: Final = 5

Run = Mapping[str, Any]
"""A line of the results; ``summary`` is None if the run did not get that far, ``reason`` says why."""


def ending(run: Run) -> str:
    """One of :data:`ENDINGS`. A run with a verdict has a summary; the status alone may be that of Python."""
    if run["status"] is None:
        return DID_NOT_END
    return BROKE_OFF if run["summary"] is None else _VERDICTS.get(run["status"], BROKE_OFF)


def table(runs: Sequence[Run]) -> str:
    tables = (
        _tiers(runs),
        _workloads(runs),
        _without_verdict(runs),
        _anomalies(runs),
        _kinds(runs),
        _longest(runs),
    )
    return "\n\n".join("\n".join(lines) for lines in tables)


def _head(*columns: str) -> Iterator[str]:
    yield _row(*columns)
    yield "|---" * len(columns) + "|"


def _row(*cells: object) -> str:
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"


def _endings(runs: Sequence[Run]) -> list[int]:
    counts = Counter(map(ending, runs))
    return [counts[name] for name in ENDINGS]


def _summaries(runs: Iterable[Run]) -> list[Mapping[str, Any]]:
    return [run["summary"] for run in runs if run["summary"] is not None]


def _tiers(runs: Sequence[Run]) -> Iterator[str]:
    """Add up the runs with a summary; runs and hours are those of all."""
    yield from _head(
        *("tier", "runs", *ENDINGS, "hours", "under faults", "faults"),
        *("operations", "acknowledged", "records read"),
    )
    for tier in (*sorted({run["tier"] for run in runs}), None):
        here = [run for run in runs if tier in (None, run["tier"])]
        summaries = _summaries(here)
        operations = [
            counts for one in summaries for counts in one["operations"].values() if counts["invoke"]
        ]
        numbers = (
            sum(len(one["faults"]) for one in summaries),
            sum(counts["invoke"] for counts in operations),
            sum(counts["ok"] for counts in operations),
            sum(one["records_read"] for one in summaries),
        )
        hours = [sum(run["took_s"] for run in here), sum(one["time_limit_s"] for one in summaries)]
        yield _row(
            *(tier or "all", len(here), *_endings(here)),
            *(f"{whole_s / 3600:.1f}" for whole_s in hours),
            *(f"{number:,}" for number in numbers),
        )


def _workloads(runs: Sequence[Run]) -> Iterator[str]:
    yield from _head("workload", "tier", "runs", *ENDINGS)
    for workload, tier in sorted({(run["workload"], run["tier"]) for run in runs}):
        here = [run for run in runs if (run["workload"], run["tier"]) == (workload, tier)]
        yield _row(workload, tier, len(here), *_endings(here))


def _without_verdict(runs: Sequence[Run]) -> Iterator[str]:
    yield from _head("without a verdict: seed", "workload, tier", "ended", "after s", "its last words")
    for run in runs:
        if ending(run) in (BROKE_OFF, DID_NOT_END):
            where = f"{run['workload']}, {run['tier']}"
            yield _row(run["seed"], where, ending(run), f"{run['took_s']:.0f}", run.get("reason") or "-")


def _anomalies(runs: Sequence[Run]) -> Iterator[str]:
    found: dict[str, list[tuple[int, int]]] = {kind.value: [] for kind in Anomaly}
    for run in runs:
        for name, count in (run["summary"] or {}).get("anomalies", {}).items():
            if count:
                found.setdefault(name, []).append((run["seed"], count))
    yield from _head("anomaly", "occurrences", "in seeds")
    for name, seen in found.items():
        seeds = ", ".join(str(seed) for seed, _ in seen)
        yield _row(name, f"{sum(count for _, count in seen):,}", seeds or "-")


def _kinds(runs: Sequence[Run]) -> Iterator[str]:
    """Recovery in seconds: of all faults, then of those that were alone."""
    times = ("p50", "p99", "longest")
    yield from _head(
        "fault",
        "times",
        *(f"recovery s: {t}" for t in times),
        "never",
        "alone",
        *(f"alone: {t}" for t in times),
    )
    faults = [fault for summary in _summaries(runs) for fault in summary["faults"]]
    for kind in sorted({fault["kind"] for fault in faults}):
        here = [fault for fault in faults if fault["kind"] == kind]
        alone = [fault for fault in here if fault["alone"]]
        never = sum(bool(fault["not_recovered"]) for fault in here)
        yield _row(kind, len(here), *_recovery(here), never, len(alone), *_recovery(alone))


def _recovery(faults: Sequence[Mapping[str, Any]]) -> list[str]:
    found = percentiles([fault["recovery_s"] for fault in faults if fault["recovery_s"] is not None])
    if found is None:
        return ["-"] * 3
    return [f"{value:.2f}" for value in (found.p50, found.p99, found.max)]


def _longest(runs: Sequence[Run]) -> Iterator[str]:
    """The longest spells without an acknowledgement, one of each run."""
    yield from _head(
        *("unavailable for s", "seed", "workload, tier", "at s", "what", "in force"),
        *("most nodes at once", "without a leader, s"),
    )
    known = [(run, run["summary"]["longest_unavailability"]) for run in runs if run["summary"] is not None]
    found = sorted(
        ((run, spell) for run, spell in known if spell is not None),
        key=lambda one: float(-one[1]["length_s"]),
    )
    for run, spell in found[:_MOST_SPELLS]:
        yield _row(
            f"{spell['length_s']:.1f}",
            run["seed"],
            f"{run['workload']}, {run['tier']}",
            f"{spell['at_s']:.1f}",
            spell["key"],
            _in_force(spell),
            ", ".join(spell["struck"]) or "-",
            f"{spell['leaderless_s']:.1f}" if spell["leaders"] else "-",
        )


def _in_force(spell: Mapping[str, Any]) -> str:
    kinds = Counter(fault["kind"] for fault in spell["faults_in_force"])
    if kinds:
        return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    before = spell.get("before")
    return "nothing" if before is None else f"nothing; before it {before['kind']}"
