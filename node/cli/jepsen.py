"""``pykraft jepsen``: a real cluster, real faults, a checked history."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.table import Table

from pykraft.jepsen_like.faults.checkers.findings import MEANING
from pykraft.jepsen_like.faults.clients.interface import CLIENT_THREADS
from pykraft.jepsen_like.faults.nemeses.choice import KINDS, PRESETS, choose
from pykraft.jepsen_like.faults.plain_text import PlainConsole

# Imports of node from a layer above: see the layer contract in pyproject.toml.
from pykraft.jepsen_like.faults.runs import repeating, runner
from pykraft.jepsen_like.faults.runs.conclusion import Check
from pykraft.jepsen_like.faults.runs.run_config import CLIENTS, DEFAULT_OUT_DIR, RunConfig
from pykraft.jepsen_like.faults.runs.runner import guarded
from pykraft.jepsen_like.faults.surroundings.tiers import TIERS
from pykraft.jepsen_like.faults.workloads.registry import WORKLOADS
from pykraft.kafka_client.network import parse_bootstrap_servers

_RUN_DIRECTORY = click.Path(path_type=Path, exists=True, file_okay=False)
_HISTORY = click.Path(path_type=Path, exists=True)


@click.group()
def command() -> None:
    """Inject faults into a real cluster and check its history."""


def _check_nemesis(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        kinds = choose(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if not kinds and value != "none":
        raise click.BadParameter(f"{value!r} leaves no fault; a run without faults has the nemesis none")
    return value


def _check_bootstrap_servers(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    if value is None:
        return None
    try:
        parse_bootstrap_servers(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def _refuse_options_of_own_nodes() -> None:
    context = click.get_current_context()
    for name in ("nemesis", "tier", "nodes", "system", "other_version"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = name.replace("_", "-")
            raise click.UsageError(
                f"--{option} is for nodes that the run starts: not with --bootstrap-server"
            )


@command.command()
@click.option("--workload", type=click.Choice(sorted(WORKLOADS)), default="append", show_default=True)
@click.option(
    "--nemesis",
    default="mixed",
    show_default=True,
    callback=_check_nemesis,
    help="What breaks, with commas between; `-NAME` leaves it out: see pykraft jepsen list.",
)
@click.option(
    "--tier",
    type=click.Choice(sorted(TIERS)),
    default="portable",
    show_default=True,
    help="With what it is broken: without privileges, or in namespaces and on disks of its own.",
)
@click.option(
    "--time-limit", type=click.IntRange(min=5), default=60, show_default=True, help="Seconds of faults."
)
@click.option("--seed", type=int, help="Determines the schedule of faults; random when not given.")
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many runs, with seeds from SEED on.",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=3),
    default=3,
    show_default=True,
    help="Every partition has three replicas.",
)
@click.option(
    "--system",
    type=click.Choice(["pykraft", "kafka"]),
    default="pykraft",
    show_default=True,
    help="What the nodes run. Apache Kafka needs Java, and Maven to download it once.",
)
@click.option(
    "--kafka-libs",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Its jars, instead of a download: the directory libs of its binary release.",
)
@click.option(
    "--bootstrap-server",
    "bootstrap_servers",
    metavar="HOST:PORT,…",
    callback=_check_bootstrap_servers,
    help="A cluster that somebody else runs, instead of nodes of its own; without faults.",
)
@click.option(
    "--other-version",
    metavar="DIRECTORY_OR_REVISION",
    help="What nodes are downgraded to by the nemesis versions; the newest tag of the git repository.",
)
@click.option("--client", type=click.Choice(sorted(CLIENTS)), default="confluent", show_default=True)
@click.option(
    "--out",
    "out_dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_OUT_DIR,
    show_default=True,
    help="Directory of the histories.",
)
@click.option(
    "--check-in-spark", is_flag=True, help="Check each history in Spark, as spark check-history does."
)
def run(seed: int | None, runs: int, check_in_spark: bool, **options: Any) -> None:
    """Run a workload under faults; exits 0 only if the run counts and shows no anomaly.

    1: an anomaly. 3: none, but too little happened to count. 4: it could not be carried out, or broke off.
    130: it was interrupted. The first Ctrl-C only ends the faults: what there is is checked.
    """
    if options["kafka_libs"] is not None and options["system"] != "kafka" and options["client"] != "java":
        raise click.UsageError("--kafka-libs is for --system kafka and --client java")
    if options["bootstrap_servers"] is not None:
        _refuse_options_of_own_nodes()
    options["ends_standstill"] = True
    options["time_limit_s"] = float(options.pop("time_limit"))
    options["seed"] = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    check = _spark_check() if check_in_spark else None
    try:
        status = runner.main(RunConfig(**options), runs, check)
    except SystemExit as end:  # SIGTERM
        status = int(end.code or 0)
    _exit(status)


def _exit(status: int) -> None:
    """Python would wait for threads in which a client never returns, also for daemons of their pool."""
    sys.stdout.flush()
    sys.stderr.flush()
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if any(not thread.daemon or thread.name.startswith(CLIENT_THREADS) for thread in others):
        os._exit(status)
    sys.exit(status)


@command.command("list")
def list_() -> None:
    """List workloads, tiers, what a nemesis can break, and the anomalies."""
    console = PlainConsole()
    console.print(f"[bold]workloads[/]: {', '.join(sorted(WORKLOADS))}")
    console.print(f"[bold]tiers[/]: {', '.join(sorted(TIERS))}")
    console.print(f"[bold]presets of --nemesis[/]: {', '.join(PRESETS)}")
    console.print(
        _table("nemesis", ("family", "kind", ""), [(k.family, k.name, k.does) for k in KINDS.values()])
    )
    console.print(_table("anomalies", ("name", ""), [(kind.value, means) for kind, means in MEANING.items()]))


@command.command()
@click.argument("history", type=_HISTORY)
@click.option("--in-spark", is_flag=True, help="Check it in Spark: for histories larger than memory.")
def check(history: Path, in_spark: bool) -> None:
    """Check HISTORY, a file or the directory of a run, once more.

    Exits 0 without an anomaly, 1 with one, 4 if it is no history.
    """
    console, in_another_way = PlainConsole(), _spark_check() if in_spark else None
    sys.exit(guarded(lambda: repeating.check_again(history, console, in_another_way), console))


@command.command()
@click.argument("directory", type=_RUN_DIRECTORY)
def report(directory: Path) -> None:
    """Write report.html and summary.json of the run in DIRECTORY again. Exits 4 if there is no run."""
    console = PlainConsole()
    sys.exit(guarded(lambda: repeating.report_again(directory, console), console))


@command.command()
@click.argument("directory", type=_RUN_DIRECTORY)
@click.option(
    "--tries",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Runs after which an anomaly counts as not shown.",
)
@click.option("--most-runs", type=click.IntRange(min=1), default=60, show_default=True)
def shrink(directory: Path, tries: int, most_runs: int) -> None:
    """Find fewer faults that still show the anomaly of the run in DIRECTORY.

    Exits 0 if they were found, 3 if the anomaly was not shown again, 4 if there is nothing to repeat.
    """
    console = PlainConsole()
    sys.exit(guarded(lambda: repeating.shrink_run(directory, tries, most_runs, console), console))


@command.command()
@click.argument(
    "directory", type=click.Path(path_type=Path, file_okay=False), default=DEFAULT_OUT_DIR, required=False
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8090, show_default=True, help="0: a free port."
)
def watch(directory: Path, host: str, port: int) -> None:
    """Serve a page that shows a run while it goes on, until Ctrl-C.

    The run in DIRECTORY, or the latest one of the runs in it. It needs aiohttp: pip install 'pykraft[web]'.
    """
    try:
        from pykraft.jepsen_like.faults.watch import server
    except ImportError as error:
        raise click.ClickException(f"{error}: pip install 'pykraft[web]'") from None
    try:
        server.watch(directory, host, port, click.echo)
    except OSError as error:
        raise click.ClickException(f"cannot listen at {host}:{port}: {error.strerror}") from None


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    return table


def _spark_check() -> Check:
    from pykraft.jepsen_like.faults.runs.spark_check import examine_in_spark
    from pykraft.spark.session import java_problem

    if problem := java_problem():
        raise click.ClickException(problem)
    return examine_in_spark
