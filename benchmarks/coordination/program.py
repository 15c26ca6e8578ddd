"""The program of a comparison that is published: both systems take turns at families of rows."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from comparison.families import Family
from comparison.machine import describe_run
from comparison.results import SYSTEMS, Results, load, save
from comparison.systems import System, find_kafka
from comparison.table import replace_between_markers
from coordination.table import render
from coordination.watched import Watched
from vs_kafka import take_turn

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = DOCS / "performance.md"


@dataclass(frozen=True)
class Comparison:
    """``name`` is that of the program and of the file with its figures."""

    name: str
    about: str
    families: Sequence[Family]

    @property
    def figures(self) -> Path:
        return DOCS / f"{self.name}_vs_kafka.json"

    @property
    def markers(self) -> tuple[str, str]:
        writes = f"of what `python benchmarks/{self.name}.py --render` writes -->"
        return f"<!-- Begin {writes}", f"<!-- End {writes}"


def main(comparison: Comparison) -> None:
    options = parse(comparison)
    if options.render:
        publish(comparison, load(options.render))
        return
    known = {family.name: family for family in comparison.families}
    unknown = set(options.rows.split(",")) - set(known)
    if unknown:
        raise SystemExit(f"there are no rows {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    systems: list[System] = [
        Watched() if name == "pykraft" else find_kafka(options.kafka_libs) for name in options.systems
    ]
    # SIGTERM ends the run as Ctrl-C does: what was started is stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    directory = Path(tempfile.mkdtemp(prefix=f"{comparison.name}-", dir=options.directory))
    results = Results(describe_run(command_of(comparison, options)), options.rounds, options.quick)
    options.out.mkdir(parents=True, exist_ok=True)
    machine, loads = results.run["machine"], [os.getloadavg()[0]]
    try:
        for name in options.rows.split(","):
            for round_ in range(options.rounds):
                for system in systems:
                    print(f"{name}, round {round_ + 1}: {system.name}", flush=True)
                    take_turn(system, known[name], round_, directory, options, results)
                    loads.append(os.getloadavg()[0])
                    results.run["machine"] = f"{machine}; load average {min(loads):.0f} to {max(loads):.0f}"
                    save([results], options.out / "results.json")
                    (options.out / "results.md").write_text(render([results]) + "\n", encoding="utf-8")
    except KeyboardInterrupt:
        raise SystemExit("interrupted; what was measured is in the results") from None
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(render([results]))
    print(f"results.json and results.md are in {options.out}")


def parse(comparison: Comparison) -> argparse.Namespace:
    names = ",".join(family.name for family in comparison.families)
    parser = argparse.ArgumentParser(
        description=comparison.about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=names, help="families of rows (default: all, %(default)s)")
    parser.add_argument("--match", default="", help="only rows whose name this regular expression finds")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each system (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small loads: shows that all works")
    parser.add_argument(
        "--out", type=Path, default=Path("build") / comparison.name, help="default: %(default)s"
    )
    parser.add_argument("--directory", help="where the nodes keep their data (default: a temporary one)")
    parser.add_argument("--kafka-libs", type=Path, help="a directory with the jars of Apache Kafka")
    parser.add_argument("--render", type=Path, nargs="+", help="write docs/performance.md from these results")
    return parser.parse_args()


def command_of(comparison: Comparison, options: argparse.Namespace) -> str:
    """What repeats this run, without the paths of this machine."""
    words = [
        f"python benchmarks/{comparison.name}.py",
        f"--rounds {options.rounds}",
        f"--rows {options.rows}",
    ]
    words += [f"--match '{options.match}'"] * bool(options.match) + ["--quick"] * options.quick
    return " ".join(words)


def publish(comparison: Comparison, runs: Sequence[Results]) -> None:
    """Rewrite what stands between the markers of the page, and the figures."""
    if any(results.quick for results in runs):
        raise SystemExit("results of --quick are not published")
    text = replace_between_markers(PAGE.read_text(encoding="utf-8"), render(runs), *comparison.markers)
    PAGE.write_text(text, encoding="utf-8")
    save(runs, comparison.figures)
