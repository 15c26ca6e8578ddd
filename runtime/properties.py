"""Java-style ``.properties`` text, and typed configuration keys read from it.

Kafka's property names, defaults and units are the interface: a key that Kafka knows and pykraft does not
use earns a warning, a key that neither knows is an error naming the nearest one that exists.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_LONGEST_SHOWN = 100

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the key and what would be right."""


class ConfigType(Enum):
    """How the text of a value is read. The number is Kafka's wire value (DescribeConfigs)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_INTEGER_BITS = {ConfigType.INT: 32, ConfigType.SHORT: 16, ConfigType.LONG: 64}

ConfigValue = bool | int | float | str | list[str] | None


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One known key: its type, its default as text (None: no default) and what it means."""

    name: str
    type: ConfigType
    default: str | None
    documentation: str
    validator: Callable[[ConfigValue], str | None] | None = None

    def parse(self, text: str) -> ConfigValue:
        """The typed value. :class:`ConfigError` naming the key if the text or the value is not allowed."""
        value = _parse_value(self.name, self.type, text.strip())
        complaint = self.validator(value) if self.validator is not None else None
        if complaint is not None:
            raise _invalid(self.name, text, complaint)
        return value


def at_least(minimum: int) -> Callable[[ConfigValue], str | None]:
    """Validator: a number not below ``minimum``."""

    def check(value: ConfigValue) -> str | None:
        assert isinstance(value, int | float)
        return None if value >= minimum else f"Value must be at least {minimum}"

    return check


def between(minimum: float, maximum: float) -> Callable[[ConfigValue], str | None]:
    """Validator: a number not below ``minimum`` and not above ``maximum``."""

    def check(value: ConfigValue) -> str | None:
        assert isinstance(value, int | float)
        return None if minimum <= value <= maximum else f"Value must be between {minimum} and {maximum}"

    return check


def one_of(*allowed: str) -> Callable[[ConfigValue], str | None]:
    """Validator: a string, or every element of a list, among ``allowed``."""

    def check(value: ConfigValue) -> str | None:
        given = value if isinstance(value, list) else [value]
        return None if all(item in allowed for item in given) else f"must be one of {', '.join(allowed)}"

    return check


def parse_properties(text: str) -> dict[str, str]:
    """Read ``.properties`` text: comments, continuation lines, ``=``/``:``/space separators, escapes."""
    entries: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split_entry(line)
        entries[key] = value
    return entries


def format_properties(entries: Mapping[str, str]) -> str:
    """Text that :func:`parse_properties` reads as ``entries``."""
    return "".join(f"{_escape_key(key)}={_escape_value(value)}\n" for key, value in entries.items())


def _escape_key(text: str) -> str:
    return re.sub(r"[=:#!\s\\]", _code_point, text)


def _escape_value(text: str) -> str:
    # Blanks at the beginning would be taken for a part of the separator.
    return re.sub(r"^[ \t]|[^\S \t]|\\", _code_point, text)


def _code_point(char: re.Match[str]) -> str:
    return f"\\u{ord(char[0]):04x}"


def _logical_lines(text: str) -> Iterable[str]:
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _split_entry(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    key, rest = line[:end], line[end:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return _unescape(key), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            out.append(char)
            continue
        escape = text[position]
        position += 1
        if escape == "u":
            digits = text[position : position + 4]
            try:
                out.append(chr(int(digits, 16)))
            except ValueError:
                raise ConfigError(f"Malformed \\u escape in {text!r}") from None
            position += 4
        else:
            out.append(_ESCAPES.get(escape, escape))
    return "".join(out)


def _invalid(name: str, text: str, complaint: str) -> ConfigError:
    shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    return ConfigError(f"Invalid value {shown} for configuration {name}: {complaint}")


def _parse_value(name: str, kind: ConfigType, text: str) -> ConfigValue:
    match kind:
        case ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise _invalid(name, text, "must be true or false")
            return text.lower() == "true"
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            bits = _INTEGER_BITS[kind]
            # int() alone would take underscores and other scripts' digits.
            if _WHOLE_NUMBER.fullmatch(text) is None:
                raise _invalid(name, text, "not a number")
            number = int(text)
            if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
                raise _invalid(name, text, f"not a {bits}-bit number")
            return number
        case ConfigType.DOUBLE:
            try:
                return float(text)
            except ValueError:
                raise _invalid(name, text, "not a number") from None
        case ConfigType.LIST:
            return [item for item in (part.strip() for part in text.split(",")) if item]
        case _:
            return text


def nearest_key(name: str, known: Iterable[str]) -> str | None:
    """The known key that looks most like ``name``, if any does."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def unknown_key_message(name: str, known: Iterable[str], names_elsewhere: Mapping[str, str]) -> str:
    """What to tell somebody who wrote a key that does not exist.

    ``names_elsewhere``: to a known key from what the same thing is called where it stands for something else
    (a topic's configuration, a broker's property); no likeness of letters beats that.
    """
    nearest = names_elsewhere.get(name) or nearest_key(name, known)
    hint = f"; did you mean {nearest}?" if nearest else ""
    return f"Unknown configuration {name}{hint}"


def resolve(keys: Mapping[str, ConfigKey], given: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Typed values of all ``keys``: what was given, else the default. Keys not in the table are ignored."""
    values: dict[str, ConfigValue] = {}
    for name, key in keys.items():
        text = given.get(name, key.default)
        values[name] = None if text is None else key.parse(text)
    return values
