"""A group of commands, each of which lives in a module that is imported on use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from pykraft.node.cli.shared.lazy import import_late


class LazyGroup(click.Group):
    """``commands_in``: by name, the module whose ``command`` it is, and what it does in one sentence."""

    def __init__(self, *arguments: Any, commands_in: Mapping[str, tuple[str, str]], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._commands_in = commands_in

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._commands_in)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._commands_in:
            return None
        command = import_late(self._commands_in[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self._commands_in.items()])
