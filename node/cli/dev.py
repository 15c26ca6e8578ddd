"""``pykraft dev``: a ready cluster in one command.

One node runs in this process. Several nodes run in one process each, as with ``pykraft server start``: they
share no event loop, and one can be killed to see how the others react.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click

from pykraft.configuration.keys import ConfigError
from pykraft.node.cli.common import pairs
from pykraft.node.cli.lazy import import_late
from pykraft.node.cli.logging_setup import LEVEL_VARIABLE, set_up_logging
from pykraft.node.dev_cluster import DevCluster, prepare_dev_cluster
from pykraft.node.incarnation import draw_uuid
from pykraft.node.supervisor import interpreter_command, supervise
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.os_disk import OsDisk

DEFAULT_PORT = 9092


@click.command()
@click.option("--nodes", type=click.IntRange(1, 9), default=1, show_default=True, help="How many nodes.")
@click.option("--data-dir", help="The data directory; by default a temporary one, removed at the end.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True,
              help="The first broker's port, the others follow; 0: free ports.")  # fmt: skip
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A server property; repeatable."
)
@click.option("--one-process", is_flag=True, help="Run several nodes in one process: cheap, for short tests.")
@click.option("--verbose", is_flag=True, help="Show the server's log.")
def command(
    nodes: int,
    data_dir: str | None,
    host: str,
    port: int,
    overrides: tuple[str, ...],
    one_process: bool,
    verbose: bool,
) -> None:
    """Run a cluster without configuration, until Ctrl-C."""
    log_level = "INFO" if verbose else os.environ.get(LEVEL_VARIABLE) or "WARNING"
    set_up_logging(log_level)
    settings = pairs(overrides, "--override")
    with _directory(data_dir) as (directory, remove):
        cluster = _prepare(directory, nodes, host, port, settings)
        if nodes == 1 or one_process:
            code = _run_here(cluster, directory, remove)
        else:
            code = _run_processes(cluster, directory, log_level)
    sys.exit(code)


@contextmanager
def _directory(given: str | None) -> Iterator[tuple[str, Callable[[], None]]]:
    """The data directory, and a function to call if this process ends without leaving the context."""
    if given is not None:
        yield given, lambda: None
        return
    # Before the event loop handles these signals, they would end the process without the cleanup.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    directory = tempfile.TemporaryDirectory(prefix="pykraft-dev-", ignore_cleanup_errors=True)
    try:
        yield directory.name, directory.cleanup
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        directory.cleanup()


def _prepare(directory: str, nodes: int, host: str, port: int, overrides: Mapping[str, str]) -> DevCluster:
    now_ms, new_uuid = SystemClock().wall_ms(), partial(draw_uuid, os.urandom)
    try:
        return prepare_dev_cluster(
            OsDisk(), directory, nodes, new_uuid, now_ms, host=host, port=port, overrides=overrides
        )
    except OSError as error:
        raise ConfigError(f"cannot prepare {directory}: {error}") from None


def _run_here(cluster: DevCluster, directory: str, remove: Callable[[], None]) -> int:
    run_nodes: Callable[..., int] = import_late("pykraft.node.run").run_nodes
    return run_nodes(cluster.configs, lambda _: _announce(cluster, directory), on_abandon=remove)


def _run_processes(cluster: DevCluster, directory: str, log_level: str) -> int:
    commands = {}
    for config, properties in zip(cluster.configs, cluster.properties, strict=True):
        file = Path(directory, f"node-{config.node_id}.properties")
        file.write_text(f"# Written by every `pykraft dev`.\n{properties}", encoding="utf-8")
        commands[config.node_id] = partial(_server_command, str(file))

    def announce(process_ids: Mapping[int, int]) -> None:
        for config in cluster.configs:
            listener = config.broker_listeners[0]
            click.echo(
                f"Node {config.node_id}: {listener.host}:{listener.port}, process {process_ids[config.node_id]}"
            )
        _announce(cluster, directory)

    environment = os.environ | {LEVEL_VARIABLE: log_level}
    return supervise(commands, environment, announce, lambda text: click.echo(text, err=True))


def _server_command(file: str, supervisor_fd: int) -> Sequence[str]:
    arguments = ("server", "start", file, "--supervisor-fd", str(supervisor_fd))
    return [*interpreter_command(), "-m", "pykraft.node", *arguments]


def _announce(cluster: DevCluster, directory: str) -> None:
    click.echo(f"Bootstrap servers: {cluster.bootstrap_servers}")
    click.echo(f"Bootstrap controllers: {cluster.bootstrap_controllers}")
    click.echo(f"Data: {directory}. Ctrl-C stops the cluster.")
