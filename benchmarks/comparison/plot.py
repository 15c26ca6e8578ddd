"""The ratios of all rows as a picture: a bar for each row, its range, and a line where both cost the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from comparison.results import Results

_INCHES_A_ROW = 0.22


def draw(runs: Sequence[Results], path: Path) -> bool:
    """Write a PNG; False if matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = [
        (f"{family.name}: {row.name}", ratio)
        for results in runs
        for family in results.families
        for row in family.rows
        if row.measures and (ratio := row.measures[0].ratio()) is not None
    ]
    bars.reverse()  # the first row at the top
    figure, axes = pyplot.subplots(figsize=(10, 1.5 + _INCHES_A_ROW * len(bars)), layout="constrained")
    medians = [ratio.median for _, ratio in bars]
    errors = [
        [ratio.median - ratio.low for _, ratio in bars],
        [ratio.high - ratio.median for _, ratio in bars],
    ]
    colours = ["tab:green" if value < 1 else "tab:red" for value in medians]
    axes.barh([name for name, _ in bars], medians, xerr=errors, color=colours, ecolor="0.3", height=0.7)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.margins(y=0.01)
    axes.set_xlabel("pykraft / Apache Kafka, median and range (below 1: pykraft needs less)")
    axes.tick_params(axis="y", labelsize=7)
    if any(results.quick for results in runs):
        axes.set_title("--quick: these figures mean nothing")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True
