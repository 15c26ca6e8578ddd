"""One plot of a figure: a vertical axis with its grid, and lines and areas over the seconds of a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.etree.ElementTree import Element

from pykraft.jepsen_like.faults.reports.page.elements import tag
from pykraft.jepsen_like.faults.reports.page.scales import Scale

Values = Sequence[float | None]
"""One for each group of seconds; None where there is nothing to draw."""


@dataclass(frozen=True, slots=True)
class Series:
    """``style`` is a class of the page's style. An ``area`` is filled down to the axis."""

    name: str
    style: str
    values: Values
    area: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """``about`` says in a sentence what is to be seen, for those who do not see it."""

    title: str
    about: str
    height_px: float
    ticks: Sequence[float]
    tick_text: Callable[[float], str]
    series: Sequence[Series]
    logarithmic: bool = False


def draw_plot(plot: Plot, top_px: float, time: Scale, group_s: int) -> Element:
    """``time`` places seconds; each value stands for ``group_s`` of them."""
    bottom_px = top_px + plot.height_px
    scale = Scale(plot.ticks[0], plot.ticks[-1], bottom_px, top_px, plot.logarithmic)
    group = tag("g", role="img", aria_label=f"{plot.title}: {plot.about}")
    for tick in plot.ticks:
        y = scale.px(tick)
        group.append(tag("line", class_="grid", x1=time.from_px, x2=time.to_px, y1=y, y2=y))
        group.append(tag("text", plot.tick_text(tick), class_="tick end", x=time.from_px - 8, y=y + 4))
    group.append(tag("text", plot.title, class_="title", x=time.from_px, y=top_px - 10))
    _draw_legend(group, plot.series, time.to_px, top_px - 10)
    for series in plot.series:
        for element in _draw_series(series, scale, time, group_s, bottom_px):
            group.append(element)
    return group


def _draw_legend(group: Element, series: Sequence[Series], right_px: float, y: float) -> None:
    """One name needs no legend: it is in the title."""
    if len(series) < 2:
        return
    text = tag("text", class_="legend end", x=right_px, y=y)
    for one in series:
        text.append(tag("tspan", "■ ", class_=f"key {one.style}"))
        text.append(tag("tspan", f"{one.name}   "))
    group.append(text)


def _draw_series(series: Series, scale: Scale, time: Scale, group_s: int, bottom_px: float) -> list[Element]:
    """A line for each stretch without a gap; steps, since each value is that of some seconds."""
    elements = []
    for is_gap, stretch in groupby(enumerate(series.values), key=lambda place: place[1] is None):
        if is_gap:
            continue
        points = []
        for number, value in stretch:
            y = scale.px(value or 0.0)
            points += [(time.px(number * group_s), y), (time.px((number + 1) * group_s), y)]
        if series.area:
            closed = [(points[0][0], bottom_px), *points, (points[-1][0], bottom_px)]
            elements.append(tag("path", class_=f"area {series.style}", d=_path(closed) + "Z"))
        elements.append(tag("path", class_=f"line {series.style}", d=_path(points)))
    return elements


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Points in a row at one height, or one above the other, need only their ends."""
    kept = [
        point
        for n, point in enumerate(points)
        if not 0 < n < len(points) - 1
        or not any(points[n - 1][axis] == point[axis] == points[n + 1][axis] for axis in (0, 1))
    ]
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in kept)
