"""``pykraft dev``: a ready cluster in one command.

One node runs in this process. Several nodes run in one process each, as with ``pykraft server start``: they
share no event loop, and one can be killed to see how the others react. With ``--detach`` the command returns
when the cluster is ready, and ``status``, ``logs`` and ``stop`` find it by its name.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from datetime import datetime
from importlib.util import find_spec

import click

from pykraft.configuration.keys import ConfigError
from pykraft.kafka_client.results import NewTopic
from pykraft.node.cli.dev.detached import TAIL_LINES, follow, start_detached, stop_detached, tail
from pykraft.node.cli.dev.run import DevOptions, run_cluster, summary
from pykraft.node.cli.dev.state import Home, check_name, known_homes
from pykraft.node.cli.dev.topics import check_replicas, parse_topics
from pykraft.node.cli.shared.common import pairs
from pykraft.node.cli.shared.logging_setup import LEVEL_VARIABLE
from pykraft.runtime.free_ports import first_of_free_ports

DEFAULT_PORT = 9092
HTTP_PORT = 9080
"""Where the console is beside :data:`DEFAULT_PORT`."""
DEFAULT_NAME = "dev"
_WEB = ("aiohttp", "prometheus_client", "jinja2")
EXIT_NOT_RUNNING = 3
"""As of a service that does not run."""

_name = click.option(
    "--name", default=DEFAULT_NAME, show_default=True, callback=check_name, help="Of a detached cluster."
)


@click.group(invoke_without_command=True)
@click.option("--nodes", type=click.IntRange(1, 9), default=1, show_default=True, help="How many nodes.")
@click.option("--data-dir", help="The data directory; by default a temporary one, removed at the end.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True,
              help="The first broker's port, the others follow; 0: free ports.")  # fmt: skip
@click.option("--http-port", type=click.IntRange(0, 65535),
              help="The first node's port of console and metrics, the others follow; 0: free ports, as beside"
              f" a --port of one's own. By default {HTTP_PORT}, or the next that is free.")  # fmt: skip
@click.option("--no-http", is_flag=True, help="Without console and metrics.")
@click.option(
    "--topics",
    multiple=True,
    metavar="NAME:PARTITIONS:RF",
    callback=parse_topics,
    help="Topics to create, with commas between; repeatable.",
)
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A server property; repeatable."
)
@click.option("--one-process", is_flag=True, help="Run several nodes in one process: cheap, for short tests.")
@click.option("--verbose", is_flag=True, help="Show the server's log.")
@click.option("--detach", is_flag=True, help="Return when the cluster is ready; `pykraft dev stop` stops it.")
@_name
@click.option("--detached-as", hidden=True)
@click.option("--ready-fd", type=int, hidden=True)
@click.pass_context
def command(
    context: click.Context,
    nodes: int,
    data_dir: str | None,
    host: str,
    port: int,
    http_port: int | None,
    no_http: bool,
    topics: tuple[NewTopic, ...],
    overrides: tuple[str, ...],
    one_process: bool,
    verbose: bool,
    detach: bool,
    name: str,
    detached_as: str | None,
    ready_fd: int | None,
) -> None:
    """Run a cluster without configuration, until Ctrl-C."""
    if context.invoked_subcommand is not None:
        return
    check_replicas(topics, nodes)
    options = DevOptions(
        nodes=nodes,
        data_dir=data_dir,
        host=host,
        port=port,
        http_port=None if no_http else _find_http_port(http_port, host, port, nodes),
        topics=topics,
        overrides=pairs(overrides, "--override"),
        one_process=one_process,
        log_level="INFO" if verbose or detached_as else os.environ.get(LEVEL_VARIABLE) or "WARNING",
        home=None if detached_as is None else Home(detached_as),
        ready_fd=ready_fd,
    )
    if detach:
        state = start_detached(Home(name), options.to_arguments())
        said = [f"{topic.name}: created, or was there before" for topic in topics]
        named = "" if name == DEFAULT_NAME else f" --name {name}"
        for line in summary(state, said, f"`pykraft dev stop{named}` stops the cluster."):
            click.echo(line)
        return
    sys.exit(run_cluster(options))


def _find_http_port(given: int | None, host: str, port: int, nodes: int) -> int | None:
    """None, and a hint, if the packages are missing that console and metrics need."""
    if any(find_spec(name) is None for name in _WEB):
        if given:
            raise ConfigError("--http-port needs pip install 'pykraft[web]'")
        click.echo("Without console and metrics, which need: pip install 'pykraft[web]'", err=True)
        return None
    if given is None and port == DEFAULT_PORT:
        return first_of_free_ports(host, HTTP_PORT, nodes)
    return given or 0


@command.command()
@_name
@click.option("--all", "show_all", is_flag=True, help="All detached clusters.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(name: str, show_all: bool, as_json: bool) -> None:
    """Show a detached cluster; exits 3 if it does not run."""
    homes = list(known_homes()) if show_all else [Home(name)]
    running = {home.name: home.read() if home.is_held else None for home in homes}
    if as_json:
        click.echo(json.dumps({name: state and asdict(state) for name, state in running.items()}, indent=2))
    for name, state in running.items() if not as_json else ():
        if state is None:
            click.echo(f"{name}: {click.style('not running', fg='red')}")
            continue
        since = datetime.fromtimestamp(state.started_ms / 1000).isoformat(" ", "seconds")
        click.echo(f"{name}: {click.style('running', fg='green')} since {since}, process {state.process_id}")
        for line in summary(state):
            click.echo(f"  {line}")
    if not any(running.values()):
        sys.exit(EXIT_NOT_RUNNING)


@command.command()
@_name
def stop(name: str) -> None:
    """Stop a detached cluster in order; exits 3 if it does not run."""
    if not stop_detached(Home(name)):
        click.echo(f"{name} does not run", err=True)
        sys.exit(EXIT_NOT_RUNNING)
    click.echo(f"{name} is stopped")


@command.command()
@_name
@click.option("--follow", "-f", "follows", is_flag=True, help="Go on with what is added.")
@click.option("--lines", "-n", type=click.IntRange(0), default=TAIL_LINES, show_default=True,
              help="How many of the last lines.")  # fmt: skip
def logs(name: str, follows: bool, lines: int) -> None:
    """Print the log of a detached cluster, also of one that has ended."""
    home = Home(name)
    if not home.log.exists():
        raise click.ClickException(f"there is no log of a cluster {name}")
    click.echo("".join(tail(home, lines) if lines else ()), nl=False)
    if follows:
        follow(home)
