"""Exactly once under faults: ``python -m pykraft.jepsen_like.faults.spark_rounds --rounds 20 --seed 1``.

Three real brokers, a producer that never stops, and a Spark driver with two streaming queries: from a topic
to another one, exactly once, and to Parquet. Round after round brokers are killed and paused, partitions
moved and added, and the driver, its JVM or its workers killed, and started again. At the end of each round
every record of the source must be in both sinks once. Exit status 0 if so, 1 if not, 3 if Spark cannot run
here.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pykraft.jepsen_like.faults.spark_rounds.rounds import running
from pykraft.jepsen_like.faults.spark_rounds.tally import Tally
from pykraft.spark.session import java_problem, local_session

EXIT_CLEAN, EXIT_ANOMALY, EXIT_UNAVAILABLE, EXIT_INTERRUPTED = 0, 1, 3, 130


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    console = Console(highlight=False)
    problem = java_problem()
    if problem is not None:
        console.print(problem)
        return EXIT_UNAVAILABLE
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        return run(options, console)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def run(options: argparse.Namespace, console: Console) -> int:
    start_s = time.monotonic()
    with ExitStack() as stack:
        directory = options.directory or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="pykraft-spark-rounds-"))
        )
        session = local_session("spark-rounds-reader", spark__log__level="ERROR")
        stack.callback(session.stop)
        rounds = stack.enter_context(running(directory, session))
        for number in range(1, options.rounds + 1):
            found = rounds.play(options.seed, number, options.round_s)
            for anomaly in found:
                console.print(f"ANOMALY: {anomaly}", markup=False)
            tally = rounds.tally
            console.print(
                f"round {number}: {tally.copied:,} records, {tally.driver_starts} drivers so far,"
                f" {len(found)} anomalies, {time.monotonic() - start_s:.0f} s"
            )
        console.print(table_of(rounds.tally))
        for reason, count in rounds.tally.failures.most_common():
            console.print(f"a query failed {count} times: {reason}", markup=False)
        console.print(f"seed {options.seed}, {time.monotonic() - start_s:.0f} s in all")
    return EXIT_ANOMALY if rounds.tally.anomalies else EXIT_CLEAN


def table_of(tally: Tally) -> Table:
    table = Table(title="streams under faults")
    table.add_column("what")
    table.add_column("count", justify="right")
    for what, count in tally.rows():
        table.add_row(what, count)
    return table


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--round-s", type=float, default=15.0, help="how long things break in a round")
    parser.add_argument("--directory", type=Path, help="of all files; kept afterwards")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
