"""What a simulated cluster costs: virtual seconds that pass in one second of a core.

One process runs schedules of ring 2 whose nodes are three, each a controller and a broker, under the append
workload, one after the other: first without faults, then the same seeds with theirs. *Records* are those
committed to partitions in a virtual second; every one of them is produced by the product's client, fetched
by two followers and by the readers of the workload, and checked on its way.

    python benchmarks/simulation.py [--schedules N] [--first SEED]
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterator
from itertools import count, islice
from statistics import median

from pykraft.jepsen_like.simulation.cluster.clients.load import draw_workload
from pykraft.jepsen_like.simulation.cluster.options import draw_options
from pykraft.jepsen_like.simulation.rings import RINGS
from pykraft.jepsen_like.simulation.schedule import DURATION_MS, Outcome, Schedule

NODES = (1, 2, 3)


def seeds_of_three_nodes(first: int) -> Iterator[int]:
    for seed in count(first):
        options = draw_options(seed)
        if options.controllers == options.brokers == NODES and draw_workload(seed)[0] == "append":
            yield seed


def run(seed: int, faults: tuple[int, ...] | None) -> tuple[Outcome, float]:
    """The outcome and its virtual seconds a second of processor time."""
    started_s = time.process_time()
    outcome = RINGS["cluster"].run(Schedule(seed, DURATION_MS, faults, frozenset()))
    return outcome, outcome.virtual_ms / 1000 / (time.process_time() - started_s)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--schedules", type=int, default=9)
    parser.add_argument("--first", type=int, default=0, help="the first seed to look at")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    seeds = list(islice(seeds_of_three_nodes(options.first), options.schedules))
    print("faults   schedules   virtual s / core s: median (least-most)   records / virtual s")
    for name, faults in (("none", ()), ("all", None)):
        runs = [run(seed, faults) for seed in seeds]
        speeds = [speed for _, speed in runs]
        records = sum(outcome.counts["records committed"] for outcome, _ in runs)
        seconds = sum(outcome.virtual_ms for outcome, _ in runs) / 1000
        spread = f"{median(speeds):.1f} ({min(speeds):.1f}-{max(speeds):.1f})"
        print(f"{name:8} {len(runs):9}   {spread:>39}   {records / seconds:19.0f}")


if __name__ == "__main__":
    main()
