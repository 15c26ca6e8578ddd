"""Shared code of the commands: options that many have, ``key=value`` options, and the printing of results.

Tables have the columns of Kafka's tools. With ``--json`` they become objects whose keys are in camelCase, as
everywhere in Kafka's own JSON. A server start imports this file, too: code that needs a client of the cluster
is in ``cluster_client``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from pykraft import __version__
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.features import METADATA_VERSION, parse_metadata_version

BOOTSTRAP_VARIABLE: Final = "PYKRAFT_BOOTSTRAP_SERVER"
_JSON: Final = "pykraft.json"

FC = TypeVar("FC", bound=Callable[..., Any])


def bootstrap_server_option(*short: str, required: bool) -> Callable[[FC], FC]:
    """``--bootstrap-server``, also under the ``short`` names."""
    return click.option(
        "--bootstrap-server",
        *short,
        required=required,
        envvar=BOOTSTRAP_VARIABLE,
        show_envvar=True,
        metavar="HOST:PORT,…",
        help="One or more brokers to connect to first.",
    )


bootstrap_option = bootstrap_server_option(required=True)


def version_option(*short: str) -> Callable[[FC], FC]:
    """``--version``, also under the ``short`` names."""
    return click.version_option(__version__, "--version", *short, prog_name="pykraft")


def _remember(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    context.meta[_JSON] = wanted


json_option = click.option(
    "--json", is_flag=True, expose_value=False, callback=_remember, help="Print JSON instead of text."
)


def wants_json() -> bool:
    """Whether the running command was given :data:`json_option`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_JSON))


def say(text: str) -> None:
    """Print what a person is told on the way; nothing where JSON is wanted."""
    if not wants_json():
        click.echo(text)


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


def check_actions(action: str, given: Mapping[str, object], only_with: Mapping[str, Sequence[str]]) -> None:
    """A usage error for an option that the action does not have; ``only_with``: an option's actions."""
    for option, actions in only_with.items():
        if given[option.replace("-", "_")] and action not in actions:
            raise click.UsageError(f"--{option} is an option of {', '.join(f'--{it}' for it in actions)}")


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


def compact_json(value: object) -> str:
    """As Kafka's tools print JSON themselves."""
    return json.dumps(value, separators=(",", ":"))


def print_done(text: str, **done: object) -> None:
    """Print that a command is done: a sentence, or in JSON an object with these keys."""
    if wants_json():
        print_json(done)
    else:
        click.echo(text)


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


def print_columns(columns: Sequence[str], rows: Sequence[Sequence[object]], widths: Sequence[int]) -> None:
    """Columns of these widths at least, as the tools print that format each line by itself."""
    if wants_json():
        print_json(_objects(columns, rows))
        return
    for line in (columns, *rows):
        texts = ("null" if cell is None else str(cell) for cell in line)
        click.echo(" ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)))


def _objects(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[dict[str, object]]:
    keys = list(map(json_key, columns))
    plain = [[cell.value if isinstance(cell, Cell) else cell for cell in row] for row in rows]
    return [dict(zip(keys, row, strict=True)) for row in plain]
