"""``pykraft server start``: one node in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import sys

import click

from pykraft.node.cli.plain_start import start_node
from pykraft.node.cli.shared.common import pairs


@click.group()
def command() -> None:
    """Run a node."""


@command.command()
@click.argument("properties_file", metavar="SERVER.PROPERTIES")
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Replaces a property; repeatable."
)
@click.option(
    "--supervisor-fd",
    type=int,
    hidden=True,
    help="A socket: write to it after the start, stop when it is closed.",
)
def start(properties_file: str, overrides: tuple[str, ...], supervisor_fd: int | None) -> None:
    """Start the node that a properties file describes; its directories must be formatted."""
    sys.exit(start_node(properties_file, pairs(overrides, "--override"), supervisor_fd))
