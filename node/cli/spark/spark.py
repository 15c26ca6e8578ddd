"""``pykraft spark JOB``: jobs that run in Spark, on this machine or wherever ``spark-submit`` sends them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from pykraft.node.cli.shared.lazy_group import LazyGroup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOBS: Mapping[str, tuple[str, str]] = {
    "audit-segments": (
        "pykraft.node.cli.spark.audit_segments",
        "Check and compare segment files of replicas.",
    ),
    "check-history": ("pykraft.node.cli.spark.check_history", "Check histories of fault runs for anomalies."),
    "export": ("pykraft.node.cli.spark.export", "Write topics to Parquet files, each record once."),
    "load": ("pykraft.node.cli.spark.load", "Write the rows of files to a topic, each once."),
    "lag-report": ("pykraft.node.cli.spark.lag_report", "Show how far consumer groups are behind."),
}

command = LazyGroup("spark", commands_in=_JOBS, help="Run jobs over topics in Spark.")

with_master = click.option(
    "--master",
    default="local[*]",
    show_default=True,
    help="Where Spark runs; spark-submit has its own option.",
)


@contextmanager
def spark_session(app_name: str, master: str) -> Iterator[SparkSession]:
    """A session for one job. What Spark needs and does not find is said in one line, and so is what it cannot
    make a query of, such as a path that does not exist, and why a stream has failed."""
    from pyspark.errors import AnalysisException, StreamingQueryException

    from pykraft.spark.jobs.query import innermost_error
    from pykraft.spark.jobs.session import job_session
    from pykraft.spark.session import java_problem

    if problem := java_problem():
        raise click.ClickException(problem)
    try:
        with job_session(app_name, master) as session:
            yield session
    except AnalysisException as error:
        raise click.ClickException(str(error).partition("\n")[0]) from error
    except StreamingQueryException as error:
        raise click.ClickException(innermost_error(str(error))) from error


def print_count(records: int) -> None:
    """Print the count of a job that takes what is there."""
    click.echo(f"{records:,} records" if records else "there was nothing new")
