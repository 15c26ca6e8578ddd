"""Times in the patterns of Java's SimpleDateFormat, as far as a time of day and a date need them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|(([A-Za-z])\3*)|([^A-Za-z']+)")

_NUMBERS: Final[Mapping[str, Callable[[datetime], int]]] = {
    "d": lambda time: time.day,
    "D": lambda time: time.timetuple().tm_yday,
    "H": lambda time: time.hour,
    "k": lambda time: time.hour or 24,
    "K": lambda time: time.hour % 12,
    "h": lambda time: time.hour % 12 or 12,
    "m": lambda time: time.minute,
    "s": lambda time: time.second,
    "S": lambda time: time.microsecond // 1000,
    "u": lambda time: time.isoweekday(),
}
_TEXTS: Final = {"a": "%p", "z": "%Z", "Z": "%z"}


def date_format(pattern: str) -> Callable[[int], str]:
    """A function that formats milliseconds since 1970 in the local zone.

    :class:`ValueError` for a pattern that is malformed, or has a letter that is not known here.
    """
    parts: list[Callable[[datetime], str]] = []
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise ValueError("a quote is not closed")
        quoted, letters, letter, literal = token.groups()
        if letter is not None:
            parts.append(_field(letter, len(letters)))
        else:
            # Two quotes are one, in quoted text and outside.
            text = literal if quoted is None else quoted.replace("''", "'") or "'"
            parts.append(lambda _, text=text: text)  # type: ignore[misc]
        at = token.end()

    def format_time(time_ms: int) -> str:
        time = datetime.fromtimestamp(time_ms // 1000).astimezone()
        time = time.replace(microsecond=time_ms % 1000 * 1000)
        return "".join(part(time) for part in parts)

    return format_time


def _field(letter: str, count: int) -> Callable[[datetime], str]:
    if letter in _NUMBERS:
        number = _NUMBERS[letter]
        return lambda time: str(number(time)).zfill(count)
    if letter in _TEXTS:
        return lambda time: time.strftime(_TEXTS[letter])
    match letter:
        case "y":
            return lambda time: f"{time.year % 100:02}" if count == 2 else str(time.year).zfill(count)
        case "M" if count < 3:
            return lambda time: str(time.month).zfill(count)
        case "M":
            return lambda time: time.strftime("%b" if count == 3 else "%B")
        case "E":
            return lambda time: time.strftime("%a" if count < 4 else "%A")
    raise ValueError(f"the letter {letter} is not supported; put text in single quotes")
