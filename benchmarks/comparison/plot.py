"""The ratios of all rows as a picture: how far each is from the line where both systems cost the same."""

from collections.abc import Sequence
from pathlib import Path

from comparison.results import Results, Row, Spread

_INCHES_A_ROW = 0.22


def draw(runs: Sequence[Results], path: Path) -> bool:
    """Write a PNG; False if matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [
        (f"{family.name}: {row.name}", ratio, _wall(row))
        for results in runs
        for family in results.families
        for row in family.rows
        if (ratio := row.measures[0].ratio()) is not None
    ]
    rows.reverse()  # the first row at the top
    figure, axes = pyplot.subplots(figsize=(10, 1.5 + _INCHES_A_ROW * len(rows)), layout="constrained")
    for place, (_, ratio, wall) in enumerate(rows):
        colour = "tab:green" if ratio.median < 1 else "tab:red"
        axes.plot([1, ratio.median], [place, place], color=colour, linewidth=4, solid_capstyle="butt")
        axes.plot([ratio.low, ratio.high], [place, place], color="black", linewidth=1)
        axes.plot(ratio.median, place, "o", color=colour, label="first measure: nearly always CPU")
        if wall is not None:
            axes.plot(wall.median, place, "o", markerfacecolor="none", color="tab:blue", label="time")
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows], fontsize=7)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.margins(y=0.01)
    axes.grid(axis="x", which="both", linewidth=0.3)
    axes.set_xlabel("pykraft / Apache Kafka (below 1: pykraft needs less)")
    legend = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(legend.values(), legend.keys(), fontsize=7)
    if any(results.quick for results in runs):
        axes.set_title("--quick: these figures mean nothing")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True


def _wall(row: Row) -> Spread | None:
    return next((measure.ratio() for measure in row.measures if measure.name == "wall"), None)
