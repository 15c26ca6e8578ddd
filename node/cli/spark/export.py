"""``pykraft spark export``: topics to Parquet files, each record once."""

from __future__ import annotations

import click

from pykraft.node.cli.shared.common import bootstrap_option
from pykraft.node.cli.shared.reach import check_reachable
from pykraft.node.cli.spark.spark import print_count, spark_session, with_master


@click.command()
@bootstrap_option
@click.option("--topic", "topics", multiple=True, help="A topic; may be repeated.")
@click.option("--topics-pattern", help="All topics whose whole name matches this pattern (of Python's re).")
@click.option(
    "--out",
    "directory",
    required=True,
    help="The directory, or the URL, of the files. Its _checkpoint says what they hold.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_committed",
    show_default=True,
    help="Whether records of transactions count that are open or aborted.",
)
@click.option(
    "--headers/--no-headers", default=True, show_default=True, help="Whether there is a column headers."
)
@click.option("--max-offsets-per-trigger", type=click.IntRange(min=1), help="The most that is read at once.")
@with_master
def command(
    bootstrap_server: str,
    topics: tuple[str, ...],
    topics_pattern: str | None,
    directory: str,
    isolation_level: str,
    headers: bool,
    max_offsets_per_trigger: int | None,
    master: str,
) -> None:
    """Write topics to Parquet files in OUT/topic=…/date=… (by the records' timestamps, UTC).

    A second call goes on where the first has ended; one that was killed leaves no gap and no duplicate.
    """
    from pykraft.spark.jobs.export import Export, export

    if bool(topics) == (topics_pattern is not None):
        raise click.UsageError("give either --topic or --topics-pattern")
    check_reachable(bootstrap_server)
    job = Export(
        bootstrap_servers=bootstrap_server,
        topics=topics_pattern or ",".join(topics),
        is_pattern=topics_pattern is not None,
        directory=directory,
        isolation_level=isolation_level,
        with_headers=headers,
        max_offsets_per_trigger=max_offsets_per_trigger,
    )
    with spark_session("pykraft export", master) as session:
        print_count(export(session, job))
