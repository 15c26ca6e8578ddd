"""Operations of clients, each from its invocation to its outcome.

They are paired by process, op, key and value, because one producer has many sends in flight. What has no
invocation in the history says in ``detail.asked_us`` when it was asked for, or is no operation of a client.
"""

from collections.abc import Mapping

from pykraft.jepsen_like.faults.history import Event
from pykraft.jepsen_like.faults.timeline.overview import ACKS_ALL, TRANSACTION_ENDS


class Pairing:
    """Knows the operations that have no outcome yet, and nothing of the others."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str, str | None, str | None], int] = {}

    def begin(self, event: Event) -> bool:
        """An invocation; False if it repeats one that nobody waits for any longer."""
        name = (event.process, event.op, event.key, event.value)
        is_new = name not in self._open
        self._open[name] = event.time_us
        return is_new

    def end(self, event: Event) -> tuple[int, bool] | None:
        """When the operation was invoked that has this outcome, in microseconds, and whether that is in the
        history; None if the event is no outcome."""
        invoked_us = self._open.pop((event.process, event.op, event.key, event.value), None)
        if invoked_us is None and event.value is not None:  # a read: its value comes with its outcome
            invoked_us = self._open.pop((event.process, event.op, event.key, None), None)
        if invoked_us is not None:
            return invoked_us, True
        asked_us = None if event.detail is None else event.detail.get("asked_us")
        return (asked_us, False) if isinstance(asked_us, int) else None


def label(event: Event, acks: Mapping[str, int]) -> str:
    """The operation as it is shown: sends with weaker guarantees are others."""
    if event.op == "send":
        wanted = acks.get(event.process, ACKS_ALL)
        if wanted != ACKS_ALL:
            return f"send, acks={wanted}"
    return event.op


def place(event: Event) -> str:
    """Return the place a client waits for: a send's partition, a transaction's client, else the key.

    A client goes on under its name in another life (``NAME.LIFE``): its coordinator is the same."""
    if event.op == "send":
        return event.key or ""
    if event.op in TRANSACTION_ENDS:
        return event.process.partition(".")[0]
    return event.op if event.key is None else f"{event.op} {event.key}"
