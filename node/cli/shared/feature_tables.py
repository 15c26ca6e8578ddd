"""``version-mapping`` and ``feature-dependencies``, which kafka-features and kafka-storage share: what this
software knows about levels of features, without a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from pykraft.metadata_log.features import (
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    REQUIRED_METADATA_VERSION,
    known_range,
    parse_metadata_version,
    release_levels,
)
from pykraft.node.cli.shared.common import json_option, pairs, print_json, wants_json


@click.command("version-mapping")
@click.option(
    "--release-version",
    "-r",
    default=max(METADATA_VERSION_NAMES.items())[1],
    show_default=True,
    metavar="VERSION",
    help="A release, or a metadata.version by its name.",
)
@json_option
def version_mapping(release_version: str) -> None:
    """Show the levels of features that belong to a version."""
    try:
        metadata_version = parse_metadata_version(release_version)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    levels = release_levels(metadata_version)
    if wants_json():
        print_json([{"feature": name, "level": level} for name, level in levels.items()])
        return
    for name, level in levels.items():
        shown = f" ({release_version})" if name == METADATA_VERSION else ""
        click.echo(f"{name}={level}{shown}")


@click.command("feature-dependencies")
@click.option(
    "--feature", "-f", "features", multiple=True, required=True, metavar="NAME=LEVEL", help="Repeatable."
)
@json_option
def feature_dependencies(features: tuple[str, ...]) -> None:
    """Show which levels of other features a level needs."""
    found = [(name, level, _requirements(name, level)) for name, level in _parse(features)]
    if wants_json():
        print_json(
            [
                {
                    "feature": name,
                    "level": level,
                    "requires": [{"feature": METADATA_VERSION, "level": needed} for needed in required],
                }
                for name, level, required in found
            ]
        )
        return
    for name, level, required in found:
        shown = f" ({METADATA_VERSION_NAMES[level]})" if name == METADATA_VERSION else ""
        if not required:
            click.echo(f"{name}={level}{shown} has no dependencies.")
            continue
        click.echo(f"{name}={level} requires:")
        for needed in required:
            click.echo(f"    {METADATA_VERSION}={needed} ({METADATA_VERSION_NAMES[needed]})")


def _parse(features: Sequence[str]) -> Iterator[tuple[str, int]]:
    for item in features:
        ((name, text),) = pairs([item], "--feature").items()
        known = known_range(name)
        if known is None:
            raise click.ClickException(f"Unknown feature: {name}")
        if not (text.isascii() and text.isdecimal()) or not known[0] <= int(text) <= known[1]:
            raise click.ClickException(f"{name} has levels {known[0]} to {known[1]}, not {text}")
        yield name, int(text)


def _requirements(name: str, level: int) -> list[int]:
    """The ``metadata.version`` that a level needs, if it needs one."""
    needed = REQUIRED_METADATA_VERSION.get((name, level))
    return [] if needed is None else [needed]
