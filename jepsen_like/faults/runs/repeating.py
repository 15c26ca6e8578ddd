"""Work on a run that is over: check it again, report it again, repeat it with fewer faults."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.history import examine
from pykraft.jepsen_like.faults.history import Event, read_history
from pykraft.jepsen_like.faults.nemeses.fault import Plan, read_plan
from pykraft.jepsen_like.faults.plain_text import PlainConsole
from pykraft.jepsen_like.faults.reports.report import EXIT_ANOMALY, EXIT_CLEAN, print_findings
from pykraft.jepsen_like.faults.run_files import HISTORY, PLAN
from pykraft.jepsen_like.faults.runs.conclusion import Check, write_report
from pykraft.jepsen_like.faults.runs.run_config import RunConfig, RunError
from pykraft.jepsen_like.faults.runs.runner import run
from pykraft.jepsen_like.faults.runs.shrinking import Shrinking, write_shrunk

EXIT_NOT_SHOWN_AGAIN: Final = 3


def check_again(path: Path, console: PlainConsole, check: Check | None = None) -> int:
    """Return the exit status; ``path``: a history, or a run's directory. :class:`RunError` if unreadable."""
    file = path / HISTORY if path.is_dir() else path
    _refuse_empty(file)
    report = examine(read_history(file)) if check is None else check(file)
    print_findings(console, report.findings)
    if report.findings:
        is_unseen = any(finding.kind is Anomaly.UNSEEN for finding in report.findings)
        if is_unseen and not any(event.op == "final-end" for event in read_history(file)):
            console.say("the run broke off before its last read: what is unseen may well be in the log")
        return EXIT_ANOMALY
    console.print("no anomaly")
    return EXIT_CLEAN


def report_again(directory: Path, console: PlainConsole) -> int:
    """The exit status. :class:`RunError` if the directory has no run that can be read."""
    _refuse_empty(directory / HISTORY)
    try:
        console.say(str(write_report(directory)))
    except (OSError, ValueError) as error:
        raise RunError(str(error)) from error
    return EXIT_CLEAN


def _refuse_empty(history: Path) -> None:
    """Nothing in it is wrong, but nothing is known either."""
    try:
        if next(iter(read_history(history)), None) is None:
            raise RunError(f"{history} holds no event")
    except OSError as error:
        raise RunError(f"{history} cannot be read: {error.strerror}") from error


def shrink_run(directory: Path, tries: int, most_runs: int, console: PlainConsole) -> int:
    """Return the exit status; the plan is in the run's directory. :class:`RunError` without an anomaly."""
    say = console.say
    try:
        events = list(read_history(directory / HISTORY))
        plan = read_plan(directory / PLAN)
        config = _config_of(events)
    except (ValueError, OSError) as error:
        raise RunError(f"{directory} holds no run that can be repeated: {error}") from error
    anomalies = frozenset(finding.kind.value for finding in examine(events).findings)
    if not anomalies:
        raise RunError("this run shows no anomaly")
    say(f"{len(plan.faults)} faults showed {', '.join(sorted(anomalies))}")
    config = replace(config, out_dir=directory / "shrink")

    def show(fewer: Plan) -> frozenset[str]:
        again = replace(config, plan=fewer, time_limit_s=fewer.time_limit_s)
        result = run(again, PlainConsole(quiet=True))
        if result.ended_early:
            raise KeyboardInterrupt
        return frozenset(finding.kind.value for finding in result.findings)

    search = Shrinking(show, anomalies, tries, most_runs, say)
    shrunk = search.shrink(plan)
    if shrunk is None:
        say(f"not shown again in {search.runs} runs")
        return EXIT_NOT_SHOWN_AGAIN
    for fault in shrunk.faults:
        say(f"at {fault.at_s:.1f} s: {fault.kind} of {fault.target.value} for {fault.lasts_s:.1f} s")
    file = write_shrunk(directory, shrunk)
    say(f"{len(shrunk.faults)} of {len(plan.faults)} faults, {search.runs} runs: {file}")
    return EXIT_CLEAN


def _config_of(events: list[Event]) -> RunConfig:
    """:class:`ValueError` if the history does not begin with its run."""
    settings: dict[str, Any] = dict(events[0].detail or {}) if events and events[0].op == "run" else {}
    if not settings:
        raise ValueError("its history does not say how it was run")
    known = {field.name for field in fields(RunConfig)}
    return RunConfig(**{name: value for name, value in settings.items() if name in known})
