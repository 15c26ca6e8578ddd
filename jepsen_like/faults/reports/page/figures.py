"""The figures of a page: everything over one clock, and the latencies of the other operations."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Final
from xml.etree.ElementTree import Element

from pykraft.jepsen_like.faults.reports.page.elements import tag
from pykraft.jepsen_like.faults.reports.page.lanes import LANE_PX, draw_bands, draw_lanes, draw_phases
from pykraft.jepsen_like.faults.reports.page.plot import Plot, Series, Values, draw_plot
from pykraft.jepsen_like.faults.reports.page.scales import (
    Scale,
    in_groups,
    milliseconds_text,
    powers_of_ten,
    round_ticks,
    time_text,
    time_ticks_s,
)
from pykraft.jepsen_like.faults.timeline.analysis import Analysis
from pykraft.jepsen_like.faults.timeline.faults import FaultSpan, PhaseSpan
from pykraft.jepsen_like.faults.timeline.overview import Overview
from pykraft.jepsen_like.faults.timeline.rates import OpRates

_WIDTH_PX: Final = 1100.0
_LEFT_PX: Final = 130.0
_RIGHT_PX: Final = 1075.0
_ABOVE_PLOT_PX: Final = 34.0
_MOST_GROUPS: Final = 480
"""So many values are drawn side by side: of longer runs each stands for several seconds."""


def timeline_figure(analysis: Analysis) -> Element:
    """Phases, faults, throughput, latency, availability and lag, one below the other."""
    main = main_rates(analysis)
    plots = [_throughput(analysis), *([_latency(main)] if main else []), _availability(analysis)]
    if any(lag is not None for lag in analysis.lag):
        plots.append(_lag(analysis))
    return _figure(analysis, plots, with_phases=True)


def latency_figure(analysis: Analysis, rates: OpRates) -> Element:
    """The latency of one operation, with the faults."""
    return _figure(analysis, [_latency(rates)], with_phases=False)


def main_rates(analysis: Analysis) -> OpRates | None:
    """The operation by which availability is judged, the most frequent of several."""
    waited_on = analysis.overview.waited_on
    return next((rates for rates in analysis.rates if rates.op in waited_on), None)


def group_seconds(analysis: Analysis) -> int:
    """For how many seconds one value of a figure stands."""
    return group_size(len(analysis.availability))


def group_size(seconds: int) -> int:
    """For how many seconds one value of a figure of so many stands."""
    return max(1, -(-seconds // _MOST_GROUPS))


def _figure(analysis: Analysis, plots: Sequence[Plot], *, with_phases: bool) -> Element:
    figure = draw_figure(
        plots,
        len(analysis.availability),
        [one.fault for one in analysis.faults],
        analysis.phases if with_phases else (),
    )
    figure.set("aria-label", "Plots over the time of the run; the tables of this page have their numbers")
    return figure


def draw_figure(
    plots: Sequence[Plot], seconds: int, faults: Sequence[FaultSpan], phases: Sequence[PhaseSpan]
) -> Element:
    """Plots over one clock, below phases and a lane for each kind of fault; see :func:`group_size`."""
    end_s, group_s = float(seconds), group_size(seconds)
    time = Scale(0.0, end_s, _LEFT_PX, _RIGHT_PX)
    kinds = sorted({fault.kind for fault in faults})
    drawn, top_px = [], 4.0
    if phases:
        drawn.append(draw_phases(phases, top_px, time))
        top_px += LANE_PX
    if kinds:
        drawn.append(draw_lanes(faults, kinds, top_px, time))
        top_px += LANE_PX * len(kinds)
    bands_px = top_px
    for plot in plots:
        top_px += _ABOVE_PLOT_PX
        drawn.append(draw_plot(plot, top_px, time, group_s))
        top_px += plot.height_px
    height_px = top_px + 26
    figure = tag("svg", viewBox=f"0 0 {_WIDTH_PX:.0f} {height_px:.0f}", role="group")
    figure.append(draw_bands(faults, kinds, bands_px, top_px, time))
    for tick_s in time_ticks_s(end_s, 11):
        x = time.px(tick_s)
        figure.append(tag("line", class_="grid", x1=x, x2=x, y1=bands_px + 4, y2=top_px))
        figure.append(tag("text", time_text(tick_s), class_="tick middle", x=x, y=top_px + 18))
    for element in drawn:
        figure.append(element)
    return figure


def _throughput(analysis: Analysis) -> Plot:
    shown = [rates for rates in analysis.rates if rates.op in _shown_ops(analysis)]
    size = group_seconds(analysis)
    ok = per_second(_sums([rates.ok for rates in shown]), size)
    others = per_second(_sums([one for rates in shown for one in (rates.failed, rates.unknown)]), size)
    return throughput_plot(op_names(analysis.overview), ok, others, sum(map(_ok, shown)))


def throughput_plot(ops: str, ok: Values, others: Values, total: int) -> Plot:
    series = [
        Series("acknowledged", "first", ok, area=True),
        Series("failed or of unknown outcome", "bad", [count or None for count in others]),
    ]
    highest = max([*filter(None, ok), *filter(None, others)], default=0.0)
    about = f"at most {highest:,.0f} in one second, {total:,} acknowledged in all"
    return Plot(f"{ops} per second", about, 130, round_ticks(highest, 5), _plain, series)


def _latency(rates: OpRates) -> Plot:
    size = -(-len(rates.latency_ms) // _MOST_GROUPS)
    p50, p99, highest = (
        _grouped([None if one is None else getattr(one, name) for one in rates.latency_ms], size, combine)
        for name, combine in (("p50", fmean), ("p99", max), ("max", max))
    )
    series = [Series("max", "third", highest), Series("p99", "second", p99), Series("p50", "first", p50)]
    total = rates.total_ms
    about = "none was acknowledged"
    if total is not None:
        about = f"p50 {total.p50:.1f} ms, p99 {total.p99:.1f} ms, at most {total.max:.1f} ms"
    ticks = powers_of_ten(max(filter(None, highest), default=1.0))
    return Plot(f"latency of {rates.op}", about, 150, ticks, milliseconds_text, series, logarithmic=True)


def _availability(analysis: Analysis) -> Plot:
    shares = _grouped(analysis.availability, group_seconds(analysis), min)
    down = sum(share is not None and share < 1 for share in analysis.availability)
    about = f"in {down} of {len(analysis.availability)} seconds some partition was not available"
    series = [Series("", "good", [None if share is None else 100 * share for share in shares], area=True)]
    title = f"available: share of {analysis.overview.place_name}s with an acknowledgement"
    return Plot(title, about, 70, [0, 50, 100], lambda share: f"{share:g} %", series)


def _lag(analysis: Analysis) -> Plot:
    lags = _grouped(analysis.lag, group_seconds(analysis), max)
    highest = max(filter(None, lags), default=0.0)
    about = f"at most {highest:,.0f} records"
    series = [Series("", "second", lags, area=True)]
    title = "lag: acknowledged records that no reader has polled, largest of all partitions"
    return Plot(title, about, 80, round_ticks(highest, 4), _plain, series)


def _shown_ops(analysis: Analysis) -> set[str]:
    waited_on = analysis.overview.waited_on
    return {rates.op for rates in analysis.rates if rates.op.partition(",")[0] in waited_on}


def op_names(overview: Overview) -> str:
    """Name the operations that clients wait for."""
    names = sorted(overview.waited_on)
    return ("sends" if names == ["send"] else ", ".join(names)) or "operations"


def _ok(rates: OpRates) -> int:
    return sum(rates.ok)


def _sums(lists: Sequence[Sequence[int]]) -> list[int]:
    return [sum(one) for one in zip(*lists, strict=True)]


def per_second(counts: Sequence[int], size: int) -> Values:
    """The means of groups of seconds."""
    return [fmean(group) for group in in_groups(counts, size)]


def _grouped(values: Values, size: int, combine: Callable[[list[float]], float]) -> Values:
    return [combine(group) if group else None for group in in_groups(values, size)]


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 or value == 0 else f"{value:g}"
