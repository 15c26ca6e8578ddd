"""Spark's three ways to a topic of this broker, in turns: pykraft's source and sink, confluent-kafka in a
Python source, and Spark's own connector.

The connector comes from Maven Central if it is there for the installed version of Spark; `make
bench-spark` installs such a version. Everything shares the cores of this machine: broker, driver, tasks.

    python benchmarks/spark.py [--families batch,stream] [--match REGEX] [--rounds 4] [--quick]
    python benchmarks/spark.py --render results.json ...  # the tables of docs/performance.md
"""

import argparse
import re
import shutil
import signal
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from comparison.cluster import Cluster
from comparison.machine import describe_run
from comparison.systems import Pykraft
from comparison.table import replace_between_markers
from spark_comparison import rows
from spark_comparison.results import SIDES, Results, render
from spark_comparison.session import find_connector, start_session
from spark_comparison.topics import Load, fill, loads

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
FIGURES: Final = PAGE.with_name("spark_compared.json")
MARKERS: Final = (
    "<!-- Begin of what `python benchmarks/spark.py --render` writes -->",
    "<!-- End of what `python benchmarks/spark.py --render` writes -->",
)
_PROPERTIES: Final = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
_OF_LOADS: Final[dict[str, Callable[[rows.Bench, Load], None]]] = {
    "batch": rows.batch,
    "to Parquet": rows.to_parquet,
    "stream": rows.stream,
    "sink": rows.sink,
}
_ALONE: Final = {"planning": rows.planning, "micro-batch": rows.micro_batch}
_ONLY_LZ4: Final = ("to Parquet", "sink")
"""Families whose codecs differ little from each other."""


def main() -> None:
    options = parse()
    if options.render:
        publish(merged([Results.load(path) for path in options.render]))
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="spark-"))
    try:
        results = measure(options, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(render(results, rows.ABOUT))


def parse() -> argparse.Namespace:
    names = ",".join([*_OF_LOADS, *_ALONE])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", default=names, help="default: %(default)s")
    parser.add_argument("--match", default="", help="only loads whose name this regular expression finds")
    parser.add_argument("--rounds", type=int, default=4, help="after a first one (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small loads: shows that all works")
    parser.add_argument("--out", type=Path, default=Path("build/spark.json"), help="default: %(default)s")
    parser.add_argument(
        "--render", type=Path, nargs="+", help="write the tables of docs/performance.md from these results"
    )
    options = parser.parse_args()
    unknown = set(options.families.split(",")) - {*_OF_LOADS, *_ALONE}
    if unknown:
        parser.error(f"there are no families {', '.join(sorted(unknown))}; there are {names}")
    return options


def measure(options: argparse.Namespace, directory: Path) -> Results:
    import pyspark

    families = options.families.split(",")
    jars = find_connector(pyspark.__version__)
    run = describe(options, pyspark.__version__)
    results = Results(run, options.rounds)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    matching = [load for load in loads(quick=options.quick) if re.search(options.match, load.name)]
    with Cluster(Pykraft(), directory / "cluster", 1, _PROPERTIES) as cluster:
        servers = f"127.0.0.1:{cluster.port}"
        session = start_session(jars)
        sides = SIDES if jars else SIDES[:2]
        bench = rows.Bench(session, servers, options.rounds, results, sides, directory)
        try:
            for load in matching if set(families) & set(_OF_LOADS) else []:
                fill(servers, load)
            for family in families:
                for step in _steps(family, matching, bench):
                    step()
                    results.save(options.out)
        finally:
            session.stop()
    return results


def _steps(family: str, matching: list[Load], bench: rows.Bench) -> list[Callable[[], None]]:
    if family in _ALONE:
        return [partial(_ALONE[family], bench)]
    chosen = [load for load in matching if family not in _ONLY_LZ4 or load.codec == "lz4"]
    return [partial(_OF_LOADS[family], bench, load) for load in chosen]


def describe(options: argparse.Namespace, spark_version: str) -> dict[str, Any]:
    command = f"python benchmarks/spark.py --rounds {options.rounds}" + " --quick" * options.quick
    told = describe_run(command)
    return {key: told[key] for key in ("date", "command", "pykraft", "machine")} | {
        "spark": spark_version,
        "quick": options.quick,
    }


def merged(runs: list[Results]) -> Results:
    """One of several runs: of a family that several of them measured, the last rows."""
    first, *others = runs
    for run in others:
        again = {row.family for row in run.rows}
        first.rows = [row for row in first.rows if row.family not in again] + run.rows
    return first


def publish(results: Results) -> None:
    if results.run["quick"]:
        raise SystemExit("results of --quick are not published")
    text = replace_between_markers(PAGE.read_text(encoding="utf-8"), render(results, rows.ABOUT), *MARKERS)
    PAGE.write_text(text, encoding="utf-8")
    results.save(FIGURES)


if __name__ == "__main__":
    main()
