"""``pykraft server start``: one node in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import contextlib
import socket
import sys
from pathlib import Path

import click

from pykraft.configuration.keys import ConfigError
from pykraft.node.cli.common import pairs
from pykraft.node.cli.logging_setup import set_up_logging
from pykraft.node.config import load_server_config
from pykraft.node.run import run_nodes


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
    set_up_logging(name="" if supervisor_fd is None else Path(properties_file).stem)
    try:
        text = Path(properties_file).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {properties_file}: {error.strerror}") from None
    config = load_server_config(text, pairs(overrides, "--override"))
    if supervisor_fd is None:
        sys.exit(run_nodes([config]))
    with socket.socket(fileno=supervisor_fd) as supervisor:

        def notify(_: object) -> None:
            with contextlib.suppress(OSError):  # the supervisor has ended: that stops the node anyway
                supervisor.send(b"\n")

        sys.exit(run_nodes([config], notify, supervisor=supervisor))
