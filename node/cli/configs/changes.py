"""``--add-config``, ``--add-config-file`` and ``--delete-config`` of ``pykraft configs``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from pykraft.kafka_client.results import ConfigChange
from pykraft.kafka_protocol.enums import ConfigOperation
from pykraft.node.cli.shared.client_properties import read_properties
from pykraft.node.cli.shared.common import pairs


def parse_changes(added: str | None, file: str | None, deleted: str | None) -> list[ConfigChange]:
    """The changes in the options; a usage error if there are none, or a key is named twice."""
    changes = [ConfigChange(key, ConfigOperation.SET, value) for key, value in _added(added, file)]
    changes += [
        ConfigChange(key.strip(), ConfigOperation.DELETE) for key in (deleted or "").split(",") if key
    ]
    names = [change.name for change in changes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise click.UsageError(f"given twice: {', '.join(twice)}")
    if not changes:
        raise click.UsageError("give --add-config, --add-config-file or --delete-config")
    return changes


def _added(added: str | None, file: str | None) -> Iterator[tuple[str, str]]:
    for key, value in pairs(_split(added or ""), "--add-config").items():
        yield key, value.strip()
    if file is not None:
        yield from read_properties((), "--add-config-file", file).items()


def _split(text: str) -> list[str]:
    """Split ``a=1,b=[x,y]`` at its commas, except within brackets, which are removed."""
    items, depth = [""], 0
    for sign in text:
        if sign == "[" and depth == 0 and items[-1].rstrip().endswith("="):
            depth = 1
        elif sign == "]" and depth:
            depth = 0
        elif sign == "," and not depth:
            items.append("")
        else:
            items[-1] += sign
    if depth:
        raise click.UsageError(f"--add-config {text!r} has no closing bracket")
    return [item for item in items if item.strip()]
