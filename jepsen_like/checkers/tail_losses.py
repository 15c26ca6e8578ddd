"""What a history may forget because too many disks lost their tails at once.

Kafka does not flush before it acknowledges: a record is safe while fewer disks than ``min.insync.replicas``
lose what they had not flushed. ``tail-loss`` says that a node's disk did, ``tail-restored`` that its replicas
are in sync again. Until the last moment at which so many were without their tails, acknowledgements prove
nothing, reads need not be repeated, and positions may be lost; from then on everything is demanded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pykraft.jepsen_like.history import Event

_ACKNOWLEDGEMENTS = frozenset({"send", "commit"})
_READS = frozenset({"poll", "committed", "offset-for-time"})


def without_lost_tails(history: list[Event], min_insync_replicas: int) -> Iterable[Event]:
    """The history with what was not promised taken out; the very same where nothing was lost."""
    safe_from = _last_loss(history, min_insync_replicas)
    return history if safe_from is None else _forgiven(history, safe_from)


def _last_loss(history: list[Event], min_insync_replicas: int) -> int | None:
    """The position behind the last event that found so many disks without their tails; None: there is
    none."""
    without: set[str] = set()
    last: int | None = None
    for position, event in enumerate(history):
        if event.op == "tail-loss":
            without.add(str(event.value))
        elif event.op == "tail-restored":
            if len(without) >= min_insync_replicas:
                last = position
            without.discard(str(event.value))
    return len(history) if len(without) >= min_insync_replicas else last


def _forgiven(history: list[Event], safe_from: int) -> Iterator[Event]:
    for position, event in enumerate(history):
        if position >= safe_from:
            yield event
        elif event.type == "ok" and event.op in _ACKNOWLEDGEMENTS:
            yield replace(event, type="info", offset=event.offset if event.op == "commit" else None)
        elif event.op not in _READS and event.op != "producer-fatal":
            yield event
