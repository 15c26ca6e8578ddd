"""Removes from a history what Kafka does not guarantee because too many disks lost their tails at once.

Kafka does not flush before it acknowledges: a record is safe while fewer disks than ``min.insync.replicas``
lose their unflushed records. ``tail-loss`` means that a node's disk lost them, ``tail-restored`` that its
replicas are in sync again. A world that sees more writes ``exempted`` for a single partition when none of its
records is guaranteed any more, and again when clients have learned of it: an answer on its way, or the
position of a reader, may be older. Until the last such event acknowledgements prove nothing, reads need not
be repeated, and positions may be lost; after it all guarantees hold again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from pykraft.jepsen_like.checkers.ownership import OFFSETS_TOPIC
from pykraft.jepsen_like.history import Event

_OF_A_LOG = frozenset({"send", "poll", "offset-for-time", "delete-records"})
_OF_COMMITS = frozenset({"commit", "committed"})


@dataclass(slots=True)
class Losses:
    """Positions in the history before which losses are exempted. ``by_key``: those of single partitions."""

    everything: int = 0
    commits: int = 0
    by_key: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.everything or self.commits or self.by_key)

    def before(self, event: Event) -> int:
        """The position before which events like this one are exempted."""
        if event.op in _OF_A_LOG:
            return max(self.everything, self.by_key.get(event.key or "", 0))
        if event.op in _OF_COMMITS:
            return max(self.everything, self.commits)
        if event.op == "producer-fatal":
            return max(self.everything, *self.by_key.values())
        return 0


def without_lost_tails(history: list[Event], min_insync_replicas: int) -> Iterable[Event]:
    """The history without what was not guaranteed; the same object if nothing was lost."""
    losses = _find_losses(history, min_insync_replicas)
    return _exempted(history, losses) if losses else history


def _find_losses(history: list[Event], min_insync_replicas: int) -> Losses:
    without: set[str] = set()
    losses = Losses()
    for position, event in enumerate(history):
        if event.op == "tail-loss":
            without.add(str(event.value))
        elif event.op == "exempted" and event.key is not None:
            if event.key.startswith(OFFSETS_TOPIC):
                losses.commits = position
            else:
                losses.by_key[event.key] = position
        if len(without) >= min_insync_replicas:
            losses.everything = position
        if event.op == "tail-restored":
            without.discard(str(event.value))
    return losses


def _exempted(history: list[Event], losses: Losses) -> Iterator[Event]:
    """Of exempted events only the attempt remains: a send or a commit with an unknown outcome."""
    for position, event in enumerate(history):
        if position >= losses.before(event) or event.type == "invoke":
            yield event
        elif event.op in ("send", "commit"):
            is_commit = event.op == "commit"
            kind = "info" if event.type == "ok" else event.type
            yield replace(event, type=kind, offset=event.offset if is_commit else None)
