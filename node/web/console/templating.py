"""The templates, compiled when this module is imported, and the words in which they show numbers and times.

Everything that is shown is escaped, because everything may come from strangers; no template switches that
off.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pykraft import __version__
from pykraft.kafka_protocol.enums import ConfigSource
from pykraft.node.web.console.data_text import visible
from pykraft.node.web.console.page import Problem

UNKNOWN: Final = "\N{EN DASH}"
MEMBER_TAIL: Final = 8
"""So many characters at the end of a member's id distinguish it from others of the same client."""
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_LONGEST_AGO_S: Final = 120
_SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "this topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "this broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers",
    ConfigSource.STATIC_BROKER_CONFIG: "the broker's file",
    ConfigSource.DEFAULT_CONFIG: "default",
}


def number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """``12.3 MiB``."""
    if value is None or value < 0:
        return UNKNOWN
    amount, unit = float(value), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{value:,} B" if unit == 0 else f"{amount:,.1f} {_UNITS[unit]}"


def utc(time_ms: int | None) -> str:
    """``2030-12-31 23:59:59.000``; a number if no calendar has it."""
    if time_ms is None:
        return UNKNOWN
    if time_ms < 0:
        return "no timestamp" if time_ms == -1 else f"{time_ms} ms"
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def ago(time_ms: int | None, now_ms: int) -> str:
    """How long before now, in words; a time that is long past as such."""
    if time_ms is None:
        return UNKNOWN
    seconds = max(0, now_ms - time_ms) / 1000
    return f"{seconds:.1f} s ago" if seconds < _LONGEST_AGO_S else utc(time_ms)


def source(value: ConfigSource) -> str:
    """Where a configuration is set."""
    return _SOURCES.get(value, value.name.lower().replace("_", " "))


def numbers(values: tuple[int, ...] | None) -> str:
    """Ids of nodes."""
    if values is None:
        return UNKNOWN
    return ", ".join(map(str, values)) or "none"


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters |= {
        "ago": ago,
        "number": number,
        "numbers": numbers,
        "size": size,
        "source": source,
        "utc": utc,
        "visible": visible,
    }
    made.tests["problem"] = lambda value: isinstance(value, Problem)
    made.globals |= {"version": __version__, "UNKNOWN": UNKNOWN, "MEMBER_TAIL": MEMBER_TAIL}
    return made


_TEMPLATES: Final = _environment()
for _name in _TEMPLATES.list_templates():
    _TEMPLATES.get_template(_name)


def render(template: str, **facts: object) -> str:
    return _TEMPLATES.get_template(template).render(facts)
