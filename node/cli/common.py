"""Shared code of the commands: the bootstrap option, ``key=value`` options, and the printing of results.

Tables have the columns of Kafka's tools. With ``--json`` they become objects whose keys are in camelCase, as
everywhere in Kafka's own JSON. A server start imports this file, too: code that needs a client of the cluster
is in ``cluster_client``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import click

from pykraft.configuration.keys import nearest_key
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.features import METADATA_VERSION, parse_metadata_version

BOOTSTRAP_VARIABLE: Final = "PYKRAFT_BOOTSTRAP_SERVER"
_JSON: Final = "pykraft.json"

bootstrap_option = click.option(
    "--bootstrap-server",
    required=True,
    envvar=BOOTSTRAP_VARIABLE,
    show_envvar=True,
    metavar="HOST:PORT,…",
    help="One or more brokers to connect to first.",
)


def _remember(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    context.meta[_JSON] = wanted


json_option = click.option(
    "--json", is_flag=True, expose_value=False, callback=_remember, help="Print JSON instead of text."
)


def wants_json() -> bool:
    """Whether the running command was given :data:`json_option`."""
    return bool(click.get_current_context().meta.get(_JSON))


class ToolGroup(click.Group):
    """A tool with commands of its own; their help is shown without the tool's required options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asked_at = next((at for at, arg in enumerate(args) if arg in ctx.help_option_names), 0)
        # Resilient parsing does not require options, but shows no help either: the command does.
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


class Properties:
    """The ``--property`` options of a tool; unknown ones are refused."""

    def __init__(self, items: Iterable[str], known: Sequence[str]) -> None:
        self._given = pairs(items, "--property")
        for name in self._given:
            if name not in known:
                nearest = nearest_key(name, known)
                hint = f"did you mean {nearest}?" if nearest else f"known are {', '.join(known)}"
                raise click.UsageError(f"--property {name}: unknown; {hint}")

    def text(self, name: str) -> str | None:
        return self._given.get(name)

    def flag(self, name: str) -> bool:
        value = self._given.get(name, "false").lower()
        if value not in ("true", "false"):
            raise click.UsageError(f"--property {name}: {value!r} is neither true nor false")
        return value == "true"

    def separator(self, name: str) -> bytes:
        """A text that is not empty; a tab by default."""
        value = self._given.get(name, "\t")
        if not value:
            raise click.UsageError(f"--property {name} is empty")
        return value.encode()


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


@dataclass(frozen=True, slots=True)
class Cell:
    """A value with one text in a table and a structure in JSON."""

    value: object
    text: str

    def __str__(self) -> str:
        return self.text


def json_key(column: str) -> str:
    """The name of a column in JSON: ``LOG-END-OFFSET`` and ``LogEndOffset`` → ``logEndOffset``."""
    words: list[str] = re.findall(r"[A-Z][a-z]+|[A-Z]+", column.partition(" (")[0])
    if column.startswith("#"):
        words.insert(0, "num")
    first, *rest = words
    return first.lower() + "".join(word.capitalize() for word in rest)


def print_json(value: object) -> None:
    click.echo(json.dumps(value))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, tabs: bool = False) -> None:
    """Columns aligned as Kafka's tools align them; in JSON an array of objects.

    ``tabs``: to the last space, with a tab after each cell, as the tools print that share Kafka's own function.
    """
    if wants_json():
        print_json(_objects(columns, rows))
        return
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(len(line[n]) for line in [list(columns), *texts]) for n in range(len(columns))]
    for line in [list(columns), *texts]:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        click.echo("".join(f"{cell}\t" for cell in cells) if tabs else "  ".join(cells).rstrip())


def print_fields(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A line of ``name: value`` per row; in JSON as :func:`print_table`."""
    if wants_json():
        print_json(_objects(columns, rows))
        return
    for row in rows:
        click.echo("\t".join(f"{column}: {cell}" for column, cell in zip(columns, row, strict=True)))


def _objects(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[dict[str, object]]:
    keys = list(map(json_key, columns))
    plain = [[cell.value if isinstance(cell, Cell) else cell for cell in row] for row in rows]
    return [dict(zip(keys, row, strict=True)) for row in plain]
