"""This broker and Apache Kafka under the same clients, loads and durability: processor time first, then time.

Apache Kafka 4.3.0 comes from Maven Central, once (``--fetch`` does only that), or from a directory of jars.
It runs with the heap and the options of its start scripts, and without logging. For every family of rows both
systems take turns, ``--rounds`` times: new processes, a load to warm up, and the load that is measured. Only
one system runs at a time.

    python benchmarks/vs_kafka.py [--rows raw,start] [--match REGEX] [--rounds 5] [--quick] [--out DIR]
    python benchmarks/vs_kafka.py --kafka-libs DIR            # the jars of a release that is unpacked here
    python benchmarks/vs_kafka.py --render DIR/results.json   # the tables and the plot of docs/performance.md

The results are written after every turn: ``results.json`` with every single figure and ``results.md``; in the
end ``results.png``. Several files can be rendered together, such as those of single families: the last
results of a family count. What is published is also kept in docs/vs_kafka.json.
"""

from __future__ import annotations

import argparse
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from comparison.families import FAMILIES, Family
from comparison.machine import describe_run
from comparison.plot import draw
from comparison.results import SYSTEMS, Results, load, save
from comparison.systems import Pykraft, System, find_kafka
from comparison.table import PLOT, published, render, replace_between_markers
from comparison.turn import Turn

DOCS = Path(__file__).resolve().parent.parent / "docs"
NO_MATPLOTLIB = "matplotlib is not installed (pip install 'pykraft[bench]')"


def main() -> None:
    options = parse()
    if options.render:
        publish(load(options.render))
        return
    if options.fetch:
        print(f"Apache Kafka is in {find_kafka(options.kafka_libs).jars}")
        return
    systems = [Pykraft() if name == "pykraft" else find_kafka(options.kafka_libs) for name in options.systems]
    families = select(options.rows)
    # SIGTERM ends the run as Ctrl-C does: what was started is stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    directory = Path(tempfile.mkdtemp(prefix="vs-kafka-", dir=options.directory))
    try:
        compare(systems, families, directory, options)
    except KeyboardInterrupt:
        raise SystemExit("interrupted; what was measured is in the results") from None
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def parse() -> argparse.Namespace:
    names = ",".join(family.name for family in FAMILIES)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=names, help="families of rows (default: all, %(default)s)")
    parser.add_argument("--match", default="", help="only rows whose name this regular expression finds")
    parser.add_argument(
        "--systems",
        nargs="+",
        choices=SYSTEMS,
        default=SYSTEMS,
        help="only one of the two, such as to profile it",
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns of each system (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the loads: shows that all works")
    parser.add_argument("--out", type=Path, default=Path("build/vs_kafka"), help="default: %(default)s")
    parser.add_argument("--directory", help="where the nodes keep their data (default: a temporary one)")
    parser.add_argument("--kafka-libs", type=Path, help="a directory with the jars of Apache Kafka")
    parser.add_argument("--fetch", action="store_true", help="only download Apache Kafka")
    parser.add_argument("--render", type=Path, nargs="+", help="write docs/performance.md from these results")
    return parser.parse_args()


def select(rows: str) -> list[Family]:
    known = {family.name: family for family in FAMILIES}
    unknown = set(rows.split(",")) - set(known)
    if unknown:
        raise SystemExit(f"there are no rows {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [known[name] for name in rows.split(",")]


def compare(
    systems: Sequence[System], families: list[Family], directory: Path, options: argparse.Namespace
) -> None:
    results = Results(describe_run(command_of(options)), options.rounds, options.quick)
    options.out.mkdir(parents=True, exist_ok=True)
    for family in families:
        for round_ in range(options.rounds):
            for system in systems:
                print(f"{family.name}, round {round_ + 1}: {system.name}", flush=True)
                take_turn(system, family, round_, directory, options, results)
                write(results, options.out)
    if not draw([results], options.out / "results.png"):
        print(f"NO PLOT: {NO_MATPLOTLIB}", file=sys.stderr)
    print(f"results.json and results.md are in {options.out}")


def command_of(options: argparse.Namespace) -> str:
    """What repeats this run, without the paths of this machine."""
    words = ["python benchmarks/vs_kafka.py", f"--rounds {options.rounds}", f"--rows {options.rows}"]
    words += [f"--match '{options.match}'"] * bool(options.match) + ["--quick"] * options.quick
    return " ".join(words)


def take_turn(
    system: System,
    family: Family,
    round_: int,
    directory: Path,
    options: argparse.Namespace,
    results: Results,
) -> None:
    """A family that fails as a whole, such as one whose nodes do not start, is one failed row."""
    entered = results.family(family.name, family.about)
    turn = Turn(system, round_, directory, options.quick, re.compile(options.match), results, entered)
    started = time.monotonic()
    try:
        family.run(turn)
    except Exception as error:
        turn.fail("all rows", error)
    entered.seconds[system.name].append(round(time.monotonic() - started, 1))


def write(results: Results, out: Path) -> None:
    save([results], out / "results.json")
    (out / "results.md").write_text(render([results]) + "\n", encoding="utf-8")


def publish(runs: Sequence[Results]) -> None:
    """Rewrite what stands between the markers of docs/performance.md, the plot beside it, and the figures."""
    if any(results.quick for results in runs):
        raise SystemExit("results of --quick are not published")
    if not draw(runs, DOCS / PLOT):
        raise SystemExit(f"the plot cannot be drawn: {NO_MATPLOTLIB}")
    page = DOCS / "performance.md"
    page.write_text(
        replace_between_markers(page.read_text(encoding="utf-8"), published(runs)), encoding="utf-8"
    )
    save(runs, DOCS / "vs_kafka.json")


if __name__ == "__main__":
    main()
