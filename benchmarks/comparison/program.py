"""The program of a comparison that is published: both systems take turns at families of rows."""

import argparse
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from comparison.machine import describe_run
from comparison.plot import draw
from comparison.results import SYSTEMS, Results, load, save
from comparison.systems import System, find_kafka
from comparison.table import replace_between_markers
from comparison.turn import Turn

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = DOCS / "performance.md"
NO_MATPLOTLIB: Final = "matplotlib is not installed (pip install 'pykraft[bench]')"


@dataclass(frozen=True)
class Family:
    """``doc`` says what is measured, under what load, and how it is warmed up."""

    name: str
    doc: str
    run: Callable[[Turn], None]

    @property
    def about(self) -> str:
        """The text above the family's table."""
        return " ".join(self.doc.split())


@dataclass(frozen=True)
class Comparison:
    """``name`` is the program's. ``shown`` is what the page has of its figures, beside a ``plot`` of them."""

    name: str
    about: str
    families: Sequence[Family]
    ours: Callable[[], System]
    shown: Callable[[Sequence[Results]], str]
    figures: Path
    plot: Path | None = None
    rounds: int = 3

    @property
    def markers(self) -> tuple[str, str]:
        writes = f"of what `python benchmarks/{self.name}.py --render` writes -->"
        return f"<!-- Begin {writes}", f"<!-- End {writes}"

    def select(self, names: str) -> list[Family]:
        known = {family.name: family for family in self.families}
        unknown = set(names.split(",")) - set(known)
        if unknown:
            raise SystemExit(f"there are no rows {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        return [known[name] for name in names.split(",")]


def main(comparison: Comparison) -> None:
    options = parse(comparison)
    if options.render:
        publish(comparison, load(options.render))
        return
    if options.fetch:
        print(f"Apache Kafka is in {find_kafka(options.kafka_libs).jars}")
        return
    ours = comparison.ours
    systems = [ours() if name == "pykraft" else find_kafka(options.kafka_libs) for name in options.systems]
    families = comparison.select(options.rows)
    # SIGTERM ends the run as Ctrl-C does: what was started is stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    prefix = f"{comparison.name.replace('_', '-')}-"
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=options.directory))
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        results = compare(comparison, systems, families, directory, options)
    except KeyboardInterrupt:
        raise SystemExit("interrupted; what was measured is in the results") from None
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if comparison.plot is not None and not draw([results], options.out / comparison.plot.name):
        print(f"NO PLOT: {NO_MATPLOTLIB}", file=sys.stderr)
    print(comparison.shown([results]))
    print(f"results.json and results.md are in {options.out}")


def parse(comparison: Comparison) -> argparse.Namespace:
    names = ",".join(family.name for family in comparison.families)
    parser = argparse.ArgumentParser(
        description=comparison.about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=names, help="families of rows (default: all, %(default)s)")
    parser.add_argument("--match", default="", help="only rows whose name this regular expression finds")
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS,
        help="only one of the two, such as to profile it",
    )  # fmt: skip
    parser.add_argument(
        "--rounds", type=int, default=comparison.rounds, help="turns of each system (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="small loads: shows that all works")
    parser.add_argument(
        "--out", type=Path, default=Path("build") / comparison.name, help="default: %(default)s"
    )
    parser.add_argument("--directory", help="where the nodes keep their data (default: a temporary one)")
    parser.add_argument("--property", action="append", default=[], help="for every node: NAME=VALUE")
    parser.add_argument("--kafka-libs", type=Path, help="a directory with the jars of Apache Kafka")
    parser.add_argument("--fetch", action="store_true", help="only download Apache Kafka")
    parser.add_argument("--render", type=Path, nargs="+", help="write docs/performance.md from these results")
    return parser.parse_args()


def compare(
    comparison: Comparison,
    systems: Sequence[System],
    families: Sequence[Family],
    directory: Path,
    options: argparse.Namespace,
) -> Results:
    """The results are written after every turn."""
    results = Results(describe_run(command_of(comparison, options)), options.rounds, options.quick)
    machine, loads = results.run["machine"], [os.getloadavg()[0]]
    for family in families:
        for round_ in range(options.rounds):
            for system in systems:
                print(f"{family.name}, round {round_ + 1}: {system.name}", flush=True)
                take_turn(system, family, round_, directory, options, results)
                loads.append(os.getloadavg()[0])
                results.run["machine"] = f"{machine}; load average {min(loads):.0f} to {max(loads):.0f}"
                save([results], options.out / "results.json")
                (options.out / "results.md").write_text(comparison.shown([results]) + "\n", encoding="utf-8")
    return results


def command_of(comparison: Comparison, options: argparse.Namespace) -> str:
    """Return the command that repeats this run, without this machine's paths."""
    words = [
        f"python benchmarks/{comparison.name}.py",
        f"--rounds {options.rounds}",
        f"--rows {options.rows}",
    ]
    words += [f"--property {item}" for item in options.property]
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
    properties = dict(item.split("=", 1) for item in options.property)
    match = re.compile(options.match)
    turn = Turn(system, round_, directory, options.quick, match, results, entered, properties)
    started = time.monotonic()
    try:
        family.run(turn)
    except Exception as error:
        turn.fail("all rows", error)
    entered.seconds[system.name].append(round(time.monotonic() - started, 1))


def publish(comparison: Comparison, runs: Sequence[Results]) -> None:
    """Rewrite what stands between the markers of the page, the plot beside it, and the figures."""
    if any(results.quick for results in runs):
        raise SystemExit("results of --quick are not published")
    if comparison.plot is not None and not draw(runs, comparison.plot):
        raise SystemExit(f"the plot cannot be drawn: {NO_MATPLOTLIB}")
    page = PAGE.read_text(encoding="utf-8")
    text = replace_between_markers(page, comparison.shown(runs), *comparison.markers)
    PAGE.write_text(text, encoding="utf-8")
    save(runs, comparison.figures)
