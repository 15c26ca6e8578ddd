"""``report.html`` as a whole."""

from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element

from pykraft.jepsen_like.faults.reports.page.elements import append, document, tag, to_html
from pykraft.jepsen_like.faults.reports.page.figures import (
    group_seconds,
    latency_figure,
    main_rates,
    timeline_figure,
)
from pykraft.jepsen_like.faults.reports.page.sections import (
    fault_section,
    recovery_section,
    unavailability_section,
)
from pykraft.jepsen_like.faults.reports.page.style import STYLE
from pykraft.jepsen_like.faults.reports.page.verdict_sections import (
    cards,
    findings_section,
    head,
    operations_section,
    run_section,
    why_longest,
)
from pykraft.jepsen_like.faults.reports.report import Result
from pykraft.jepsen_like.faults.run_files import PAGE

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""For the browser: whatever a history holds, nothing is loaded and nothing is run."""


def write_page(result: Result, directory: Path) -> Path:
    """Write the page beside the files that it links to; where it is."""
    path = directory / PAGE
    path.write_text(build_page(result, directory), encoding="utf-8")
    return path


def build_page(result: Result, directory: Path) -> str:
    """The document. ``directory``: where it will be, and with it the files that it links to."""
    main = tag("main", head(result), cards(result), why_longest(result))
    if result.findings:
        append(main, *findings_section(result))
    append(main, *_timeline_section(result))
    if result.analysis.faults:
        append(main, *recovery_section(result.analysis), *fault_section(result.analysis))
    append(main, *unavailability_section(result.analysis))
    if not result.findings:
        append(main, *findings_section(result))
    append(main, *operations_section(result), *run_section(result, directory))
    title = f"{result.workload}, seed {result.seed}: {result.outcome}"
    policy = tag("meta", content=POLICY)
    policy.set("http-equiv", "Content-Security-Policy")
    return to_html(document(title, (policy, tag("style", STYLE)), main))


def _timeline_section(result: Result) -> list[Element]:
    analysis = result.analysis
    others = [rates for rates in analysis.rates if rates is not main_rates(analysis) and rates.total_ms]
    group_s = group_seconds(analysis)
    each = "second"
    if group_s > 1:
        each = f"{group_s} seconds: means, but the lowest availability, the highest p99, max and lag"
    shown = [
        tag("h2", "Timeline"),
        tag(
            "figure",
            tag("div", timeline_figure(analysis), class_="wide", tabindex="0"),
            tag(
                "figcaption", f"One value for each {each}. Time is counted from the beginning of the history."
            ),
        ),
    ]
    if others:
        figures = [tag("div", latency_figure(analysis, rates), class_="wide") for rates in others[:8]]
        shown.append(tag("details", tag("summary", "Latency of other operations"), *figures))
    return shown
