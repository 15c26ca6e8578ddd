"""Shared by the parts of the self-test: a plant breaks one guarantee of a clean history."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.history import Event

Plant = Callable[[list[Event]], list[Event]]
Plants = tuple[tuple[str, Anomaly, Plant], ...]
"""In words, what must be found, and the plant."""


def edited(events: Sequence[Event], place: int, **changes: Any) -> list[Event]:
    """The history with other fields in one event."""
    return [*events[:place], replace(events[place], **changes), *events[place + 1 :]]
