"""``pykraft spark load``: files into a topic, each row once."""

from __future__ import annotations

from pathlib import Path

import click

from pykraft.node.cli.shared.cluster_client import admin_client
from pykraft.node.cli.shared.common import bootstrap_option
from pykraft.node.cli.spark.spark import print_count, spark_session, with_master


@click.command()
@bootstrap_option
@click.option("--topic", required=True, help="The topic that the records go to.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "json", "parquet", "text"]),
    required=True,
    help="What is in the files; .gz and other compressed ones are read, too.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of Spark for this format, such as header=true; may be repeated.",
)
@click.option(
    "--schema", metavar="DDL", help="Columns and types; without it those of the files that are there."
)
@click.option("--key", metavar="COLUMN", help="The column of the key; without it records have none.")
@click.option("--value", metavar="COLUMN", help="The column of the value; without it the whole row, as JSON.")
@click.option(
    "--checkpoint", required=True, help="The directory, or the URL, that says which files were read."
)
@click.option(
    "--at-least-once", is_flag=True, help="Without transactions: what is interrupted may be written again."
)
@click.option(
    "--max-files-per-trigger",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="The most files that are read before all of their records are acknowledged.",
)
@click.argument("path")
@with_master
def command(
    bootstrap_server: str,
    topic: str,
    file_format: str,
    options: tuple[str, ...],
    schema: str | None,
    key: str | None,
    value: str | None,
    checkpoint: str,
    at_least_once: bool,
    max_files_per_trigger: int,
    path: str,
    master: str,
) -> None:
    """Write the rows of the files in PATH (a directory or a pattern) to a topic, which must exist.

    A second call takes the files that have come since; one that was killed goes on. Exactly once for readers
    with isolation.level=read_committed.
    """
    from pykraft.spark.jobs.load import Load, load
    from pykraft.spark.writing.written_rows import WriteError

    if Path(path).is_file():
        raise click.UsageError(f"{path} is a file: give its directory, or a pattern such as {path}*")
    wrong = [option for option in options if "=" not in option]
    if wrong:
        raise click.UsageError(f"--option {wrong[0]}: NAME=VALUE is expected")
    with admin_client(bootstrap_server) as client:
        client.describe_topics([topic])
    job = Load(
        bootstrap_servers=bootstrap_server,
        topic=topic,
        path=path,
        format=file_format,
        options={name: text for name, _, text in (option.partition("=") for option in options)},
        schema=schema,
        key=key,
        value=value,
        checkpoint=checkpoint,
        delivery_guarantee="at_least_once" if at_least_once else "exactly_once",
        max_files_per_trigger=max_files_per_trigger,
    )
    with spark_session("pykraft load", master) as session:
        try:
            print_count(load(session, job))
        except WriteError as error:
            raise click.ClickException(str(error)) from error
