"""Removes from a history what Kafka does not promise when disks lose what was not flushed.

``docs/fault-runs.md`` says what is promised. ``unclean-end`` means that a node's process ended without
flushing, ``tail-loss`` that its disk has lost what it had not flushed (or more: damage counts, too),
``tail-restored`` that its replicas are in sync again. If that happens to too many nodes, or an operator
elects a leader where none is left that counts (``unclean-election``), that is a loss. Of topics that are not
flushed:

- sends that began before the last loss prove nothing, however they are answered: the answer may have been on
  its way. Those that begin later hold at once, restored or not;
- what was read, found or committed before all were restored need not be found again;
- positions that readers obtained by then may be lost whenever they are used, producers that were opened by
  then may fail, and coordinators may have forgotten who owned what, and which transactions they had to end.

A world that sees more writes ``exempted`` for a single partition when none of its records is guaranteed any
more, and again when clients have learned of it: then all of this holds for that partition until the last such
event, and sends that were answered until then prove nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from pykraft.jepsen_like.faults.checkers.log_index import OPS_OF_A_MAP
from pykraft.jepsen_like.faults.checkers.ownership import OFFSETS_TOPIC
from pykraft.jepsen_like.faults.history import Event

FLUSH_MESSAGES = "flush.messages"
NEVER = 1 << 62
_SENDS = frozenset({"send", "put"})
_OF_A_LOG = _SENDS | OPS_OF_A_MAP | {"poll", "offset-for-time", "delete-records"}
_OF_COMMITS = frozenset({"commit", "committed"})


@dataclass(slots=True)
class Losses:
    """Up to where a history is exempted, in positions. ``everything``: where all were restored after the
    last loss; ``lost_us`` is the time of that loss. ``by_key``: what was exempted for single partitions."""

    everything: int = 0
    lost_us: int = -1
    commits: int = 0
    by_key: dict[str, int] = field(default_factory=dict)
    flushed: set[str] = field(default_factory=set)
    unflushed: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.everything or self.commits or self.by_key)

    def concern(self, key: str) -> bool:
        """Whether the log is one that a loss of too many tails may have cut."""
        return bool(self.everything) and key.rpartition("-")[0] not in self.flushed

    @property
    def of_coordinators(self) -> int:
        """As ``everything``, of what is in no topic of the workload."""
        return self.everything if self.unflushed or not self.flushed else 0

    def before(self, event: Event) -> int:
        """The position before which events like this one are exempted."""
        if event.op in _OF_A_LOG:
            key = event.key or ""
            return max(self.everything if self.concern(key) else 0, self.by_key.get(key, 0))
        if event.op in _OF_COMMITS:
            return max(self.of_coordinators, self.commits)
        if event.op == "hanging":
            return NEVER if self.of_coordinators else 0
        if event.op == "producer-fatal":
            return max(self.of_coordinators, *self.by_key.values(), 0)
        return 0


def without_lost_tails(history: list[Event], min_insync_replicas: int) -> Iterable[Event]:
    """The history without what was not guaranteed; the same object if nothing was lost."""
    losses = _find_losses(history, min_insync_replicas)
    return _exempted(history, losses) if losses else history


def _find_losses(history: list[Event], min_insync_replicas: int) -> Losses:
    unclean: set[str] = set()
    without_tail: set[str] = set()
    losses = Losses()
    for position, event in enumerate(history):
        name = str(event.value)  # of a node or a topic
        if event.op == "tail-loss":
            without_tail.add(name)
        if event.op in ("tail-loss", "unclean-end"):
            unclean.add(name)
        elif event.op == "topic":
            is_flushed = (event.detail or {}).get(FLUSH_MESSAGES) == "1"
            (losses.flushed if is_flushed else losses.unflushed).add(name)
        elif event.op == "exempted" and event.key is not None:
            if event.key.startswith(OFFSETS_TOPIC):
                losses.commits = position
            else:
                losses.by_key[event.key] = position
        if without_tail and len(unclean) >= min_insync_replicas:
            losses.everything = position
            if event.op in ("tail-loss", "unclean-end", "unclean-election"):
                losses.lost_us = event.time_us
        if event.op == "tail-restored":
            unclean.discard(name)
            without_tail.discard(name)
    return losses


def _exempted(history: list[Event], losses: Losses) -> Iterator[Event]:
    """Exempted events count as attempts only: a write or a commit with an unknown outcome."""
    begun_us: dict[tuple[object, ...], int] = {}
    obtained = _Obtained()
    for position, event in enumerate(history):
        is_send = event.op in _SENDS and losses.concern(event.key or "")
        if event.type == "invoke":
            if is_send:
                begun_us[_name(event)] = event.time_us
            yield event
        elif is_send:
            was_before = begun_us.pop(_name(event), -1) <= losses.lost_us
            yield _unknown(event) if was_before else event
        elif obtained.position(position, event) >= losses.before(event):
            yield event
        elif event.op in _SENDS or event.op == "commit":
            yield _unknown(event)
        if position == losses.of_coordinators > 0:
            yield Event("info", event.process, event.time_us, "exempted", key=OFFSETS_TOPIC)


def _name(event: Event) -> tuple[object, ...]:
    """Return the key that a write and its answer share."""
    return event.process, event.key, event.value, (event.detail or {}).get("number")


def _unknown(event: Event) -> Event:
    kind = "info" if event.type == "ok" else event.type
    return replace(event, type=kind, offset=event.offset if event.op == "commit" else None)


class _Obtained:
    """Where in the history what an event is about was obtained: the position of a reader, the sequences of a
    producer. Other events are about themselves."""

    def __init__(self) -> None:
        self._opened: dict[str, int] = {}
        self._polled: dict[tuple[str, str | None], int] = {}

    def position(self, position: int, event: Event) -> int:
        """Call it with each event in turn."""
        if event.op in ("producer", "assign", "map-start"):
            self._opened[event.process] = position
        elif event.op in ("poll", "map-read") and event.type == "ok":
            self._polled[event.process, event.key] = position
        elif event.op == "poll":
            opened = self._opened.get(event.process, 0)
            return max(opened, self._polled.get((event.process, event.key), 0))
        elif event.op == "producer-fatal":
            return self._opened.get(event.process, 0)
        return position
