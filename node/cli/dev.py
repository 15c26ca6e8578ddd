"""``pykraft dev``: a ready cluster in one command."""

from __future__ import annotations

import sys
import tempfile

import click

from pykraft.node.cli.common import pairs
from pykraft.node.cli.logging_setup import set_up_logging
from pykraft.node.dev_cluster import prepare_dev_cluster
from pykraft.node.incarnation import new_uuid
from pykraft.node.run import run_nodes
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.os_disk import OsDisk
from pykraft.runtime.properties import ConfigError

DEFAULT_PORT = 9092


@click.command()
@click.option("--nodes", type=click.IntRange(1, 9), default=1, show_default=True, help="How many nodes.")
@click.option("--data-dir", help="Where data is kept; a temporary directory by default, removed at the end.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True,
              help="The first broker's port, the others follow; 0: free ports.")  # fmt: skip
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A server property; repeatable."
)
@click.option("--verbose", is_flag=True, help="Show the server's log.")
def command(
    nodes: int, data_dir: str | None, host: str, port: int, overrides: tuple[str, ...], verbose: bool
) -> None:
    """Run a cluster with nothing to configure, until Ctrl-C."""
    set_up_logging("INFO" if verbose else "WARNING")
    settings = pairs(overrides, "--override")
    if data_dir is not None:
        sys.exit(_run(data_dir, nodes, host, port, settings))
    with tempfile.TemporaryDirectory(prefix="pykraft-dev-") as directory:
        code = _run(directory, nodes, host, port, settings)
    sys.exit(code)


def _run(directory: str, nodes: int, host: str, port: int, overrides: dict[str, str]) -> int:
    try:
        cluster = prepare_dev_cluster(
            OsDisk(),
            directory,
            nodes,
            new_uuid,
            SystemClock().wall_ms(),
            host=host,
            port=port,
            overrides=overrides,
        )
    except OSError as error:
        raise ConfigError(f"cannot prepare {directory}: {error}") from None

    def announce(_: object) -> None:
        click.echo(f"Bootstrap servers: {cluster.bootstrap_servers}")
        click.echo(f"Data: {directory}. Ctrl-C stops the cluster.")

    return run_nodes(cluster.configs, announce)
