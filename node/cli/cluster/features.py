"""``pykraft features``, with the commands, flags and columns of kafka-features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from pykraft.kafka_client.results import ClusterFeatures, FeatureUpdate
from pykraft.kafka_protocol.enums import UpgradeType
from pykraft.metadata_log.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    level_name,
    parse_metadata_version,
    release_levels,
)
from pykraft.node.cli.shared.cluster_client import Target, cluster_options
from pykraft.node.cli.shared.common import (
    json_key,
    json_option,
    parse_feature_levels,
    print_json,
    say,
    wants_json,
)
from pykraft.node.cli.shared.feature_tables import feature_dependencies, version_mapping

_WIDTHS: Final = {
    "Feature": 40,
    "SupportedMinVersion": 15,
    "SupportedMaxVersion": 15,
    "FinalizedVersionLevel": 15,
    "Epoch": 0,
}
"""The columns of a description, with their widths in Kafka's tool."""

_feature_option = click.option(
    "--feature", "features", multiple=True, metavar="NAME=LEVEL", help="A feature and its level; repeatable."
)
_metadata_option = click.option(
    "--metadata", metavar="VERSION", help="The metadata.version, such as 4.1-IV1."
)
_release_option = click.option(
    "--release-version", metavar="VERSION", help="The levels of a new cluster of this version."
)
_dry_run_option = click.option("--dry-run", is_flag=True, help="Only check; change nothing.")
_unsafe_option = click.option("--unsafe", is_flag=True, help="Allow it even if the feature loses its data.")


@click.group()
@cluster_options(controllers=True)
@click.pass_context
def command(context: click.Context, /, target: Target) -> None:
    """Show and change the levels of features for the whole cluster."""
    context.obj = target


command.add_command(version_mapping)
command.add_command(feature_dependencies)


@command.command()
@click.option(
    "--node-id", type=click.IntRange(min=0), help="Ask this broker, or controller; otherwise any of them."
)
@json_option
@click.pass_obj
def describe(target: Target, node_id: int | None) -> None:
    """Show supported and finalized levels."""
    if node_id is not None:
        target = _only(target, node_id)
    with target.client() as client:
        known = client.describe_features()
    if wants_json():
        print_json([dict(zip(map(json_key, _WIDTHS), row, strict=True)) for row in _rows(known)])
        return
    for name, *levels, epoch in _rows(known):
        cells = (name, *(level_name(name, level) for level in levels), epoch)
        texts = zip(_WIDTHS.items(), cells, strict=True)
        click.echo("  ".join(f"{column}: {cell:<{width}}" for (column, width), cell in texts))


def _rows(known: ClusterFeatures) -> list[tuple[str, int, int, int, int]]:
    return [(it.name, it.min_level, it.max_level, it.finalized_level, known.epoch) for it in known.features]


def _only(target: Target, node_id: int) -> Target:
    """The target, reduced to one node."""
    with target.client() as client:
        nodes = client.describe_cluster(controllers=target.is_controllers).brokers
    address = next((f"{it.host}:{it.port}" for it in nodes if it.id == node_id), None)
    if address is None:
        known = ", ".join(str(it.id) for it in nodes)
        raise click.ClickException(f"there is no node {node_id}; known are {known}")
    return target.at(address)


@command.command()
@_metadata_option
@_feature_option
@_release_option
@_dry_run_option
@json_option
@click.pass_obj
def upgrade(
    target: Target,
    metadata: str | None,
    features: tuple[str, ...],
    release_version: str | None,
    dry_run: bool,
) -> None:
    """Raise levels: --release-version, or --metadata and --feature."""
    levels = parse_levels(metadata, features, release_version)
    if release_version is not None:
        levels = {name: level for name, level in levels.items() if level > 0}
    _update(target, "upgrade", levels, UpgradeType.UPGRADE, dry_run)


@command.command()
@_metadata_option
@_feature_option
@_release_option
@_unsafe_option
@_dry_run_option
@json_option
@click.pass_obj
def downgrade(
    target: Target,
    metadata: str | None,
    features: tuple[str, ...],
    release_version: str | None,
    unsafe: bool,
    dry_run: bool,
) -> None:
    """Lower levels: --release-version, or --metadata and --feature."""
    levels = parse_levels(metadata, features, release_version)
    if release_version is not None:
        del levels[KRAFT_VERSION]  # it cannot be lowered
    _update(target, "downgrade", levels, _downgrade_type(unsafe), dry_run)


@command.command()
@click.option("--feature", "features", multiple=True, required=True, metavar="NAME", help="Repeatable.")
@_unsafe_option
@_dry_run_option
@json_option
@click.pass_obj
def disable(target: Target, features: tuple[str, ...], unsafe: bool, dry_run: bool) -> None:
    """Disable features."""
    _update(target, "disable", dict.fromkeys(features, 0), _downgrade_type(unsafe), dry_run)


def parse_levels(
    metadata: str | None, features: Sequence[str], release_version: str | None
) -> dict[str, int]:
    """The levels in the options; a usage error if there are none, or they contradict each other."""
    if release_version is not None and (metadata is not None or features):
        raise click.UsageError(
            "--release-version sets all features: give neither --metadata nor --feature with it"
        )
    try:
        if release_version is not None:
            return release_levels(parse_metadata_version(release_version))
        levels = {} if metadata is None else {METADATA_VERSION: parse_metadata_version(metadata)}
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    for name, level in parse_feature_levels(features).items():
        if name in levels:
            raise click.UsageError(f"{name} is given twice")
        levels[name] = level
    if not levels:
        raise click.UsageError("give --release-version, --metadata or --feature")
    return levels


def _downgrade_type(unsafe: bool) -> UpgradeType:
    return UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE


def _update(
    target: Target, verb: str, levels: dict[str, int], upgrade_type: UpgradeType, dry_run: bool
) -> None:
    updates = [FeatureUpdate(name, level, upgrade_type) for name, level in sorted(levels.items())]
    with target.client() as client:
        present = {it.name: it.finalized_level for it in client.describe_features().features}
        client.update_features(updates, validate_only=dry_run)
    if wants_json():
        print_json([{"feature": it.name, "level": it.level, "dryRun": dry_run} for it in updates])
    for update in updates:
        level = level_name(update.name, update.level)
        if present.get(update.name, 0) == update.level:
            say(f"{update.name} is at {level} already.")
            continue
        done = "disabled" if verb == "disable" else f"{verb}d to {level}"
        if update.name == METADATA_VERSION and verb != "upgrade":
            done += ": no metadata is lost"  # otherwise it would have been refused
        say(f"{update.name} {'can be' if dry_run else 'was'} {done}.")
