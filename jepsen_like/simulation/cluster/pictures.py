"""One schedule of ring 2 as the files of a fault run: its history, and ``report.html`` with latency,
throughput and availability over the faults, on the clock of virtual time.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pykraft.jepsen_like.faults.checkers.history import Report
from pykraft.jepsen_like.faults.history import NEMESIS, OBSERVER, REPAIRED, Event, write_history
from pykraft.jepsen_like.faults.run_files import HISTORY
from pykraft.jepsen_like.faults.runs.conclusion import write_report
from pykraft.jepsen_like.faults.timeline.overview import FAULTS_BEGIN, FAULTS_END
from pykraft.jepsen_like.simulation.cluster.clients.load import draw_workload
from pykraft.jepsen_like.simulation.schedule import Schedule
from pykraft.jepsen_like.simulation.story import Story


def write_pictures(directory: Path, schedule: Schedule, story: Story, failures: Sequence[str]) -> Path:
    """Write the files; where the page is. What the schedule's own checks exempt, the page exempts as well."""
    directory.mkdir(parents=True, exist_ok=True)
    events = [*_frame(schedule, story, failures), *_faults(story), *_leads(story), *story.history]
    events.sort(key=lambda event: event.time_us)
    write_history(directory / HISTORY, events)
    report = story.report if isinstance(story.report, Report) else Report(())
    return write_report(directory, lambda _: report)


def _frame(schedule: Schedule, story: Story, failures: Sequence[str]) -> Iterator[Event]:
    end_us = schedule.duration_ms * 1000
    settings = {
        "workload": draw_workload(schedule.seed, schedule.workload)[0],
        "seed": schedule.seed,
        "time_limit_s": schedule.duration_ms / 1000,
        "nodes": story.nodes,
        "tier": "virtual time",
        "nemesis": "drawn from the seed",
        "system": "pykraft",
        "client": "own",
        "command": schedule.command("cluster"),
        "violations": list(failures),
    }
    yield Event("info", "runner", 0, "run", detail=settings)
    yield Event("info", "runner", 0, FAULTS_BEGIN)
    yield Event("info", "runner", end_us, FAULTS_END)


def _faults(story: Story) -> Iterator[Event]:
    others = enumerate(story.others, max(story.faults, default=-1) + 1)
    for number, fault in (*story.faults.items(), *others):
        kind = fault.kind.replace(" ", "-")
        detail = {"number": number, "for_s": fault.for_ms / 1000}
        yield Event("ok", NEMESIS, fault.begin_us, kind, value=fault.victim or None, detail=detail)
        if fault.end_us is not None:
            repaired = {"number": number, "kind": kind}
            yield Event("ok", NEMESIS, fault.end_us, REPAIRED, value=fault.victim or None, detail=repaired)


def _leads(story: Story) -> Iterator[Event]:
    """Who leads the partitions of the workload's topics, as in a fault run."""
    topics = {event.key.rpartition("-")[0] for event in story.history if event.key is not None}
    for at_us, partition, leader in story.leads:
        if partition is None:
            yield Event("info", OBSERVER, at_us, "controller", value=str(leader))
        elif partition.rpartition("-")[0] in topics:
            yield Event("info", OBSERVER, at_us, "leader", partition, str(leader))
