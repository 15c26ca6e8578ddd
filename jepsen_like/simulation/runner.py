"""Runs many schedules of a ring on all cores, adds up their results, and reduces those that fail.

A worker process takes a few seeds at a time; a schedule depends on its seed alone, so neither the number of
workers nor their order affects the sums.
"""

import logging
import multiprocessing
from collections.abc import Iterator
from time import perf_counter

from pykraft.jepsen_like.simulation.progress import Progress
from pykraft.jepsen_like.simulation.reducing import minimise
from pykraft.jepsen_like.simulation.rings import RINGS
from pykraft.jepsen_like.simulation.schedule import Outcome, Ring, Schedule, describe
from pykraft.jepsen_like.simulation.tally import Tally


def attempt(ring: Ring, schedule: Schedule) -> Outcome | str:
    """The outcome, or the violation."""
    try:
        return ring.run(schedule)
    except Exception as error:
        return describe(error)


def run_many(
    ring: Ring,
    seeds: range,
    duration_ms: int,
    *,
    workers: int,
    minimise_s: float,
    progress: Progress,
    keeps_going: bool = False,
    workload: str | None = None,
) -> Tally:
    """Each failure is reduced, and noted with its command; the first ends the run unless ``keeps_going``."""
    tally = Tally(ring.name)
    began = perf_counter()
    _run_directed(ring, tally, progress)
    if not tally.failures or keeps_going:
        for seed, result in _results(ring, seeds, duration_ms, workers, workload):
            if isinstance(result, Outcome):
                tally.add(result)
            else:
                progress.reduces(f"{ring.name}, seed {seed}: {result}")
                tally.schedules += 1
                schedule = ring.schedule(seed, duration_ms, workload=workload)
                tally.failures.append(reduced(ring, schedule, result, minimise_s))
                if not keeps_going:
                    break
            progress.ran(tally, len(seeds))
    tally.wall_s = perf_counter() - began
    return tally


def _run_directed(ring: Ring, tally: Tally, progress: Progress) -> None:
    for name, run in sorted(ring.directed.items()):
        try:
            run()
        except Exception as error:
            tally.failures.append(f"{name}: {describe(error)}; reproduce: {ring.directed_command(name)}")
            return
        tally.directed += 1
        progress.ran_directed(tally, len(ring.directed))


def reduced(ring: Ring, schedule: Schedule, failure: str, time_limit_s: float) -> str:
    """One line: the violation of the smallest failing schedule, and the command that repeats it."""
    smaller, failure = minimise(ring, schedule, failure, time_limit_s=time_limit_s, now_s=perf_counter)
    return f"seed {schedule.seed}: {failure}; reproduce: {smaller.command(ring.name)}"


def _results(
    ring: Ring, seeds: range, duration_ms: int, workers: int, workload: str | None
) -> Iterator[tuple[int, Outcome | str]]:
    if workers == 1:
        for seed in seeds:
            yield seed, attempt(ring, ring.schedule(seed, duration_ms, workload=workload))
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, _quiet) as pool:
        jobs = [(ring.name, seed, duration_ms, workload) for seed in seeds]
        yield from pool.imap(_run_job, jobs, chunksize=2)


def _quiet() -> None:
    logging.disable(logging.CRITICAL)  # a violation halts the node that it is found in


def _run_job(job: tuple[str, int, int, str | None]) -> tuple[int, Outcome | str]:
    name, seed, duration_ms, workload = job
    ring = RINGS[name]
    return seed, attempt(ring, ring.schedule(seed, duration_ms, workload=workload))
