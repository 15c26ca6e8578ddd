"""``summary.json``: the result of a run for machines. ``docs/fault-runs.md`` lists its keys.

Names do not change; others may be added. How recovery and unavailability are defined: ``timeline/recovery``,
``timeline/fault_recovery`` and ``timeline/availability``.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.reports.report import Result
from pykraft.jepsen_like.faults.timeline.fault_recovery import FaultRecovery
from pykraft.jepsen_like.faults.timeline.faults import FaultSpan
from pykraft.jepsen_like.faults.timeline.seconds import US_PER_S

_OPTIONS: Final = {
    "workload": "workload",
    "tier": "tier",
    "nemesis": "nemesis",
    "time_limit_s": "time-limit",
    "nodes": "nodes",
    "client": "client",
    "system": "system",
    "bootstrap_servers": "bootstrap-server",
    "other_version": "other-version",
    "seed": "seed",
}
"""Options of ``pykraft jepsen run``, by the names of what they set."""
_OF_OWN_NODES: Final = frozenset({"tier", "nemesis", "nodes", "system", "other_version"})
_DIGITS: Final = 6


def write_summary(result: Result, path: Path) -> None:
    encoded = msgspec.json.encode(build_summary(result), enc_hook=str)
    path.write_bytes(msgspec.json.format(encoded, indent=1) + b"\n")


def build_summary(result: Result) -> dict[str, Any]:
    """Build the content of the file: see above."""
    analysis, settings = result.analysis, result.settings
    overview = analysis.overview
    return {
        "outcome": result.outcome,
        "exit_status": result.exit_status,
        "workload": result.workload,
        "seed": result.seed,
        "tier": settings.get("tier"),
        "nemesis": settings.get("nemesis"),
        "time_limit_s": result.time_limit_s,
        "nodes": result.nodes,
        "client": settings.get("client"),
        "system": settings.get("system"),
        "command": command_to_repeat(settings),
        "ended_early": result.ended_early,
        "versions": settings.get("versions", {}),
        "machine": settings.get("machine", {}),
        "history_path": str(result.history_path),
        "duration_s": _seconds(overview.end_us),
        "events": overview.events,
        "records_read": result.records_read,
        "check_s": round(result.check_s, _DIGITS),
        "verdict": result.verdict,
        "findings": result.findings,
        "anomalies": anomaly_counts(result),
        "allowed": result.report.allowed,
        "operations": _operations(result),
        "latency_ms": {rates.op: rates.total_ms for rates in analysis.rates},
        "phases": [
            {"name": phase.name, "begin_s": _seconds(phase.begin_us), "end_s": _seconds(phase.end_us)}
            for phase in analysis.phases
        ],
        "faults": [_fault(one) for one in analysis.faults],
        "faults_by_kind": analysis.by_kind,
        "calm_recovery_s": analysis.calm_s,
        "longest_unavailability": _longest_unavailability(result),
        "unavailable": {
            "incidents": len(analysis.incidents),
            "total_s": _seconds(sum(window.length_us for window in analysis.windows)),
        },
        "longest_leaderless_s": result.longest_leaderless_s,
        "recovery_s": result.recovery_s,
        "worst_lag": _worst_lag(result),
    }


def command_to_repeat(settings: Mapping[str, Any]) -> str | None:
    """None if the history does not say how it was made."""
    if "command" in settings:
        return str(settings["command"])
    if "seed" not in settings:
        return None
    words = ["pykraft", "jepsen", "run"]
    is_foreign = settings.get("bootstrap_servers") is not None
    for name, option in _OPTIONS.items():
        value = settings.get(name)
        if value is not None and not (is_foreign and name in _OF_OWN_NODES):
            words += [f"--{option}", f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)


def anomaly_counts(result: Result) -> dict[str, int]:
    """Occurrences by the name of the anomaly, for all that are looked for."""
    counts = dict.fromkeys((kind.value for kind in Anomaly), 0)
    for finding in result.findings:
        counts[finding.kind.value] += finding.count
    return counts


def _operations(result: Result) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (op, kind), count in sorted(result.analysis.overview.outcomes.items()):
        found.setdefault(op, dict.fromkeys(("invoke", "ok", "fail", "info"), 0))[kind] = count
    return found


def _fault(one: FaultRecovery) -> dict[str, Any]:
    fault = one.fault
    lasted_us = None if fault.repaired_us is None else fault.repaired_us - fault.begin_us
    return {
        "number": fault.number,
        "kind": fault.kind,
        "victims": fault.victims,
        "target": fault.target,
        "at_s": _seconds(fault.begin_us),
        "lasted_s": None if lasted_us is None else _seconds(lasted_us),
        "planned_s": fault.planned_s,
        "settings": fault.settings,
        "recovery_s": one.recovery_s,
        "after_repair_s": one.after_repair_s,
        "alone": one.alone,
        "not_recovered": one.missing,
    }


def _longest_unavailability(result: Result) -> dict[str, Any] | None:
    longest = result.analysis.longest_unavailability
    if longest is None:
        return None
    return {
        "key": longest.window.place,
        "at_s": _seconds(longest.window.begin_us),
        "length_s": _seconds(longest.window.length_us),
        "faults_in_force": [_name(fault) for fault in longest.in_force],
        "before": longest.before and _name(longest.before),
        "struck": longest.struck,
        "leaderless_s": _seconds(longest.leaderless_us),
        "leaders": longest.leaders,
    }


def _name(fault: FaultSpan) -> dict[str, Any]:
    return {"kind": fault.kind, "victims": fault.victims}


def _worst_lag(result: Result) -> dict[str, Any] | None:
    if result.lag is None:
        return None
    worst = result.lag.worst
    return {
        "key": worst and worst.key,
        "lag_s": _seconds(worst.lag_us) if worst else 0.0,
        "at_s": worst and _seconds(worst.at_us),
        "process": worst and worst.process,
        "polls": result.lag.polls,
        "stale_polls": result.lag.stale_polls,
    }


def _seconds(time_us: int) -> float:
    return round(time_us / US_PER_S, _DIGITS)
