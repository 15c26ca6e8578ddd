"""Java-style ``.properties`` text, read and written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from pykraft.configuration.keys import ConfigError

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


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
    # Leading blanks would be parsed as a part of the separator.
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
