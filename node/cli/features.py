"""``pykraft features``, with the commands, flags and columns of kafka-features."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pykraft.kafka_client.admin_results import FeatureUpdate
from pykraft.kafka_protocol.enums import UpgradeType
from pykraft.metadata_log.features import (
    METADATA_VERSION,
    default_features,
    level_name,
    parse_metadata_version,
)
from pykraft.node.cli.cluster_client import admin_client
from pykraft.node.cli.common import (
    Cell,
    ToolGroup,
    bootstrap_option,
    json_option,
    parse_feature_levels,
    print_fields,
)

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


@click.group(cls=ToolGroup)
@bootstrap_option
@click.pass_context
def command(context: click.Context, bootstrap_server: str) -> None:
    """Show and change the levels of features for the whole cluster."""
    context.obj = bootstrap_server


@command.command()
@json_option
@click.pass_obj
def describe(bootstrap_server: str) -> None:
    """Show supported and finalized levels."""
    with admin_client(bootstrap_server) as client:
        known = client.describe_features()
    rows = [
        (
            feature.name,
            *(
                Cell(level, level_name(feature.name, level))
                for level in (feature.min_level, feature.max_level, feature.finalized_level)
            ),
            known.epoch,
        )
        for feature in known.features
    ]
    columns = ("Feature", "SupportedMinVersion", "SupportedMaxVersion", "FinalizedVersionLevel", "Epoch")
    print_fields(columns, rows)


@command.command()
@_metadata_option
@_feature_option
@_release_option
@_dry_run_option
@click.pass_obj
def upgrade(
    bootstrap_server: str,
    metadata: str | None,
    features: tuple[str, ...],
    release_version: str | None,
    dry_run: bool,
) -> None:
    """Raise levels: --release-version, or --metadata and --feature."""
    levels = parse_levels(metadata, features, release_version)
    _update(bootstrap_server, levels, UpgradeType.UPGRADE, dry_run)


@command.command()
@_metadata_option
@_feature_option
@_release_option
@_unsafe_option
@_dry_run_option
@click.pass_obj
def downgrade(
    bootstrap_server: str,
    metadata: str | None,
    features: tuple[str, ...],
    release_version: str | None,
    unsafe: bool,
    dry_run: bool,
) -> None:
    """Lower levels: --release-version, or --metadata and --feature."""
    levels = parse_levels(metadata, features, release_version)
    _update(bootstrap_server, levels, _downgrade_type(unsafe), dry_run)


@command.command()
@click.option("--feature", "features", multiple=True, required=True, metavar="NAME", help="Repeatable.")
@_unsafe_option
@_dry_run_option
@click.pass_obj
def disable(bootstrap_server: str, features: tuple[str, ...], unsafe: bool, dry_run: bool) -> None:
    """Disable features."""
    _update(bootstrap_server, dict.fromkeys(features, 0), _downgrade_type(unsafe), dry_run)


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
            return default_features(parse_metadata_version(release_version))
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


def _update(bootstrap_server: str, levels: dict[str, int], upgrade_type: UpgradeType, dry_run: bool) -> None:
    updates = [FeatureUpdate(name, level, upgrade_type) for name, level in sorted(levels.items())]
    with admin_client(bootstrap_server) as client:
        client.update_features(updates, validate_only=dry_run)
    for update in updates:
        done = "disabled" if update.level == 0 else f"set to {level_name(update.name, update.level)}"
        click.echo(f"{update.name} {'can be' if dry_run else 'was'} {done}.")
