"""The sections of the page about faults: their recovery, the list of them, and unavailability."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from xml.etree.ElementTree import Element

from pykraft.jepsen_like.faults.reports.page.elements import Child, tag
from pykraft.jepsen_like.faults.reports.page.lanes import colour_of
from pykraft.jepsen_like.faults.reports.page.tables import (
    UNKNOWN,
    Column,
    known,
    number,
    seconds,
    swatch,
    table,
)
from pykraft.jepsen_like.faults.timeline.analysis import Analysis, Unavailability
from pykraft.jepsen_like.faults.timeline.fault_recovery import FaultRecovery, KindRecovery, slowest
from pykraft.jepsen_like.faults.timeline.seconds import Percentiles

_MOST_FAULTS: Final = 1_000
_MOST_INCIDENTS: Final = 20


def recovery_section(analysis: Analysis) -> list[Element]:
    kinds, place = list(analysis.by_kind), analysis.overview.place_name
    columns = [
        Column("kind"),
        *map(
            number,
            ("number", "p50", "p99", "max", "never", "number", "p50", "p99", "max", "p50", "p99", "max"),
        ),
    ]
    groups = [("", 1), ("all faults", 5), ("those that were alone", 4), ("from the repair on", 3)]
    rows = [
        [swatch(colour_of(kinds, kind), kind), *_recovery_cells(found)]
        for kind, found in analysis.by_kind.items()
    ]
    if analysis.calm_s is not None:
        calm = [f"{analysis.calm_s.count:,}", *_three(analysis.calm_s)]
        rows.append([tag("em", "nothing, for comparison"), *calm, *[""] * 8])
    return [
        tag("h2", "Time to recover"),
        tag(
            "p",
            f"Seconds from the beginning of a fault until every {place} had an acknowledgement of"
            f" {_operations(analysis)} asked for after that beginning, and until the last unavailability that"
            f" began during the fault was over. The clock of a {place} runs only while somebody waits. A"
            " fault was alone if there was no other until it had been repaired and recovered from. The last"
            " row is measured in the same way, at moments when nothing was broken.",
            class_="soft",
        ),
        table(columns, rows, groups=groups),
    ]


def fault_section(analysis: Analysis) -> list[Element]:
    """All faults, or those that took longest to recover from, in the order of their beginnings."""
    kinds, faults = list(analysis.by_kind), slowest(analysis.faults, _MOST_FAULTS)
    title = f"{len(faults)} faults"
    if len(analysis.faults) > _MOST_FAULTS:
        title = f"The {_MOST_FAULTS:,} of {len(analysis.faults):,} faults that took longest to recover from"
    columns = [
        number("at s"),
        Column("fault"),
        Column("nodes"),
        Column("aimed at"),
        *map(number, ("planned s", "lasted s", "recovered in s", "after repair s")),
        Column("alone"),
        Column("settings", "text"),
    ]
    shown = table(columns, [_fault_cells(one, kinds) for one in faults])
    if len(faults) > 60:
        shown = tag("details", tag("summary", f"Show {len(faults):,} rows"), shown)
    return [tag("h2", title), shown]


def unavailability_section(analysis: Analysis) -> list[Element]:
    heading, place = tag("h2", "Unavailability"), analysis.overview.place_name
    if not analysis.incidents:
        return [heading, tag("p", f"No {place} left its clients without an answer for half a second.")]
    columns = [
        number("at s"),
        number("longest s"),
        Column("of"),
        number(f"{place}s"),
        Column("faults in force", "text"),
        Column("most nodes at once"),
        number("no leader s"),
        Column("led by"),
    ]
    rows = [
        _incident_cells(analysis.explain(incident.longest), len(incident.places))
        for incident in analysis.incidents[:_MOST_INCIDENTS]
    ]
    more = len(analysis.incidents) - len(rows)
    return [
        heading,
        tag(
            "p",
            f"Times of half a second and more in which operations of a {place} were open and none was"
            " acknowledged; those that overlap are one row, with the longest of them."
            + (f" {more} shorter ones are not shown." if more > 0 else ""),
            class_="soft",
        ),
        table(columns, rows),
    ]


def _operations(analysis: Analysis) -> str:
    waited_on = sorted(analysis.overview.waited_on)
    return "a send" if waited_on == ["send"] else f"an operation ({', '.join(waited_on)})"


def _recovery_cells(found: KindRecovery) -> list[Child]:
    return [
        f"{found.count:,}",
        *_three(found.recovery_s),
        tag("strong", f"{found.not_recovered:,}", class_="bad") if found.not_recovered else "0",
        f"{found.alone:,}",
        *_three(found.alone_recovery_s),
        *_three(found.after_repair_s),
    ]


def _three(found: Percentiles | None) -> list[Child]:
    if found is None:
        return [UNKNOWN] * 3
    return [known(found.p50), known(found.p99), known(found.max)]


def _fault_cells(one: FaultRecovery, kinds: Sequence[str]) -> list[Child]:
    fault = one.fault
    lasted = UNKNOWN if fault.repaired_us is None else seconds(fault.repaired_us - fault.begin_us)
    recovered: Child = known(one.recovery_s)
    if one.missing:
        recovered = tag("strong", "never", class_="bad", title=", ".join(one.missing))
    return [
        seconds(fault.begin_us),
        swatch(colour_of(kinds, fault.kind), fault.kind),
        ", ".join(fault.victims) or UNKNOWN,
        fault.target,
        f"{fault.planned_s:.1f}",
        lasted,
        recovered,
        known(one.after_repair_s),
        "yes" if one.alone else "",
        _settings_text(fault.settings),
    ]


def _settings_text(settings: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in settings.items()
    )


def _incident_cells(found: Unavailability, places: int) -> list[Child]:
    return [
        seconds(found.window.begin_us),
        seconds(found.window.length_us, 2),
        found.window.place,
        str(places),
        _cause(found),
        ", ".join(found.struck) or UNKNOWN,
        seconds(found.leaderless_us) if found.leaders else UNKNOWN,
        " → ".join("nobody" if leader == "-1" else leader for leader in found.leaders) or UNKNOWN,
    ]


def _cause(found: Unavailability) -> str:
    if found.in_force:
        return ", ".join(map(str, found.in_force))
    if found.before is not None and found.before.repaired_us is not None:
        ago_us = found.window.begin_us - found.before.repaired_us
        return f"none; {seconds(ago_us)} s after the repair of {found.before}"
    return "none"
