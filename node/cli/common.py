"""What the client commands share: the bootstrap option, ``key=value`` options, plain tables.

A server start imports this file too: what needs a client of the cluster stands in ``cluster_client``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import click

from pykraft.metadata_log.features import METADATA_VERSION, parse_metadata_version

bootstrap_option = click.option(
    "--bootstrap-server", required=True, metavar="HOST:PORT,…", help="One or more brokers to start from."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


class ToolGroup(click.Group):
    """A tool with commands of its own, whose help is to be had without the tool's required options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asked_at = next((at for at, arg in enumerate(args) if arg in ctx.help_option_names), 0)
        # Resilient parsing misses nothing, but shows no help either: the command is to do that.
        ctx.resilient_parsing = any(arg in self.commands for arg in args[:asked_at])
        try:
            return super().parse_args(ctx, args)
        finally:
            ctx.resilient_parsing = False


def pairs(items: Iterable[str], option: str) -> dict[str, str]:
    """``key=value`` options as a dictionary."""
    parsed = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise click.UsageError(f"{option} {item!r} is not key=value")
        parsed[key.strip()] = value
    return parsed


def parse_feature_levels(items: Sequence[str]) -> dict[str, int]:
    """``--feature name=level`` options; a ``metadata.version`` may be written as its name."""
    levels: dict[str, int] = {}
    for item in items:
        ((name, text),) = pairs([item], "--feature").items()
        if name in levels:
            raise click.UsageError(f"--feature {name} is given twice")
        if text.isascii() and text.isdecimal() and len(text) < 6:
            levels[name] = int(text)
            continue
        try:
            levels[name] = parse_metadata_version(text if name == METADATA_VERSION else "")
        except ValueError:
            raise click.UsageError(f"--feature {name}: {text!r} is not a level") from None
    return levels


def one_action(chosen: Mapping[str, bool]) -> str:
    """The single action among flags; a usage error if there is none or more than one."""
    names = [name for name, given in chosen.items() if given]
    if len(names) != 1:
        raise click.UsageError("give exactly one of " + ", ".join(f"--{name}" for name in chosen))
    return names[0]


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], as_json: bool = False) -> None:
    """Columns aligned as Kafka's tools align them, or a JSON array of objects."""
    if as_json:
        click.echo(json.dumps([dict(zip(columns, row, strict=True)) for row in rows]))
        return
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(len(line[n]) for line in [list(columns), *texts]) for n in range(len(columns))]
    for line in [list(columns), *texts]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
