"""Single values of the data source's options: whole numbers, switches, durations and what has its own parser.

``options`` are by lower-case name; ``name`` is spelt as in Spark's documentation, for the messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

T = TypeVar("T")

_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_MS: Final = {None: 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class OptionError(ValueError):
    """An option that is unknown, malformed or contradicts another; the message says what to write instead."""


def parsed(name: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise OptionError(f"option {name!r}: {error}") from None


def whole(options: Mapping[str, str], name: str) -> int:
    text = options[name.lower()].strip()
    if not text.isascii() or not text.isdigit():
        raise OptionError(f"option {name!r} is not a whole number of 0 or more: {text!r}")
    return int(text)


def positive(options: Mapping[str, str], name: str) -> int | None:
    if name.lower() not in options:
        return None
    value = whole(options, name)
    if value == 0:
        raise OptionError(f"option {name!r} must be at least 1")
    return value


def boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise OptionError(f"option {name!r} is 'true' or 'false', not {text!r}")
    return text.lower() == "true"


def duration_ms(options: Mapping[str, str], name: str, default_ms: int) -> int:
    """As Spark writes times: ``500ms``, ``30s``, ``15m``, ``1h``, ``1d``; a bare number is milliseconds."""
    text = options.get(name.lower())
    if text is None:
        return default_ms
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise OptionError(f"option {name!r} is a time like '500ms', '30s' or '15m', not {text!r}")
    return int(match[1]) * _MS[match[2]]
