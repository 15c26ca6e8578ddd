"""Runs many schedules of a ring on all cores, adds up what they came to, and reduces the first that fails.

A worker process takes a few seeds at a time; what a schedule does depends on its seed alone, so neither the
number of workers nor their order shows in the sums.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter

from pykraft.jepsen_like.sim.minimise import minimise
from pykraft.jepsen_like.sim.rings import RINGS
from pykraft.jepsen_like.sim.schedule import Outcome, Ring, Schedule, describe


@dataclass(slots=True)
class Tally:
    """What the schedules of one ring came to. ``failures``: a line each, with the command that repeats it."""

    ring: str
    schedules: int = 0
    directed: int = 0
    virtual_ms: int = 0
    events: int = 0
    planned: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    traces: list[str] = field(default_factory=list)
    wall_s: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.schedules += 1
        self.virtual_ms += outcome.virtual_ms
        self.events += outcome.events
        self.planned += outcome.planned
        self.faults.update(outcome.faults)
        self.counts.update(outcome.counts)
        self.traces.append(f"{self.ring} {outcome.seed} {outcome.trace}")

    def lines(self) -> list[str]:
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        speed = self.virtual_ms / 1000 / max(self.wall_s, 0.001)
        return [
            f"{self.ring}: {self.schedules} schedules and {self.directed} written by hand, {counts};"
            f" {speed:.0f} virtual s per wall s",
            f"{self.ring}: faults that struck: {faults or 'none'}",
        ]


def attempt(ring: Ring, schedule: Schedule) -> Outcome | str:
    """The outcome, or what was broken."""
    try:
        return ring.run(schedule)
    except Exception as error:
        return describe(error)


def run_many(ring: Ring, seeds: range, duration_ms: int, *, workers: int, minimise_s: float) -> Tally:
    """Stops at the first failure, which is reduced and noted with the line that repeats it."""
    tally = Tally(ring.name)
    began = perf_counter()
    for name, run in sorted(ring.directed.items()):
        try:
            run()
        except Exception as error:
            tally.failures.append(f"{name}: {describe(error)}; reproduce: {ring.directed_command(name)}")
            return tally
        tally.directed += 1
    for seed, result in _results(ring, seeds, duration_ms, workers):
        if isinstance(result, Outcome):
            tally.add(result)
            continue
        tally.failures.append(reduced(ring, Schedule(seed, duration_ms), result, minimise_s))
        break
    tally.wall_s = perf_counter() - began
    return tally


def reduced(ring: Ring, schedule: Schedule, failure: str, time_limit_s: float) -> str:
    """One line: what the smallest schedule that was found still breaks, and the command that repeats it."""
    smaller, failure = minimise(ring, schedule, failure, time_limit_s=time_limit_s, now_s=perf_counter)
    return f"seed {schedule.seed}: {failure}; reproduce: {smaller.command(ring.name)}"


def _results(ring: Ring, seeds: range, duration_ms: int, workers: int) -> Iterator[tuple[int, Outcome | str]]:
    if workers == 1:
        for seed in seeds:
            yield seed, attempt(ring, Schedule(seed, duration_ms))
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, _quiet) as pool:
        jobs = [(ring.name, seed, duration_ms) for seed in seeds]
        yield from pool.imap(_run_job, jobs, chunksize=2)


def _quiet() -> None:
    logging.disable(logging.CRITICAL)  # a violation halts the node that it is found in


def _run_job(job: tuple[str, int, int]) -> tuple[int, Outcome | str]:
    name, seed, duration_ms = job
    return seed, attempt(RINGS[name], Schedule(seed, duration_ms))
