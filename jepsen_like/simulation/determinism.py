"""``python -m pykraft.jepsen_like.simulation.determinism --seeds 1000``: do traces depend on seeds alone?

Runs the same seeds in three processes under three hash seeds and compares the trace of every schedule: a
difference shows an order that depends on a set, a clock or an id. One process runs interpreted, also in a
clone that is compiled: both forms behave alike. Exit code 1 if any trace differs.
"""

import argparse
import os
import subprocess
import sys
from time import perf_counter

from pykraft.compiled import ASKED, form
from pykraft.jepsen_like.simulation.rings import RINGS

RUNS = (
    {"PYTHONHASHSEED": "0"},
    {"PYTHONHASHSEED": "1", ASKED: "1"},
    {"PYTHONHASHSEED": "random"},
)
"""What the environments of the processes have in addition."""


def traces(ring: str, first: int, seeds: int, duration_ms: int) -> list[list[str]]:
    """For each process "ring seed hash" of every schedule; raises if a run fails."""
    command = [sys.executable, "-m", "pykraft.jepsen_like.simulation", "--ring", ring, "--no-directed"]
    command += ["--first", str(first), "--seeds", str(seeds), "--duration-ms", str(duration_ms)]
    command += ["--processes", "1", "--print-traces"]
    runs = [
        subprocess.Popen(command, env={**os.environ, **added}, stdout=subprocess.PIPE, text=True)
        for added in RUNS
    ]
    found = []
    for run in runs:
        printed = run.communicate()[0].splitlines()
        if run.returncode != 0:
            raise RuntimeError("\n".join(printed[-3:]))
        found.append([line for line in printed if line.startswith(f"{ring} ")])
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pykraft.jepsen_like.simulation.determinism")
    parser.add_argument("--ring", choices=sorted(RINGS), action="append", help="only this ring")
    parser.add_argument("--seeds", type=int, default=1000, help="schedules of each ring")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--duration-ms", type=int, default=10_000, help="virtual time with faults")
    options = parser.parse_args(arguments)
    began = perf_counter()
    equal = total = 0
    for ring in options.ring or sorted(RINGS):
        runs = traces(ring, options.first, options.seeds, options.duration_ms)
        total += options.seeds
        for lines in zip(*runs, strict=True):
            equal += len(set(lines)) == 1
            if len(set(lines)) > 1:
                print("not equal:", *lines)
    wall_s = perf_counter() - began
    forms = " and ".join(dict.fromkeys((form(), "interpreted")))
    print(f"{equal}/{total} seeds with equal traces in {len(RUNS)} processes, {forms} ({wall_s:.0f} s)")
    return 0 if equal == total else 1


if __name__ == "__main__":
    sys.exit(main())
