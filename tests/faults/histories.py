"""Small histories made by hand, in milliseconds."""

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from pykraft.jepsen_like.faults.history import NEMESIS, REPAIRED, Event, EventType


def ms(time_ms: float) -> int:
    """In microseconds."""
    return round(time_ms * 1000)


def sent(
    value: str,
    at_ms: float,
    answered_ms: float | None,
    key: str = "t-0",
    *,
    outcome: EventType = "ok",
    offset: int | None = None,
    process: str = "p",
) -> list[Event]:
    """A send, with its answer if there is one."""
    events = [Event("invoke", process, ms(at_ms), "send", key, value)]
    if answered_ms is not None:
        events.append(Event(outcome, process, ms(answered_ms), "send", key, value, offset))
    return events


def steadily(
    begin_ms: int, end_ms: int, key: str = "t-0", *, every_ms: int = 10, takes_ms: int = 5
) -> list[Event]:
    """One send after the other, each answered soon."""
    return [
        event
        for at_ms in range(begin_ms, end_ms, every_ms)
        for event in sent(f"{key}@{at_ms}", at_ms, at_ms + takes_ms, key)
    ]


def fault(
    number: int,
    kind: str,
    victims: str,
    begin_ms: float,
    repaired_ms: float | None,
    **detail: Any,
) -> list[Event]:
    told = {"number": number, "target": "any", "for_s": 1.5, **detail}
    events = [Event("ok", NEMESIS, ms(begin_ms), kind, value=victims, detail=told)]
    if repaired_ms is not None:
        named = {"number": number, "kind": kind}
        events.append(Event("ok", NEMESIS, ms(repaired_ms), REPAIRED, value=victims, detail=named))
    return events


def led(key: str, leader: str, at_ms: float) -> Event:
    return Event("info", "observer", ms(at_ms), "leader", key, leader)


def in_order(*parts: Event | Iterable[Event]) -> list[Event]:
    """All events by their times."""
    events = [event for part in parts for event in ([part] if isinstance(part, Event) else part)]
    return sorted(events, key=lambda event: event.time_us)


def count_calls(work: Callable[[], object]) -> int:
    """How many functions it calls, of Python and of C: the same on a busy machine."""
    count = 0

    def on_event(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
