"""Properties of what a tool reads or prints with: ``--reader-property``, ``--formatter-property`` and their files."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pykraft.configuration.keys import nearest_key
from pykraft.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class GivenProperties:
    """``option`` is where they were given, for messages."""

    values: dict[str, str]
    option: str


class ToolProperties:
    """:class:`click.UsageError` for a property that is not ``known``, and by the methods for a value that is not
    allowed.
    """

    def __init__(self, given: GivenProperties, known: Sequence[str]) -> None:
        self._given = given.values
        self._option = given.option
        for name in self._given:
            if name not in known:
                nearest = nearest_key(name, known)
                hint = f"did you mean {nearest}?" if nearest else f"known are {', '.join(known)}"
                raise click.UsageError(f"{given.option} {name}: unknown; {hint}")

    def text(self, name: str) -> str | None:
        return self._given.get(name)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._given.get(name, str(default)).strip().lower()
        if value not in ("true", "false"):
            raise click.UsageError(f"{self._option} {name}: {value!r} is neither true nor false")
        return value == "true"

    def separator(self, name: str, default: str) -> bytes:
        """What is printed between two parts, as UTF-8."""
        return self._given.get(name, default).encode()

    def delimiter(self, name: str, default: str) -> bytes:
        """What tells two parts of a line apart: as :meth:`separator`, and not empty."""
        value = self.separator(name, default)
        if not value:
            raise click.UsageError(f"{self._option} {name} is empty")
        return value
