"""Groups at work on this broker and on Apache Kafka 4.3, in turns: how fast, and at what cost.

Apache Kafka comes as in ``vs_kafka.py``. For every family of rows both systems take turns, ``--rounds``
times, each time as new processes. Only one system runs at a time. What a figure is stands above its table.

    python benchmarks/groups.py [--rows consumer,classic] [--match REGEX] [--rounds 3] [--quick] [--out DIR]
    python benchmarks/groups.py --kafka-libs DIR            # the jars of a release that is unpacked here
    python benchmarks/groups.py --render DIR/results.json   # the tables of docs/groups.md

A load average far above that of one driver and one broker, about 2, says that the machine was busy with other
work: times and longest turns are then those of the others.

The results are written after every turn: ``results.json`` with every single figure and ``results.md``.
Several files can be rendered together: the last results of a family count. What committed offsets cost in
memory and to load is in ``groups_offsets.py``, without a broker.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from comparison.machine import describe_run
from comparison.results import SYSTEMS, Results, load, save
from comparison.systems import System, find_kafka
from comparison.table import replace_between_markers
from coordination.families import FAMILIES
from coordination.table import render
from coordination.watched import Watched
from vs_kafka import take_turn

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
FIGURES: Final = "groups_vs_kafka.json"
MARKERS: Final = (
    "<!-- Begin of what `python benchmarks/groups.py --render` writes -->",
    "<!-- End of what `python benchmarks/groups.py --render` writes -->",
)


def main() -> None:
    options = parse()
    if options.render:
        publish(load(options.render))
        return
    known = {family.name: family for family in FAMILIES}
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
    directory = Path(tempfile.mkdtemp(prefix="groups-", dir=options.directory))
    results = Results(describe_run(command_of(options)), options.rounds, options.quick)
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


def parse() -> argparse.Namespace:
    names = ",".join(family.name for family in FAMILIES)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=names, help="families of rows (default: all, %(default)s)")
    parser.add_argument("--match", default="", help="only rows whose name this regular expression finds")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each system (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small loads: shows that all works")
    parser.add_argument("--out", type=Path, default=Path("build/groups"), help="default: %(default)s")
    parser.add_argument("--directory", help="where the nodes keep their data (default: a temporary one)")
    parser.add_argument("--kafka-libs", type=Path, help="a directory with the jars of Apache Kafka")
    parser.add_argument("--render", type=Path, nargs="+", help="write docs/groups.md from these results")
    return parser.parse_args()


def command_of(options: argparse.Namespace) -> str:
    """What repeats this run, without the paths of this machine."""
    words = ["python benchmarks/groups.py", f"--rounds {options.rounds}", f"--rows {options.rows}"]
    words += [f"--match '{options.match}'"] * bool(options.match) + ["--quick"] * options.quick
    return " ".join(words)


def publish(runs: Sequence[Results]) -> None:
    """Rewrite what stands between the markers of docs/groups.md, and the figures."""
    if any(results.quick for results in runs):
        raise SystemExit("results of --quick are not published")
    page = DOCS / "groups.md"
    text = replace_between_markers(page.read_text(encoding="utf-8"), render(runs), *MARKERS)
    page.write_text(text, encoding="utf-8")
    save(runs, DOCS / FIGURES)


if __name__ == "__main__":
    main()
