"""What a person sees of a timeline on a terminal: faults, how they were recovered from, unavailability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from pykraft.jepsen_like.faults.timeline.analysis import Analysis, Unavailability
from pykraft.jepsen_like.faults.timeline.fault_recovery import FaultRecovery, slowest
from pykraft.jepsen_like.faults.timeline.seconds import US_PER_S, Percentiles

MOST_FAULTS: Final = 40
"""A terminal shows so many; of more, those that were recovered from last. ``report.html`` has them all."""


def fault_table(faults: Sequence[FaultRecovery]) -> Table:
    """Seconds; what is not known is left empty."""
    title = "faults"
    if len(faults) > MOST_FAULTS:
        title = f"the {MOST_FAULTS} of {len(faults)} faults that took longest to recover from"
    numbers = ("at s", "planned", "lasted", "recovered in", "after repair")
    table = plain_table(title, ("fault", "node", "aimed at"), numbers)
    for one in slowest(faults, MOST_FAULTS):
        fault = one.fault
        lasted_s = None if fault.repaired_us is None else (fault.repaired_us - fault.begin_us) / US_PER_S
        table.add_row(
            Text(fault.kind),
            Text(",".join(fault.victims)),
            Text(fault.target),
            f"{fault.begin_us / US_PER_S:.1f}",
            f"{fault.planned_s:.1f}",
            one_digit(lasted_s),
            "never" if one.missing else _two_digits(one.recovery_s) + ("" if one.alone else " *"),
            _two_digits(one.after_repair_s),
        )
    if any(not one.alone for one in faults):
        table.caption = "* while another fault was in force or not yet recovered from"
    return table


def recovery_table(analysis: Analysis) -> Table:
    """A row for each kind of fault, and one for moments at which nothing was broken."""
    numbers = ("faults", "p50", "p99", "max", "alone", "p50", "max", "after repair p50", "max")
    table = plain_table("time to recover, s", ("kind",), numbers)
    for kind, found in analysis.by_kind.items():
        every, alone, repaired = found.recovery_s, found.alone_recovery_s, found.after_repair_s
        table.add_row(
            Text(kind),
            str(found.count),
            *(_two_digits(x) for x in _of(every, "p50", "p99", "max")),
            str(found.alone),
            *(_two_digits(x) for x in _of(alone, "p50", "max")),
            *(_two_digits(x) for x in _of(repaired, "p50", "max")),
        )
    if analysis.calm_s is not None:
        calm = (_two_digits(x) for x in _of(analysis.calm_s, "p50", "p99", "max"))
        table.add_row("nothing, for comparison", str(analysis.calm_s.count), *calm)
    return table


def _of(found: Percentiles | None, *names: str) -> list[float | None]:
    return [None if found is None else getattr(found, name) for name in names]


def unavailability_text(longest: Unavailability) -> str:
    """The longest unavailability and what is known of its reason, in a sentence."""
    window = longest.window
    parts = [f"longest unavailability: {window.length_us / US_PER_S:.1f} s of {window.place}"]
    parts[0] += f" at {window.begin_us / US_PER_S:.1f} s"
    if longest.in_force:
        parts.append("during " + ", ".join(map(str, longest.in_force)))
    elif longest.before is not None and longest.before.repaired_us is not None:
        ago_s = (window.begin_us - longest.before.repaired_us) / US_PER_S
        parts.append(f"{ago_s:.1f} s after the repair of {longest.before}")
    if len(longest.struck) > 1:
        parts.append(f"faults on nodes {','.join(longest.struck)} at once")
    if longest.leaderless_us:
        parts.append(f"without a leader for {longest.leaderless_us / US_PER_S:.1f} s")
    if len(longest.leaders) > 1:
        parts.append("led by " + " → ".join("nobody" if one == "-1" else one for one in longest.leaders))
    return "; ".join(parts)


def plain_table(title: str, words: Sequence[str], numbers: Sequence[str]) -> Table:
    """Columns of words, then columns of numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="dim")
    for column in words:
        table.add_column(column)
    for column in numbers:
        table.add_column(column, justify="right")
    return table


def one_digit(value: float | None) -> str:
    """Nothing if it is not known."""
    return "" if value is None else f"{value:.1f}"


def _two_digits(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
