"""The timeline of one history: faults, recovery, availability, rates and lag, in two passes over it."""

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pykraft.jepsen_like.faults.history import Event
from pykraft.jepsen_like.faults.nemeses.fault import Plan
from pykraft.jepsen_like.faults.timeline.availability import Availability, Incident, Window, incidents
from pykraft.jepsen_like.faults.timeline.fault_recovery import (
    FaultRecoveries,
    FaultRecovery,
    KindRecovery,
    by_kind,
)
from pykraft.jepsen_like.faults.timeline.faults import FaultSpan, PhaseSpan, planned_phases
from pykraft.jepsen_like.faults.timeline.lag import ConsumerLag
from pykraft.jepsen_like.faults.timeline.operations import Pairing, label, place
from pykraft.jepsen_like.faults.timeline.overview import (
    ACKS_ALL,
    FAULTS_BEGIN,
    FAULTS_END,
    IN_SYNC,
    Changes,
    Overview,
    survey,
)
from pykraft.jepsen_like.faults.timeline.rates import OpRates, Rates
from pykraft.jepsen_like.faults.timeline.seconds import Percentiles, second_of


@dataclass(frozen=True, slots=True)
class Unavailability:
    """One window with what is known of its reason.

    ``in_force``: the faults that were for some part of it; ``before``: the last fault that was repaired
    before, if none was. ``struck``: the most nodes that faults in force had hit at one moment.
    ``leaderless_us``: how long of it the partition had no leader, as far as brokers knew. ``leaders``: who
    led it, from the leader at the beginning on."""

    window: Window
    in_force: tuple[FaultSpan, ...]
    before: FaultSpan | None
    struck: tuple[str, ...]
    leaderless_us: int
    leaders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Analysis:
    """``phases``: of the plan, between those of the runner. ``calm_s``: the time to recover of moments at
    which nothing was broken. ``availability`` and ``lag``: see their modules, an item for each second, as
    in ``rates``. ``incidents`` in the order of their longest windows, the longest first."""

    overview: Overview
    phases: tuple[PhaseSpan, ...]
    faults: tuple[FaultRecovery, ...]
    by_kind: Mapping[str, KindRecovery]
    calm_s: Percentiles | None
    windows: tuple[Window, ...]
    incidents: tuple[Incident, ...]
    availability: list[float | None]
    rates: tuple[OpRates, ...]
    lag: list[int | None]

    @property
    def longest_unavailability(self) -> Unavailability | None:
        """None if no window is long enough to be one."""
        if not self.incidents:
            return None
        return self.explain(self.incidents[0].longest)

    def explain(self, window: Window) -> Unavailability:
        """A window with the faults and the leaders of its time."""
        faults = [one.fault for one in self.faults]
        in_force = tuple(fault for fault in faults if fault.in_force(window.begin_us, window.end_us))
        repaired = [f for f in faults if f.repaired_us is not None and f.repaired_us < window.begin_us]
        before = max(repaired, key=lambda fault: fault.repaired_us or 0, default=None)
        leaders = self.overview.leaders.get(window.place, ())
        return Unavailability(
            window,
            in_force,
            None if in_force else before,
            _struck(in_force, window),
            _leaderless_us(leaders, window),
            _leaders(leaders, window),
        )


def analyse_events(history: Callable[[], Iterable[Event]], plan: Plan | None = None) -> Analysis:
    """``history`` is called twice; each time it returns all events, in order.
    :class:`~pykraft.jepsen_like.faults.history.HistoryError` if it claims to be longer than any run is."""
    was_enabled = gc.isenabled()
    gc.disable()  # millions of objects without a cycle
    try:
        overview = survey(history())
        return _analyse(overview, history(), plan)
    finally:
        if was_enabled:
            gc.enable()


def _analyse(overview: Overview, events: Iterable[Event], plan: Plan | None) -> Analysis:
    waited_on, acks = overview.waited_on, overview.acks
    pairing, rates, lag = Pairing(), Rates(), ConsumerLag()
    availability = Availability()
    recoveries = FaultRecoveries(overview.faults, overview.end_us)
    recovery = recoveries.recovery
    for event in events:
        counts = event.op in waited_on and acks.get(event.process, ACKS_ALL) == ACKS_ALL
        if event.type == "invoke":
            if pairing.begin(event) and counts:
                availability.invoked(place(event), event.time_us)
                recovery.invoked(place(event), event.time_us)
            continue
        lag.add(event)
        found = pairing.end(event)
        if found is None:
            continue
        invoked_us, was_told = found
        rates.ended(label(event, acks), event.type, invoked_us, event.time_us)
        if counts and was_told:
            where, acknowledged = place(event), event.type == "ok"
            availability.ended(where, event.time_us, acknowledged=acknowledged)
            recovery.ended(where, invoked_us, event.time_us, acknowledged=acknowledged)
    seconds = second_of(overview.end_us) + 1
    windows = availability.windows()
    faults, calm_s = recoveries.results(windows)
    found_incidents = sorted(incidents(windows), key=lambda incident: -incident.longest.length_us)
    return Analysis(
        overview=overview,
        phases=phases_of(overview, plan),
        faults=faults,
        by_kind=by_kind(faults),
        calm_s=calm_s,
        windows=windows,
        incidents=tuple(found_incidents),
        availability=availability.shares(seconds),
        rates=rates.results(seconds),
        lag=lag.results(seconds),
    )


def phases_of(overview: Overview, plan: Plan | None) -> tuple[PhaseSpan, ...]:
    """The phases of the plan, between those of the runner, as far as the history goes."""
    begin_us, end_us = overview.mark_us(FAULTS_BEGIN), overview.mark_us(FAULTS_END)
    phases = [] if plan is None else list(planned_phases(plan, overview.faults, begin_us))
    if end_us is not None:
        phases = [replace(phase, end_us=min(phase.end_us, end_us)) for phase in phases]
    if begin_us is None and phases:
        begin_us = phases[0].begin_us
    if begin_us is not None:
        phases.insert(0, PhaseSpan("start", 0, begin_us))
    in_sync_us = overview.mark_us(IN_SYNC)
    if end_us is not None:
        healed_us = overview.end_us if in_sync_us is None else in_sync_us
        phases.append(PhaseSpan("healing", end_us, healed_us))
        phases.append(PhaseSpan("end", healed_us, overview.end_us))
    return tuple(phase for phase in phases if phase.begin_us < phase.end_us)


def _struck(faults: Sequence[FaultSpan], window: Window) -> tuple[str, ...]:
    """Faults only add victims at their beginnings."""
    moments_us = [max(window.begin_us, fault.begin_us) for fault in faults]
    sets = [
        {node for fault in faults if fault.in_force(at_us, at_us) for node in fault.victims}
        for at_us in moments_us
    ]
    return tuple(sorted(max(sets, key=len, default=())))


def _leaderless_us(leaders: Changes, window: Window) -> int:
    ends_us = [*(time_us for time_us, _ in leaders[1:]), window.end_us]
    return sum(
        max(0, min(end_us, window.end_us) - max(begin_us, window.begin_us))
        for (begin_us, leader), end_us in zip(leaders, ends_us, strict=False)
        if leader == "-1"
    )


def _leaders(leaders: Changes, window: Window) -> tuple[str, ...]:
    before = [leader for time_us, leader in leaders if time_us <= window.begin_us]
    during = [leader for time_us, leader in leaders if window.begin_us < time_us <= window.end_us]
    seen = [*before[-1:], *during]
    return tuple(seen[:1] + [leader for former, leader in pairwise(seen) if leader != former])
