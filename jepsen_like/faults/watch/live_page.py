"""The page of a run that goes on, drawn with the parts of the report of a finished one."""

from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element, tostring

from pykraft.jepsen_like.faults.history import Event
from pykraft.jepsen_like.faults.reports.page.elements import Child, card_list, document, tag, to_html
from pykraft.jepsen_like.faults.reports.page.figures import (
    draw_figure,
    group_size,
    op_names,
    per_second,
    throughput_plot,
)
from pykraft.jepsen_like.faults.reports.page.lanes import colour_of
from pykraft.jepsen_like.faults.reports.page.scales import time_text
from pykraft.jepsen_like.faults.reports.page.tables import UNKNOWN, Column, number, seconds, swatch, table
from pykraft.jepsen_like.faults.reports.page.verdict_sections import OUTCOME_STYLES
from pykraft.jepsen_like.faults.run_files import PAGE
from pykraft.jepsen_like.faults.timeline.analysis import phases_of
from pykraft.jepsen_like.faults.timeline.faults import FaultSpan
from pykraft.jepsen_like.faults.timeline.seconds import US_PER_S
from pykraft.jepsen_like.faults.watch.live_run import NOBODY, LiveRun

_RATE_OVER_S: Final = 5
_MOST_NEWS: Final = 12
_SHOWN_SETTINGS: Final = ("nemesis", "tier", "client", "system")


def build_document(run: LiveRun | None, directory: str) -> str:
    """The whole page. It renews its main part by a script, or without one by loading itself again."""
    reload = tag("meta", content="5")
    reload.set("http-equiv", "refresh")
    head = (
        tag("link", rel="icon", href="/icon.svg", type="image/svg+xml"),
        tag("link", rel="stylesheet", href="/style.css"),
        tag("script", src="/watch.js", defer=""),
        tag("noscript", reload),
    )
    title = "Fault run" if run is None else f"Fault run {run.directory.name}"
    return to_html(document(title, head, build_main(run, directory)))


def build_fragment(run: LiveRun | None, directory: str) -> str:
    """The main part alone."""
    return tostring(build_main(run, directory), encoding="unicode", method="html")


def build_main(run: LiveRun | None, directory: str) -> Element:
    """Build the page of a run; None: there is none in ``directory`` yet."""
    if run is None:
        return tag(
            "main", tag("h1", "Fault run"), tag("p", f"There is no run in {directory} yet.", class_="soft")
        )
    return tag(
        "main",
        _head(run),
        *_notices(run),
        _cards(run),
        # The script finds by these ids what was unfolded, scrolled to or focused.
        tag("section", *_in_force(run), id="in-force"),
        tag("section", *_timeline(run), id="timeline"),
        tag("section", *_news(run), id="news"),
        tag("section", *_outputs(run), id="outputs"),
    )


def _head(run: LiveRun) -> Element:
    settings = run.overview.settings
    name = f"{settings.get('workload', 'unknown workload')}, seed {settings.get('seed', UNKNOWN)}"
    badge = _badge(run)
    facts = [f"{name} {settings[name]}" for name in _SHOWN_SETTINGS if name in settings]
    shown = tag("header", tag("h1", f"Fault run: {name} ", badge), tag("p", ", ".join(facts)))
    bar = tag("progress", max="1", value=f"{run.progress:.4f}") if run.progress is not None else None
    if bar is not None:
        bar.set("aria-label", "Share of the time of faults that is over")
    shown.append(tag("p", bar, f" {_where(run)}", class_="where"))
    return shown


def _where(run: LiveRun) -> str:
    if run.progress is None or run.stage != "faults" or run.plan is None:
        return run.stage
    return run.plan.where(run.progress * run.plan.time_limit_s)


def _notices(run: LiveRun) -> list[Element]:
    told = []
    if run.problem is not None:
        told.append(("bad", f"No more is read: {run.problem}"))
    if run.left_bytes > 0:
        told.append(("soft", f"{run.left_bytes / 1e6:,.1f} MB of the history are still to be read."))
    if run.quiet_s is not None:
        told.append(("warn", f"Nothing was written for {run.quiet_s:.0f} s: the run may have ended."))
    shown = [tag("p", text, class_=style) for style, text in told]
    if run.stage == "finished":
        shown.append(_verdict(run))
    return shown


def _badge(run: LiveRun) -> Element:
    if run.stage != "finished":
        return tag("span", "live", class_="badge")
    verdict = run.verdict
    if verdict is None:
        return tag("span", "finished", class_="badge")
    return tag("span", verdict.outcome, class_=f"badge {OUTCOME_STYLES[verdict.outcome]}")


def _verdict(run: LiveRun) -> Element:
    """In words, with the report."""
    verdict = run.verdict
    found = [name for name, count in verdict.anomalies.items() if count] if verdict is not None else []
    words = "No verdict can be read" if verdict is None else ", ".join(found) or verdict.outcome
    return tag("p", f"{words}: ", tag("a", "the report", href=f"/{PAGE}"), f" ({run.directory / PAGE})")


def _cards(run: LiveRun) -> Element:
    ok, others = run.per_second("ok"), run.per_second("fail", "info")
    recent = ok[-_RATE_OVER_S - 1 : -1] or ok
    led = run.leaders()
    unled = led.pop(NOBODY, 0)
    leaders = ", ".join(f"{count} by {node}" for node, count in sorted(led.items()))
    unled_text = f", {unled} by nobody" if unled else ""
    rows = [
        (f"{sum(ok):,}", f"{op_names(run.overview)} acknowledged", None),
        (f"{sum(recent) / max(1, len(recent)):,.0f}/s", f"in the last {_RATE_OVER_S} seconds", None),
        (f"{sum(others):,}", "failed, or of unknown outcome", None),
        (f"{len(run.overview.faults):,}", "faults so far", None),
        (UNKNOWN if run.controller == NOBODY else run.controller, "active controller", None),
        (leaders or UNKNOWN, f"partitions led{unled_text}", "bad" if unled else None),
    ]
    return card_list(rows)


def _in_force(run: LiveRun) -> list[Element]:
    if run.stage == "finished":
        return []
    now_us, kinds = run.overview.end_us, _kinds(run.overview.faults)
    rows: list[Sequence[Child]] = [
        [
            swatch(colour_of(kinds, fault.kind), fault.kind),
            ", ".join(fault.victims) or UNKNOWN,
            fault.target,
            seconds(now_us - fault.begin_us),
            f"{fault.planned_s:.1f}",
        ]
        for fault in run.overview.faults
        if fault.repaired_us is None
    ]
    heading = tag("h2", "In force")
    if not rows:
        return [heading, tag("p", "Nothing is broken.", class_="soft")]
    columns = [Column("fault"), Column("nodes"), Column("aimed at"), number("for s"), number("planned s")]
    return [heading, table(columns, rows)]


def _timeline(run: LiveRun) -> list[Element]:
    size = group_size(run.seconds)
    ok, others = run.per_second("ok"), run.per_second("fail", "info")
    acknowledged, missed = per_second(ok, size), per_second(others, size)
    plot = throughput_plot(op_names(run.overview), acknowledged, missed, sum(ok))
    figure = draw_figure([plot], run.seconds, run.overview.faults, phases_of(run.overview, run.plan))
    figure.set("aria-label", f"Operations and faults over {time_text(run.seconds)}")
    return [
        tag("h2", "Timeline"),
        tag("figure", tag("div", figure, class_="wide", tabindex="0"), aria_label="Timeline"),
    ]


def _news(run: LiveRun) -> list[Element]:
    rows: list[Sequence[Child]] = [
        [f"{event.time_us / US_PER_S:.1f}", event.process, event.op, _what(event)]
        for event in list(run.news)[: -_MOST_NEWS - 1 : -1]
    ]
    columns = [number("at s"), Column("by"), Column("event"), Column("what", "text")]
    return [tag("h2", "Last events"), table(columns, rows)]


def _what(event: Event) -> str:
    parts = [event.key or "", event.value or "", event.error or ""]
    parts += [
        f"{name} {value}" for name, value in (event.detail or {}).items() if not isinstance(value, dict)
    ]
    return ", ".join(filter(None, parts))[:300]


def _outputs(run: LiveRun) -> list[Element]:
    """Show the nodes' output, folded."""
    tails = run.output_tails()
    if not tails:
        return []
    shown = [
        tag("details", tag("summary", name), tag("pre", "\n".join(lines) or "nothing", tabindex="0"))
        for name, lines in tails
    ]
    return [tag("h2", "Output of the nodes"), *shown]


def _kinds(faults: Sequence[FaultSpan]) -> list[str]:
    return sorted({fault.kind for fault in faults})
