"""``pykraft jepsen run``: a real cluster, real faults, a checked history."""

from __future__ import annotations

import sys

import click


@click.group()
def command() -> None:
    """Inject faults into a real cluster and check its history."""


@command.command()
@click.option(
    "--workload",
    type=click.Choice(["append", "changes", "groups", "moves", "transactions"]),
    default="append",
    show_default=True,
)
@click.option(
    "--time-limit", type=click.IntRange(min=5), default=60, show_default=True, help="Seconds of faults."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Determines the schedule of faults.")
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many runs, with seeds from SEED on.",
)
@click.option("--out", "out_dir", default="out/jepsen", show_default=True, help="Directory of the histories.")
@click.option(
    "--check-in-spark", is_flag=True, help="Check each history in Spark, as spark check-history does."
)
def run(workload: str, time_limit: int, seed: int, runs: int, out_dir: str, check_in_spark: bool) -> None:
    """Run a workload under faults; exits 0 only if the run counts and shows no anomaly."""
    # An import of node from a layer above: see the layer contract in pyproject.toml.
    from pykraft.jepsen_like.runner import main

    check = None
    if check_in_spark:
        from pykraft.jepsen_like.spark_check import examine_in_spark
        from pykraft.spark.session import java_problem

        if problem := java_problem():
            raise click.ClickException(problem)
        check = examine_in_spark
    sys.exit(
        main(workload=workload, time_limit=time_limit, seed=seed, runs=runs, out_dir=out_dir, check=check)
    )
