"""Tables of a page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element

from pykraft.jepsen_like.faults.reports.page.elements import Child, append, tag
from pykraft.jepsen_like.faults.timeline.seconds import US_PER_S

UNKNOWN: Final = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class Column:
    """``style``: ``number`` stands at the right, ``text`` may take several lines."""

    title: str
    style: str | None = None


def number(title: str) -> Column:
    return Column(title, "number")


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[Child]],
    *,
    groups: Sequence[tuple[str, int]] = (),
    caption: str | None = None,
) -> Element:
    """The first column names the row. ``groups``: titles over so many columns. It may be a wide table."""
    head = tag("thead")
    if groups:
        above = (tag("th", title, colspan=wide, scope="colgroup", class_="group") for title, wide in groups)
        head.append(tag("tr", *above))
    head.append(tag("tr", *(tag("th", one.title, class_=one.style, scope="col") for one in columns)))
    body = tag("tbody")
    for row in rows:
        cells = tag("tr")
        for place, (column, cell) in enumerate(zip(columns, row, strict=True)):
            attributes = {"scope": "row"} if place == 0 else {}
            cells.append(tag("td" if place else "th", cell, class_=column.style, **attributes))
        append(body, cells)
    shown = tag("table", tag("caption", caption) if caption else None, head, body)
    return tag("div", shown, class_="wide", tabindex="0")


def seconds(time_us: int, digits: int = 1) -> str:
    return f"{time_us / US_PER_S:,.{digits}f}"


def known(value: float | None, digits: int = 2) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def swatch(style: str, text: str) -> Element:
    return tag("span", tag("span", class_=f"swatch {style}"), text)
