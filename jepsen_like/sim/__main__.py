"""``python -m pykraft.jepsen_like.sim --seeds 300``: seeded schedules of every ring, on all cores.

Each ring runs its share of the seeds for 60 virtual seconds each. The last line says how many schedules,
virtual hours, events and violations there were; the exit code is 1 if there was a violation, and its line
names the smallest schedule found that still shows it.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from math import ceil
from time import perf_counter

from pykraft.jepsen_like.sim.rings import RINGS
from pykraft.jepsen_like.sim.runner import Tally, run_many
from pykraft.jepsen_like.sim.schedule import COMMAND, DURATION_MS, Ring, Schedule, describe, read_numbers


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    logging.disable(logging.CRITICAL)
    rings = [RINGS[name] for name in options.ring or RINGS]
    if options.directed:
        return _run_directed(rings, options.directed)
    if options.seed is not None:
        if len(rings) != 1:
            print("--seed needs --ring")
            return 2
        faults = None if options.faults is None else read_numbers(options.faults)
        without = frozenset(options.without.split(",")) if options.without else frozenset()
        return _run_one(rings[0], Schedule(options.seed, options.duration_ms, faults, without), options.lines)
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
    parser.add_argument("--seed", type=int, help="run this one schedule and print the end of its trace")
    parser.add_argument("--faults", metavar="N,N-N", help="with --seed: keep only these faults of its plan")
    parser.add_argument("--without", metavar="PART,PART", help="with --seed: leave these parts out")
    parser.add_argument("--lines", type=int, default=60, help="with --seed: lines of trace to print")
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
    return 0


def _run_one(ring: Ring, schedule: Schedule, lines: int) -> int:
    log: list[str] = []
    try:
        outcome = ring.run(schedule, log)
    except Exception as error:
        print(*log[-lines:], sep="\n")
        print(f"seed {schedule.seed}: {describe(error)}; reproduce: {schedule.command(ring.name)}")
        return 1
    print(outcome)
    return 0


def _run_many(rings: list[Ring], options: argparse.Namespace) -> int:
    began = perf_counter()
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
        )
        if options.print_traces:
            print(*tally.traces, sep="\n")
        print(*tally.lines(), sep="\n", flush=True)
        print(*tally.failures, sep="\n", end="\n" if tally.failures else "", flush=True)
        tallies.append(tally)
        if tally.failures:
            break
    violations = sum(len(tally.failures) for tally in tallies)
    print(
        f"{sum(t.schedules for t in tallies)} schedules, {sum(t.virtual_ms for t in tallies) / 3_600_000:.2f}"
        f" virtual hours, {sum(t.events for t in tallies)} events, {violations} violations"
        f" ({perf_counter() - began:.0f} s)"
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
