"""``pykraft storage``: random-uuid, format, info."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pykraft.kafka_protocol.ids import Uuid, make_uuid, uuid_to_str
from pykraft.metadata_log.features import BOOTSTRAP_FEATURES
from pykraft.node.config import ServerConfig, load_server_config
from pykraft.node.format import (
    FormattedDirectory,
    format_directories,
    parse_initial_controllers,
    read_directory,
)
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.os_disk import OsDisk
from pykraft.runtime.properties import ConfigError


def new_uuid() -> Uuid:
    """A random id from the operating system."""
    while True:
        value = make_uuid(os.urandom(16))
        if value is not None:
            return value


def read_config(path: str) -> ServerConfig:
    """The server configuration in a file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    return load_server_config(text)


@click.group()
def command() -> None:
    """Format and inspect data directories."""


@command.command("random-uuid")
def random_uuid() -> None:
    """Print a new random id, 22 characters."""
    click.echo(uuid_to_str(new_uuid()))


_config_option = click.option(
    "-c", "--config", "config_path", required=True, metavar="FILE", help="The server.properties file."
)


@command.command("format")
@_config_option
@click.option("-t", "--cluster-id", required=True, help="The cluster's id; the same on every node.")
@click.option("-g", "--ignore-formatted", is_flag=True, help="Leave formatted directories as they are.")
@click.option("-s", "--standalone", is_flag=True, help="This controller is the only voter.")
@click.option(
    "-I", "--initial-controllers", metavar="VOTERS", help="id@host:port:directoryId,… of the first voters."
)
@click.option("-N", "--no-initial-controllers", is_flag=True, help="The voters are found later.")
def format_command(
    config_path: str,
    cluster_id: str,
    ignore_formatted: bool,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
) -> None:
    """Prepare the data directories of a node."""
    config = read_config(config_path)
    chosen = [standalone, initial_controllers is not None, no_initial_controllers]
    if sum(chosen) > 1:
        raise ConfigError("give one of --standalone, --initial-controllers and --no-initial-controllers")
    if config.static_voters is not None and any(chosen):
        raise ConfigError(
            "controller.quorum.voters names the voters already: remove it, or give none of"
            " --standalone, --initial-controllers and --no-initial-controllers"
        )
    if config.is_controller and config.static_voters is None and not any(chosen):
        raise ConfigError(
            "controller.quorum.voters is not set on this controller: give one of"
            " --standalone, --initial-controllers and --no-initial-controllers"
        )
    if not cluster_id.strip():
        raise ConfigError("--cluster-id is empty")
    voters = None if initial_controllers is None else parse_initial_controllers(initial_controllers)
    done = format_directories(
        OsDisk(),
        config,
        cluster_id,
        BOOTSTRAP_FEATURES,
        new_uuid,
        SystemClock().wall_ms(),
        initial_voters=voters,
        standalone=standalone,
        ignore_formatted=ignore_formatted,
    )
    for directory in done:
        click.echo(_describe(directory))


def _describe(directory: FormattedDirectory) -> str:
    if directory.skipped:
        return f"{directory.path} was already formatted; left as it is."
    level = BOOTSTRAP_FEATURES["metadata.version"]
    return (
        f"Formatted {directory.path}: directory id {uuid_to_str(directory.directory_id)}, "
        f"metadata.version {level}."
    )


@command.command()
@_config_option
@click.pass_context
def info(context: click.Context, config_path: str) -> None:
    """Show what is in the data directories; exits 1 if something is wrong with them."""
    config = read_config(config_path)
    disk = OsDisk()
    problems: list[str] = []
    found = {}
    click.echo("Found log directories:")
    for path in config.all_dirs:
        click.echo(f"  {path}")
        if not disk.is_dir(path):
            problems.append(f"{path} is not a directory.")
            continue
        try:
            properties = read_directory(disk, path)
        except ConfigError as error:
            problems.append(str(error))
            continue
        if properties is None:
            problems.append(f"{path} is not formatted.")
        else:
            found[path] = properties
    for path, properties in found.items():
        click.echo(f"\nFound metadata in {path}:")
        click.echo(f"  cluster.id={properties.cluster_id}")
        click.echo(f"  directory.id={uuid_to_str(properties.directory_id)}")
        click.echo(f"  node.id={properties.node_id}")
        click.echo(f"  version={properties.version}")
        if properties.node_id != config.node_id:
            problems.append(f"{path} belongs to node {properties.node_id}, not to {config.node_id}.")
    if len({properties.cluster_id for properties in found.values()}) > 1:
        problems.append("The directories belong to different clusters.")
    if problems:
        click.echo("\nFound problems:")
        for problem in problems:
            click.echo(f"  {problem}")
        context.exit(1)
