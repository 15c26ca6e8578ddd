"""``python -m pykraft.jepsen_like.simulation --seeds 300``: seeded schedules of every ring, on all cores.

Each ring runs its share of the seeds for 60 virtual seconds each, or the longest that it takes. Progress goes
to the standard error. The last three lines give the schedules, the faults and the violations; a line above
them for each violation has the command that repeats the smallest schedule found that still shows it. The exit
code is 1 if there was one. With ``--seed`` one schedule is run, and its story is printed; ``--report`` writes
it in pictures, too.
"""

import argparse
import logging
import os
import sys
from math import ceil
from pathlib import Path
from time import perf_counter

from pykraft.jepsen_like.simulation.progress import Progress
from pykraft.jepsen_like.simulation.rings import RINGS
from pykraft.jepsen_like.simulation.runner import run_many
from pykraft.jepsen_like.simulation.schedule import (
    COMMAND,
    DURATION_MS,
    Ring,
    Schedule,
    describe,
    read_numbers,
)
from pykraft.jepsen_like.simulation.story import Story
from pykraft.jepsen_like.simulation.tally import Tally, closing_lines


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    logging.disable(logging.CRITICAL)
    rings = [RINGS[name] for name in options.ring or RINGS]
    if options.workload is not None:
        rings = [ring for ring in rings if options.workload in ring.workloads]
        if not rings:
            print("no ring has this workload; there are:", *sorted(RINGS["cluster"].workloads))
            return 2
    if options.directed:
        return _run_directed(rings, options.directed)
    if options.seed is not None:
        return _run_seed(rings, options)
    return _run_many(rings, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=COMMAND)
    parser.add_argument("--ring", choices=sorted(RINGS), action="append", help="only this ring")
    parser.add_argument("--seeds", type=int, default=300, help="schedules; outer rings run a share of it")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--duration-ms", type=int, default=DURATION_MS, help="virtual time with faults")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="worker processes")
    parser.add_argument("--minimise-s", type=float, default=60.0, help="time to reduce a failing schedule")
    parser.add_argument("--print-traces", action="store_true", help="print the trace hash of each schedule")
    parser.add_argument("--no-directed", action="store_true", help="only schedules drawn from seeds")
    parser.add_argument("--directed", metavar="NAME", help="run this one schedule written by hand")
    parser.add_argument("--seed", type=int, help="run this one schedule and print its story")
    parser.add_argument("--faults", metavar="N,N-N", help="with --seed: keep only these faults of its plan")
    parser.add_argument("--without", metavar="PART,PART", help="with --seed: leave these parts out")
    parser.add_argument("--workload", metavar="NAME", help="what clients do; drawn by default")
    parser.add_argument(
        "--lines", type=int, default=60, help="with --seed: newest lines of its story to print"
    )
    parser.add_argument("--messages", action="store_true", help="with --seed: log every message, too")
    parser.add_argument(
        "--report",
        metavar="DIRECTORY",
        type=Path,
        help="with --seed of ring cluster: in pictures",
    )
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first violation")
    return parser


def _run_directed(rings: list[Ring], name: str) -> int:
    known = [ring for ring in rings if name in ring.directed]
    if not known:
        print("no such schedule; there are:", *sorted(n for ring in rings for n in ring.directed))
        return 2
    try:
        known[0].directed[name]()
    except Exception as error:
        print(f"{name}: {describe(error)}; reproduce: {known[0].directed_command(name)}")
        return 1
    print(f"{name}: no violation")
    return 0


def _run_seed(rings: list[Ring], options: argparse.Namespace) -> int:
    if len(rings) > 1 and (options.faults or options.without):
        print("--faults and --without need --ring: each ring has faults and parts of its own")
        return 2
    if options.report is not None and [ring.name for ring in rings] != ["cluster"]:
        print("--report needs --ring cluster: only there clients have a history")
        return 2
    faults = None if options.faults is None else read_numbers(options.faults)
    without = frozenset(options.without.split(",")) if options.without else frozenset()
    left_out = {"faults": faults, "without": without, "workload": options.workload}
    began = perf_counter()
    tallies = [
        _run_one(ring, ring.schedule(options.seed, options.duration_ms, **left_out), options)
        for ring in rings
    ]
    return _close(tallies, perf_counter() - began)


def _run_one(ring: Ring, schedule: Schedule, options: argparse.Namespace) -> Tally:
    """Run one schedule of each ring and print its story."""
    tally, story = Tally(ring.name), Story(has_messages=options.messages)
    try:
        tally.add(ring.run(schedule, story))
    except Exception as error:
        tally.schedules += 1
        command = schedule.command(ring.name)
        tally.failures.append(f"seed {schedule.seed}: {describe(error)}; reproduce: {command}")
    print(f"ring {ring.name}, seed {schedule.seed}, faults for {schedule.duration_ms / 1000:g} virtual s")
    print(*story.lines(options.lines), *tally.failures, "", sep="\n")
    if options.report is not None:
        from pykraft.jepsen_like.simulation.cluster.pictures import write_pictures

        print(f"report: {write_pictures(options.report, schedule, story, tally.failures)}")
    return tally


def _run_many(rings: list[Ring], options: argparse.Namespace) -> int:
    began = perf_counter()
    progress = Progress(sys.stderr, perf_counter)
    tallies: list[Tally] = []
    for ring in rings:
        if options.no_directed:
            ring = ring.without_directed()
        seeds = ceil(options.seeds * ring.share) if len(rings) > 1 else options.seeds
        tally = run_many(
            ring,
            range(options.first, options.first + seeds),
            options.duration_ms,
            workers=options.processes,
            minimise_s=options.minimise_s,
            progress=progress,
            keeps_going=options.keep_going,
            workload=options.workload,
        )
        if options.print_traces:
            print(*tally.traces, sep="\n")
        print(*tally.lines(), *tally.failures, sep="\n", flush=True)
        tallies.append(tally)
        if tally.failures and not options.keep_going:
            break
    return _close(tallies, perf_counter() - began)


def _close(tallies: list[Tally], wall_s: float) -> int:
    """Print the last lines; returns the exit code."""
    print(*closing_lines(tallies, wall_s), sep="\n")
    return 1 if any(tally.failures for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
