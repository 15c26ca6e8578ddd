"""What a history may forget because too many disks lost their tails at once.

Kafka does not flush before it acknowledges: a record is safe while fewer disks than ``min.insync.replicas``
lose what they had not flushed. ``tail-loss`` says that a node's disk did, ``tail-restored`` that its replicas
are in sync again. Whoever sees more than that says of a partition itself, by ``forgiven``, that none of its
records was promised any more at that moment, and once more when clients have heard of it: an answer that was
on its way, or a reader's position, may be older. Until the last such moment acknowledgements prove nothing,
reads need not be repeated, and positions may be lost; from then on everything is demanded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from pykraft.jepsen_like.checkers.ownership import OFFSETS_TOPIC
from pykraft.jepsen_like.history import Event

_OF_A_LOG = frozenset({"send", "poll", "offset-for-time"})
_OF_COMMITS = frozenset({"commit", "committed"})


@dataclass(slots=True)
class Losses:
    """Positions in the history: what comes before is forgiven. ``by_key`` for single partitions."""

    everything: int = 0
    commits: int = 0
    by_key: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.everything or self.commits or self.by_key)

    def before(self, event: Event) -> int:
        """Up to where events such as this one are forgiven."""
        if event.op in _OF_A_LOG:
            return max(self.everything, self.by_key.get(event.key or "", 0))
        if event.op in _OF_COMMITS:
            return max(self.everything, self.commits)
        if event.op == "producer-fatal":
            return max(self.everything, *self.by_key.values())
        return 0


def without_lost_tails(history: list[Event], min_insync_replicas: int) -> Iterable[Event]:
    """The history with what was not promised taken out; the very same where nothing was lost."""
    losses = _find_losses(history, min_insync_replicas)
    return _forgiven(history, losses) if losses else history


def _find_losses(history: list[Event], min_insync_replicas: int) -> Losses:
    without: set[str] = set()
    losses = Losses()
    for position, event in enumerate(history):
        if event.op == "tail-loss":
            without.add(str(event.value))
        elif event.op == "forgiven" and event.key is not None:
            if event.key.startswith(OFFSETS_TOPIC):
                losses.commits = position
            else:
                losses.by_key[event.key] = position
        if len(without) >= min_insync_replicas:
            losses.everything = position
        if event.op == "tail-restored":
            without.discard(str(event.value))
    return losses


def _forgiven(history: list[Event], losses: Losses) -> Iterator[Event]:
    """Of what is forgiven only the attempt is left: a send or a commit whose outcome nobody knows."""
    for position, event in enumerate(history):
        if position >= losses.before(event) or event.type == "invoke":
            yield event
        elif event.op in ("send", "commit"):
            is_commit = event.op == "commit"
            kind = "info" if event.type == "ok" else event.type
            yield replace(event, type=kind, offset=event.offset if is_commit else None)
