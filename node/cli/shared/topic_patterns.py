"""Topics by name or regular expression, as Kafka's tools take them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import click

_QUOTES: Final = "\"'"


def topic_filter(text: str) -> Callable[[str], bool]:
    """Whether a name is one of those that ``text`` means: names or expressions with commas between. An
    expression has to match the whole name. :class:`click.UsageError` if it is none.
    """
    # Blanks, and quotes around it, come from properties files.
    pattern = text.strip().replace(",", "|").replace(" ", "").strip(_QUOTES)
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise click.UsageError(f"{text} is not a regular expression: {error}") from None
    return lambda name: compiled.fullmatch(name) is not None
