"""The faults over time: a lane for each kind, bands through the plots below, and the phases above."""

from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element

from pykraft.jepsen_like.faults.reports.page.elements import tag
from pykraft.jepsen_like.faults.reports.page.scales import Scale
from pykraft.jepsen_like.faults.timeline.faults import FaultSpan, PhaseSpan
from pykraft.jepsen_like.faults.timeline.seconds import US_PER_S

LANE_PX: Final = 18.0
COLOURS: Final = 8
"""The page's style has so many for kinds, ``kind-0`` and so on; then they begin again."""
_NARROWEST_PX: Final = 2.0
_MOST_TITLES: Final = 400
"""With more faults than this, those that touch on the paper are drawn as one, without a title of their
own."""
_PHASE_TEXT_PX: Final = 7.0
"""For a letter."""


def colour_of(kinds: Sequence[str], kind: str) -> str:
    return f"kind-{kinds.index(kind) % COLOURS}"


def draw_phases(phases: Sequence[PhaseSpan], top_px: float, time: Scale) -> Element:
    group = tag("g", role="img", aria_label="Phases: " + ", ".join(map(_phase_text, phases)))
    group.append(tag("text", "phase", class_="tick end", x=time.from_px - 8, y=top_px + 12))
    for phase in phases:
        left, right = time.px(phase.begin_us / US_PER_S), time.px(phase.end_us / US_PER_S)
        block = tag("g", tag("title", _phase_text(phase)))
        style = f"phase {phase.name}" if phase.name in ("many", "few", "none") else "phase"
        block.append(tag("rect", class_=style, x=left, y=top_px, width=right - left, height=LANE_PX - 3))
        if len(phase.name) * _PHASE_TEXT_PX < right - left:
            middle = (left + right) / 2
            block.append(tag("text", phase.name, class_="tick middle", x=middle, y=top_px + 11.5))
        group.append(block)
    return group


def draw_lanes(faults: Sequence[FaultSpan], kinds: Sequence[str], top_px: float, time: Scale) -> Element:
    """One below the other, in the order of ``kinds``."""
    group = tag("g", role="img", aria_label=f"{len(faults)} faults by kind; the table of faults lists them")
    for lane, kind in enumerate(kinds):
        y = top_px + lane * LANE_PX
        group.append(tag("text", kind, class_="tick end", x=time.from_px - 8, y=y + 12))
        middle_px = y + LANE_PX / 2
        group.append(tag("line", class_="grid", x1=time.from_px, x2=time.to_px, y1=middle_px, y2=middle_px))
        for left, right, title in _blocks([f for f in faults if f.kind == kind], len(faults), time):
            group.append(
                tag(
                    "rect",
                    tag("title", title) if title else None,
                    class_=f"fault {colour_of(kinds, kind)}",
                    x=left,
                    y=y + 3,
                    width=right - left,
                    height=LANE_PX - 6,
                    rx=2,
                )
            )
    return group


def draw_bands(
    faults: Sequence[FaultSpan], kinds: Sequence[str], top_px: float, bottom_px: float, time: Scale
) -> Element:
    """Shades in the colours of the lanes."""
    group = tag("g", aria_hidden="true")
    for kind in kinds:
        for left, right, title in _blocks([f for f in faults if f.kind == kind], len(faults), time):
            style = f"band {colour_of(kinds, kind)}"
            block = tag("rect", tag("title", title) if title else None, class_=style, x=left, y=top_px)
            block.set("width", f"{right - left:.2f}")
            block.set("height", f"{bottom_px - top_px:.2f}")
            group.append(block)
    return group


def _blocks(faults: Sequence[FaultSpan], total: int, time: Scale) -> list[tuple[float, float, str | None]]:
    blocks: list[tuple[float, float, str | None]] = []
    for fault in faults:
        left, right = _extent(fault, time)
        if total > _MOST_TITLES and blocks and left <= blocks[-1][1]:
            blocks[-1] = (blocks[-1][0], max(right, blocks[-1][1]), None)
        else:
            blocks.append((left, right, _fault_text(fault) if total <= _MOST_TITLES else None))
    return blocks


def _extent(fault: FaultSpan, time: Scale) -> tuple[float, float]:
    left = time.px(fault.begin_us / US_PER_S)
    right = time.to_px if fault.repaired_us is None else time.px(fault.repaired_us / US_PER_S)
    return left, max(right, left + _NARROWEST_PX)


def _fault_text(fault: FaultSpan) -> str:
    end = "the end" if fault.repaired_us is None else f"{fault.repaired_us / US_PER_S:.1f} s"
    return f"{fault}: {fault.begin_us / US_PER_S:.1f} s to {end}"


def _phase_text(phase: PhaseSpan) -> str:
    return f"{phase.name} from {phase.begin_us / US_PER_S:.1f} s to {phase.end_us / US_PER_S:.1f} s"
