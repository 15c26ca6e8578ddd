"""``python -m pykraft.jepsen_like.simulation.determinism --seeds 1000``: do traces depend on seeds alone?

Runs the same seeds in three processes under three hash seeds and compares the trace of every schedule: a
difference shows an order that depends on a set, a clock or an id. Exit code 1 if any trace differs.
"""

import argparse
import os
import subprocess
import sys
from time import perf_counter

from pykraft.jepsen_like.simulation.rings import RINGS

HASH_SEEDS = ("0", "1", "random")


def traces(ring: str, first: int, seeds: int, duration_ms: int) -> list[list[str]]:
    """For each hash seed "ring seed hash" of every schedule; raises if a run fails."""
    command = [sys.executable, "-m", "pykraft.jepsen_like.simulation", "--ring", ring, "--no-directed"]
    command += ["--first", str(first), "--seeds", str(seeds), "--duration-ms", str(duration_ms)]
    command += ["--processes", "1", "--print-traces"]
    runs = [
        subprocess.Popen(
            command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, stdout=subprocess.PIPE, text=True
        )
        for hash_seed in HASH_SEEDS
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
    print(f"{equal}/{total} seeds with equal traces in {len(HASH_SEEDS)} processes ({wall_s:.0f} s)")
    return 0 if equal == total else 1


if __name__ == "__main__":
    sys.exit(main())
