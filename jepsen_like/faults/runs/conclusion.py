"""The conclusion of a run: its history is checked, counted and analysed, and its files are written."""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pykraft.jepsen_like.faults.checkers.counting import Asked, count_run
from pykraft.jepsen_like.faults.checkers.history import Report, examine
from pykraft.jepsen_like.faults.checkers.lag import Lag, measure_lag
from pykraft.jepsen_like.faults.history import Event, read_history
from pykraft.jepsen_like.faults.nemeses.choice import KINDS
from pykraft.jepsen_like.faults.nemeses.fault import Plan, Target, read_plan
from pykraft.jepsen_like.faults.reports.page.page import write_page
from pykraft.jepsen_like.faults.reports.report import Result
from pykraft.jepsen_like.faults.reports.summary import write_summary
from pykraft.jepsen_like.faults.run_files import HISTORY, PAGE, PLAN, SUMMARY
from pykraft.jepsen_like.faults.timeline.analysis import analyse_events
from pykraft.jepsen_like.faults.timeline.overview import IN_SYNC, LEADERLESS, Overview
from pykraft.jepsen_like.faults.timeline.seconds import US_PER_S

Check = Callable[[Path], Report]
"""Examines the history in a file."""


def write_report(directory: Path, check: Check | None = None) -> Path:
    """Write ``summary.json`` and ``report.html`` of a run again; where the page is.

    :class:`.history.HistoryError` if a line of the history is no event, ValueError if the
    plan is none, OSError if the history cannot be read.
    """
    conclude(directory, check)
    return directory / PAGE


def conclude(directory: Path, check: Check | None = None) -> Result:
    """The result of the run in ``directory``, and its files; errors as with :func:`write_report`.

    ``check`` examines histories that are larger than memory; the worst realtime lag is not measured then.
    """
    result = _result(directory, check)
    write_summary(result, directory / SUMMARY)
    write_page(result, directory)
    return result


def what_is_asked(plan: Plan) -> Asked:
    """Return the conditions a run with this plan must meet, beside those of its clients."""
    moving = [fault for fault in plan.faults if fault.kind in KINDS and KINDS[fault.kind].moves_leaders]
    deposing = [fault for fault in moving if fault.target in (Target.CONTROLLER, Target.ALL)]
    return Asked(len(plan.faults), len(moving), len(deposing))


def _result(directory: Path, check: Check | None) -> Result:
    history_path, plan_path = directory / HISTORY, directory / PLAN
    plan = read_plan(plan_path) if plan_path.exists() else None
    start = time.monotonic()
    lag: Lag | None = None
    history: Callable[[], Iterable[Event]]
    if check is None:
        events = list(read_history(history_path))
        report, lag = examine(events), measure_lag(events)
        history = lambda: events  # noqa: E731
    else:
        report = check(history_path)
        history = lambda: read_history(history_path)  # noqa: E731
    check_s = time.monotonic() - start
    analysis = analyse_events(history, plan)
    overview = analysis.overview
    settings = overview.settings
    asked = None if plan is None else what_is_asked(plan)
    time_limit_s = _number(settings, "time_limit_s")
    if time_limit_s is None:
        time_limit_s = overview.end_us / US_PER_S
    return Result(
        workload=str(settings.get("workload", "unknown")),
        seed=int(_number(settings, "seed") or 0),
        time_limit_s=time_limit_s,
        nodes=int(_number(settings, "nodes") or 0),
        history_path=history_path,
        verdict=count_run(history(), time_limit_s, report.undecided, asked),
        report=report,
        longest_leaderless_s=_told(overview, LEADERLESS, "longest_s"),
        recovery_s=_told(overview, IN_SYNC, "took_s"),
        records_read=overview.records_read,
        check_s=check_s,
        analysis=analysis,
        lag=lag,
    )


def _told(overview: Overview, mark: str, name: str) -> float | None:
    """A number that the runner recorded."""
    event = overview.marks.get(mark)
    return None if event is None else _number(event.detail or {}, name)


def _number(settings: Mapping[str, Any], name: str) -> float | None:
    value = settings.get(name)
    return value if isinstance(value, (int, float)) else None
