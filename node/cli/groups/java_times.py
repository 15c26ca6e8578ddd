"""Times and durations as Java's tools read them: ISO 8601 with milliseconds, and ``PnDTnHnMnS``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

_TIME: Final = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})T(\d{1,2}):(\d{1,2}):(\d{1,2})\.(\d{1,3})(Z|[+-]\d{2}(?::?\d{2})?)?",
    re.ASCII,
)
_NUMBER: Final = r"([-+]?\d+)"
_DURATION: Final = re.compile(
    rf"([-+]?)P(?:{_NUMBER}D)?(?:T(?=[-+\d])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}(?:[.,](\d{{0,9}}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_datetime(text: str) -> int:
    """``2024-05-31T23:59:59.999``, in UTC unless it ends with ``Z`` or its distance: milliseconds since 1970.

    The last field is a number of milliseconds. :class:`ValueError` for anything else.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time such as 2024-05-31T23:59:59.999")
    *fields, zone = match.groups()
    year, month, day, hour, minute, second, milli = map(int, fields)
    at = datetime(year, month, day, hour, minute, second, milli * 1000, _zone(zone))
    return (at - _EPOCH) // timedelta(milliseconds=1)


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[3:].lstrip(":") or 0)
    distance = timedelta(hours=hours, minutes=minutes)
    return timezone(-distance if text[0] == "-" else distance)


def parse_duration_ms(text: str) -> int:
    """``P1DT2H3.5S`` in milliseconds; :class:`ValueError` for what is not a duration to Java."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:5]):
        raise ValueError("Text cannot be parsed to a Duration")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    whole = sum(
        int(number or 0) * size
        for number, size in ((days, 86_400), (hours, 3_600), (minutes, 60), (seconds, 1))
    )
    part_ms = int((fraction or "").ljust(3, "0")[:3])
    if (seconds or "").startswith("-"):
        part_ms = -part_ms
    total_ms = whole * 1000 + part_ms
    return -total_ms if sign == "-" else total_ms
