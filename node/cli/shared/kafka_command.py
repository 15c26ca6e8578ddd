"""Commands that read their options as the parsers of Kafka's tools do, so that command lines for those run here."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import click

from pykraft.node.cli.shared.interrupts import exit_status


def regex(text: str) -> re.Pattern[str]:
    """The type of an option: a regular expression of Python, which is close to Java's."""
    try:
        return re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{text!r} is not a regular expression: {error}") from None


class KafkaCommand(click.Command):
    """Ends quietly when it is interrupted.

    An option may be written with one hyphen. ``list_options`` take all values up to the next option.
    """

    def __init__(self, *args: Any, list_options: Collection[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._list_options = list_options

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            ctx.exit(exit_status(interrupt))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        return super().parse_args(ctx, list(self._repeated([_with_two_hyphens(arg, names) for arg in args])))

    def _repeated(self, args: Sequence[str]) -> Iterator[str]:
        """The arguments with the option repeated before each further value."""
        option, is_first = None, False
        for arg in args:
            if arg.startswith("-"):
                option, is_first = (arg if arg in self._list_options else None), True
            elif option is not None and not is_first:
                yield option
            else:
                is_first = False
            yield arg


def _with_two_hyphens(argument: str, names: Collection[str]) -> str:
    return f"-{argument}" if f"-{argument.partition('=')[0]}" in names else argument
