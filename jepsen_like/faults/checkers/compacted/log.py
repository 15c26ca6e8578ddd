"""The history of one compacted log: what was put into it, and what reads from its start found.

``put``        invoke: ``value`` is ``KEY=VALUE``, or ``KEY`` alone, which deletes the key; ``detail.number``
               counts the puts of a process. Each key has one writer, and values are unique. Answered with
               the ``offset`` when it is known
``map-start``  ok: this process reads the log from its start; ``detail.delete_retention_ms`` is the topic's
``map-read``   ok: ``records`` found
``map-end``    ok: it has read everything below ``offset``, which is the high watermark or more
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pykraft.jepsen_like.faults.history import Event, EventType
from pykraft.jepsen_like.faults.record_text import parse_pair


@dataclass(slots=True)
class Put:
    """Times in microseconds; ``outcome`` is "info" also while it is not answered. ``offset``: where it is, by
    its answer or because it was read there."""

    process: str
    number: int
    text: str
    invoked_us: int
    outcome: EventType = "info"
    offset: int | None = None

    @property
    def key(self) -> str:
        return parse_pair(self.text)[0]

    @property
    def deletes(self) -> bool:
        return parse_pair(self.text)[1] is None

    def __str__(self) -> str:
        place = "nowhere known" if self.offset is None else f"at {self.offset}"
        return f"{self.text} ({self.process} #{self.number}, {place})"


@dataclass(slots=True)
class MapRead:
    """One read from the start. ``end``: it found everything below; None: it did not get there."""

    process: str
    began_us: int
    delete_retention_ms: int
    records: list[tuple[int, str]] = field(default_factory=list)
    end: int | None = None
    ended_us: int = 0


@dataclass(slots=True)
class CompactedLog:
    """``puts`` by process and number, in the order of invocation."""

    puts: dict[tuple[str, int], Put] = field(default_factory=dict)
    reads: list[MapRead] = field(default_factory=list)


def read_compacted(events: Iterable[Event]) -> CompactedLog:
    """``events``: those of one log. What is left of a read whose beginning is missing is left out."""
    log = CompactedLog()
    reading: dict[str, MapRead] = {}
    for event in events:
        match event.op:
            case "put" if event.value is not None:
                number = (event.detail or {})["number"]
                if event.type == "invoke":
                    put = Put(event.process, number, event.value, event.time_us)
                    log.puts[event.process, number] = put
                else:
                    put = log.puts[event.process, number]
                    put.outcome, put.offset = event.type, event.offset
            case "map-start":
                retention_ms = (event.detail or {})["delete_retention_ms"]
                reading[event.process] = MapRead(event.process, event.time_us, retention_ms)
                log.reads.append(reading[event.process])
            case "map-read" if event.process in reading:
                reading[event.process].records += event.records or ()
            case "map-end" if event.process in reading:
                read = reading.pop(event.process)
                read.end, read.ended_us = event.offset, event.time_us
    return log
