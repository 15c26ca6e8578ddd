"""``pykraft storage``, with the commands and flags of kafka-storage."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import click

from pykraft.configuration.keys import ConfigError
from pykraft.kafka_protocol.ids import uuid_to_str
from pykraft.log_store.meta_properties import MetaProperties
from pykraft.metadata_log.features import (
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    SUPPORTED_FEATURES,
    default_features,
    known_range,
    missing_requirement,
    parse_metadata_version,
)
from pykraft.node.cli.shared.client_properties import refused_option
from pykraft.node.cli.shared.common import (
    json_option,
    parse_feature_levels,
    print_done,
    print_json,
    wants_json,
)
from pykraft.node.cli.shared.feature_tables import feature_dependencies, version_mapping
from pykraft.node.config import ServerConfig, load_server_config
from pykraft.node.format import (
    FormattedDirectory,
    format_directories,
    parse_initial_controllers,
    read_directory,
)
from pykraft.node.incarnation import draw_uuid
from pykraft.node.os_errors import describe
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.disk import Disk
from pykraft.runtime.os_disk import OsDisk


def read_config(path: str) -> ServerConfig:
    """The server configuration in a file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {describe(error, path)}") from None
    return load_server_config(text)


@click.group()
def command() -> None:
    """Format and inspect data directories."""


command.add_command(version_mapping)
command.add_command(feature_dependencies)


@command.command("random-uuid")
@json_option
def random_uuid() -> None:
    """Print a new random id, 22 characters."""
    drawn = uuid_to_str(draw_uuid(os.urandom))
    print_done(drawn, uuid=drawn)


_config_option = click.option(
    "-c", "--config", "config_path", required=True, metavar="FILE", help="The server.properties file."
)


@command.command("format")
@_config_option
@click.option("-t", "--cluster-id", required=True, help="The cluster's id; the same on every node.")
@click.option("-g", "--ignore-formatted", is_flag=True, help="Do not change formatted directories.")
@click.option("-s", "--standalone", is_flag=True, help="This controller is the only voter.")
@click.option(
    "-I", "--initial-controllers", metavar="VOTERS", help="id@host:port:directoryId,… of the first voters."
)
@click.option("-N", "--no-initial-controllers", is_flag=True, help="The voters are discovered later.")
@click.option(
    "-r", "--release-version", metavar="VERSION", help="Start the cluster with the levels of this version."
)
@click.option(
    "-f", "--feature", "features", multiple=True, metavar="NAME=LEVEL", help="A feature's level; repeatable."
)
@refused_option("--add-scram", "there is no SASL")
@json_option
def format_command(
    config_path: str,
    cluster_id: str,
    ignore_formatted: bool,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    release_version: str | None,
    features: tuple[str, ...],
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
    levels = _bootstrap_features(release_version, features)
    voters = None if initial_controllers is None else parse_initial_controllers(initial_controllers)
    done = format_directories(
        OsDisk(),
        config,
        cluster_id,
        levels,
        partial(draw_uuid, os.urandom),
        SystemClock().wall_ms(),
        initial_voters=voters,
        standalone=standalone,
        ignore_formatted=ignore_formatted,
    )
    if wants_json():
        print_json([_directory_json(directory) for directory in done])
        return
    for directory in done:
        click.echo(_describe(directory, levels[METADATA_VERSION]))


def _bootstrap_features(release_version: str | None, features: tuple[str, ...]) -> dict[str, int]:
    """The levels that the first controller of the cluster finalizes."""
    given = parse_feature_levels(features)
    if release_version is not None and METADATA_VERSION in given:
        raise ConfigError("give one of --release-version and --feature metadata.version")
    try:
        first = None if release_version is None else parse_metadata_version(release_version)
    except ValueError as error:
        raise ConfigError(f"--release-version: {error}") from None
    levels = default_features(first or given.get(METADATA_VERSION, LATEST_METADATA_VERSION)) | given
    for name, level in sorted(levels.items()):
        low, high = known_range(name) or (0, -1)
        if name == KRAFT_VERSION or not low <= level <= high:
            raise ConfigError(_unusable_level(name, level))
    reason = missing_requirement(levels)
    if reason is not None:
        raise ConfigError(f"--feature: {reason}")
    return {name: level for name, level in levels.items() if level > 0}


def _unusable_level(name: str, level: int) -> str:
    if name == KRAFT_VERSION:
        return "--feature kraft.version: it follows from the options that name the first controllers"
    known = known_range(name)
    if known is None:
        return f"--feature {name}: unknown; known are {', '.join(sorted(SUPPORTED_FEATURES))}"
    low, high = known
    return f"--feature {name}: {level} is not supported, only {low} to {high}"


def _describe(directory: FormattedDirectory, metadata_version: int) -> str:
    if directory.skipped:
        return f"{directory.path} was already formatted; not changed."
    return (
        f"Formatted {directory.path}: directory id {uuid_to_str(directory.directory_id)}, "
        f"metadata.version {METADATA_VERSION_NAMES[metadata_version]}."
    )


def _directory_json(directory: FormattedDirectory) -> dict[str, object]:
    return {
        "path": directory.path,
        "directoryId": uuid_to_str(directory.directory_id),
        "formatted": not directory.skipped,
    }


@command.command()
@_config_option
@json_option
@click.pass_context
def info(context: click.Context, config_path: str) -> None:
    """Show the content of the data directories; exits 1 if they have problems."""
    config = read_config(config_path)
    found, problems = _look_into(OsDisk(), config)
    if wants_json():
        directories = [{"path": path, **_meta_json(found.get(path))} for path in config.all_dirs]
        print_json({"directories": directories, "problems": problems})
    else:
        click.echo("Found log directories:")
        for path in config.all_dirs:
            click.echo(f"  {path}")
        for path, properties in found.items():
            click.echo(f"\nFound metadata in {path}:")
            click.echo(f"  cluster.id={properties.cluster_id}")
            click.echo(f"  directory.id={uuid_to_str(properties.directory_id)}")
            click.echo(f"  node.id={properties.node_id}")
            click.echo(f"  version={properties.version}")
        if problems:
            click.echo("\nFound problems:")
        for problem in problems:
            click.echo(f"  {problem}")
    if problems:
        context.exit(1)


def _look_into(disk: Disk, config: ServerConfig) -> tuple[dict[str, MetaProperties], list[str]]:
    """The properties of each formatted directory, and the problems found."""
    problems: list[str] = []
    found = {}
    for path in config.all_dirs:
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
            continue
        found[path] = properties
        if properties.node_id != config.node_id:
            problems.append(f"{path} belongs to node {properties.node_id}, not to {config.node_id}.")
    if len({properties.cluster_id for properties in found.values()}) > 1:
        problems.append("The directories belong to different clusters.")
    return found, problems


def _meta_json(properties: MetaProperties | None) -> dict[str, object]:
    if properties is None:
        return {}
    return {
        "clusterId": properties.cluster_id,
        "directoryId": uuid_to_str(properties.directory_id),
        "nodeId": properties.node_id,
        "version": properties.version,
    }
