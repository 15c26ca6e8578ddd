"""Options for properties and for files of them, each under its name in Kafka 4.2 and the one it had before."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import click

from pykraft.configuration.keys import nearest_key
from pykraft.lazy_dataclass import dataclass
from pykraft.node.cli.shared.client_properties import read_properties


@dataclass(frozen=True, slots=True)
class GivenProperties:
    """``option`` is where they were given, for messages."""

    values: dict[str, str]
    option: str


class ToolProperties:
    """:class:`click.UsageError` if a property is not ``known``; methods raise it for a bad value."""

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
        """Return the text between two parts of the output, as UTF-8."""
        return self._given.get(name, default).encode()

    def delimiter(self, name: str, default: str) -> bytes:
        """Return what separates two parts of a line: like :meth:`separator`, but never empty."""
        value = self.separator(name, default)
        if not value:
            raise click.UsageError(f"{self._option} {name} is empty")
        return value


_WARNING: Final = "Warning: {} is deprecated and will be removed in a future version. Use {} instead."

FC = TypeVar("FC", bound=Callable[..., Any])
T = TypeVar("T")


def property_options(
    receives: str,
    properties: Sequence[str],
    files: Sequence[str],
    text: str,
    known: Sequence[str] = (),
    said: str | None = None,
) -> Callable[[FC], FC]:
    """A command with these options receives what they give as one :class:`GivenProperties`.

    ``properties`` and ``files`` are the name of an option, and its former one if it has one; there may be no
    option for properties. A property that is given takes precedence over the file. ``text`` says whose
    properties they are, ``known`` which there are, ``said`` is as of :func:`renamed`.
    """
    parameters = {name: name.strip("-").replace("-", "_").replace(".", "_") for name in (*properties, *files)}

    def decorate(function: FC) -> FC:
        @functools.wraps(function)
        def run(*arguments: Any, **given: Any) -> Any:
            values = {name: given.pop(parameter) for name, parameter in parameters.items()}
            items = renamed({name: values[name] for name in properties}, said) or ()
            file = renamed({name: values[name] for name in files}, said)
            used = next((name for name in properties if values[name]), (*properties, *files)[0])
            given[receives] = GivenProperties(read_properties(items, used, file), used)
            return function(*arguments, **given)

        which = f": {', '.join(known)}" if known else ""
        helps = {files[0]: f"A file with properties of {text}."}
        helps |= dict.fromkeys(properties[:1], f"A property of {text}{which}; repeatable.")
        helps |= {name: f"Deprecated: {names[0]}." for names in (properties, files) for name in names[1:]}
        for name, parameter in reversed(parameters.items()):
            is_file = name in files
            metavar = "FILE" if is_file else "KEY=VALUE"
            run = click.option(name, parameter, multiple=not is_file, metavar=metavar, help=helps[name])(run)
        return cast(FC, run)

    return decorate


def renamed(values: Mapping[str, T], said: str | None = None) -> T | None:
    """The one value that is given, by the option's name and its former one; None if none is.

    A warning for the former name goes to standard error, since standard output may hold data. ``said`` is a
    warning of Kafka's for standard output instead, with places for both names. :class:`click.UsageError` if both
    are given.
    """
    given = [name for name, value in values.items() if value]
    if len(given) > 1:
        raise click.UsageError(f"Options {' and '.join(given)} cannot be specified together.")
    if not given:
        return None
    current, used = next(iter(values)), given[0]
    if used != current:
        click.echo((said or _WARNING).format(used, current), err=said is None)
    return values[used]
