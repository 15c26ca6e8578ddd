"""How far readers were behind: the worst realtime lag of each log, and how many reads were stale.

A poll is stale if a record behind the position where it left its reader was known already when the poll was
invoked: a producer with acks=all had been told of it, or some reader had it. For how long before that moment
is its lag: a lower bound, since the record was there before anybody knew. Nor does it begin before the reader
was given the partition: one that begins again is not late for what it missed.

These are numbers to report. Nothing is required of them, for no guarantee of Kafka speaks of time.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pykraft.jepsen_like.faults.checkers.tail_losses import without_lost_tails
from pykraft.jepsen_like.faults.history import Event


@dataclass(frozen=True, slots=True)
class WorstLag:
    """``lag_us``: of the partition ``key``, in the poll of ``process`` that was invoked at ``at_us``."""

    key: str
    lag_us: int
    at_us: int
    process: str


@dataclass(frozen=True, slots=True)
class Lag:
    """``by_key``: the worst lag of each partition that had a stale read. ``polls``: those of all partitions,
    each for itself, ``stale_polls`` of which were stale."""

    by_key: Mapping[str, WorstLag]
    polls: int
    stale_polls: int

    @property
    def worst(self) -> WorstLag | None:
        """None: no read was stale."""
        return max(self.by_key.values(), key=lambda worst: worst.lag_us, default=None)


def measure_lag(events: Iterable[Event], min_insync_replicas: int = 2) -> Lag:
    """Two passes over a history. ``min_insync_replicas``: that of all topics; what was lost together with the
    tails of so many disks was never known (see ``tail_losses``)."""
    history = list(without_lost_tails(list(events), min_insync_replicas))
    measure = _Measure(_find_heads(history))
    for event in history:
        measure.replay(event)
    return measure.result()


@dataclass(slots=True)
class _Heads:
    """The last offset of a log as it became known: ``offsets`` and ``times_us``, both ascending."""

    offsets: list[int] = field(default_factory=list)
    times_us: list[int] = field(default_factory=list)

    def ended_us(self, offset: int) -> int | None:
        """When a later offset than this one was known first; None: never."""
        place = bisect_right(self.offsets, offset)
        return self.times_us[place] if place < len(self.offsets) else None


def _find_heads(history: list[Event]) -> dict[str, _Heads]:
    weak: set[str] = set()
    known: list[tuple[int, str, int]] = []
    for event in history:
        if event.op == "producer" and (event.detail or {}).get("acks", -1) != -1:
            weak.add(event.process)
        if event.type != "ok" or event.key is None:
            continue
        if event.op == "send" and event.offset is not None and event.process not in weak:
            known.append((event.time_us, event.key, event.offset))
        elif event.op in ("poll", "final") and event.records:
            known.append((event.time_us, event.key, event.records[-1][0]))
    heads: dict[str, _Heads] = {}
    for time_us, key, offset in sorted(known):
        of_key = heads.setdefault(key, _Heads())
        if not of_key.offsets or offset > of_key.offsets[-1]:
            of_key.offsets.append(offset)
            of_key.times_us.append(time_us)
    return heads


@dataclass(slots=True)
class _Reader:
    """``positions``: the last offset read of each partition, since it was ``given`` (0: from the start).
    ``asked_us``: when the newest poll was invoked; what it brings is in the events that follow."""

    positions: dict[str, int] = field(default_factory=dict)
    given_us: dict[str, int] = field(default_factory=dict)
    assigned_us: int = 0
    asked_us: int | None = None


class _Measure:
    def __init__(self, heads: Mapping[str, _Heads]) -> None:
        self._heads = heads
        self._readers: dict[str, _Reader] = {}
        self._worst: dict[str, WorstLag] = {}
        self._polls = self._stale_polls = 0

    def replay(self, event: Event) -> None:
        reader = self._readers.get(event.process)
        if reader is None:
            reader = self._readers[event.process] = _Reader()
        partitions = (event.detail or {}).get("partitions", ())
        match event.op:
            case "poll" | "poll-empty" if event.type == "invoke" or event.key is None:
                if reader.asked_us != event.time_us:
                    self._end_poll(event.process, reader)
                    reader.asked_us = event.time_us
            case "poll" if event.type == "ok" and event.key is not None and event.records:
                reader.positions[event.key] = event.records[-1][0]
            case "assign":
                self._end_poll(event.process, reader)
                self._readers[event.process] = _Reader(assigned_us=event.time_us)
            case "assigned" | "rewind" | "revoked" | "lost":
                self._end_poll(event.process, reader)
                for partition in partitions:
                    reader.positions.pop(partition, None)
                    reader.given_us[partition] = event.time_us
            case "member-gone":
                self._end_poll(event.process, reader)
                del self._readers[event.process]

    def result(self) -> Lag:
        for process, reader in self._readers.items():
            self._end_poll(process, reader)
        return Lag(self._worst, self._polls, self._stale_polls)

    def _end_poll(self, process: str, reader: _Reader) -> None:
        """The newest poll has brought what it brings; where nothing came, it found nothing."""
        asked_us, reader.asked_us = reader.asked_us, None
        if asked_us is None:
            return
        for key, offset in reader.positions.items():
            self._polls += 1
            ended_us = self._heads[key].ended_us(offset)
            if ended_us is None:
                continue
            lag_us = asked_us - max(ended_us, reader.given_us.get(key, reader.assigned_us))
            if lag_us > 0:
                self._stale_polls += 1
                if key not in self._worst or lag_us > self._worst[key].lag_us:
                    self._worst[key] = WorstLag(key, lag_us, asked_us, process)
