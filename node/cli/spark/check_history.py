"""``pykraft spark check-history``: the histories of fault runs, checked in Spark."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pykraft.node.cli.spark.spark import spark_session, with_master


@click.command()
@click.argument(
    "histories",
    nargs=-1,
    required=True,
    metavar="HISTORY...",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option(
    "--min-insync-replicas",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="That of the topics: nothing is guaranteed while this many disks have lost their tails.",
)
@with_master
def command(histories: tuple[Path, ...], min_insync_replicas: int, master: str) -> None:
    """Check histories of fault runs (JSON lines) for every anomaly that the fault runs check for.

    Exits with 0 if there is none, with 1 if there is one, with 4 if a file is no history.
    """
    # With node.cli.jepsen the only import of node from a layer above: see the contract in pyproject.toml.
    from pykraft.jepsen_like.faults.runs import spark_check

    with spark_session("pykraft check-history", master) as session:
        sys.exit(spark_check.main(session, histories, min_insync_replicas))
