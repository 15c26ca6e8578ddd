"""The parameters of a request: every one is checked before anything is done with it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final

MOST_TEXT: Final = 400
MAX_OFFSET: Final = (1 << 63) - 1
_NUMBER: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?Z?", re.ASCII)
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


class BadParameterError(ValueError):
    """The message says which parameter is wrong, and what it may be."""


class Parameters:
    """The parameters of a query or a form. A parameter that is missing or empty has its default."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given

    def text(self, name: str, most: int = MOST_TEXT) -> str:
        value = self.given.get(name, "")
        if len(value) > most:
            raise BadParameterError(f"{name} is longer than {most} characters")
        return value

    def choice(self, name: str, allowed: Collection[str], default: str) -> str:
        value = self.text(name) or default
        if value not in allowed:
            raise BadParameterError(f"{name} is one of {', '.join(allowed)}")
        return value

    def flag(self, name: str) -> bool:
        return self.choice(name, ("0", "1"), "0") == "1"

    def number(self, name: str, default: int, most: int, least: int = 0) -> int:
        number = self.optional_number(name, most, least)
        return default if number is None else number

    def optional_number(self, name: str, most: int, least: int = 0) -> int | None:
        """None if it is missing."""
        text = self.text(name).strip()
        if not text:
            return None
        number = int(text) if _NUMBER.fullmatch(text) else -1
        if not least <= number <= most:
            raise BadParameterError(f"{name} is a whole number from {least} to {most}")
        return number

    def time_ms(self, name: str) -> int:
        """Milliseconds since 1970, given as such or as a date, with or without a time of day, in UTC."""
        text = self.text(name).strip()
        if _NUMBER.fullmatch(text):
            return self.number(name, 0, MAX_OFFSET)
        try:
            if _TIME.fullmatch(text):
                return int(datetime.fromisoformat(text.rstrip("Z")).replace(tzinfo=UTC).timestamp() * 1000)
        except ValueError:
            pass
        raise BadParameterError(
            f"{name} is a time such as 2030-12-31T23:59, in UTC, or milliseconds since 1970"
        )


def is_topic_name(name: str) -> bool:
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")
