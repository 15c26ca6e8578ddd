"""One pass over a history, sorted by key: the sends, their answers, and every read in order.

Decides nothing; the checkers of this package use the result. Memory is a few machine words per record.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pykraft.jepsen_like.faults.history import Event

SendStatus = Literal["open", "ok", "fail", "info"]
OPS_OF_A_MAP = frozenset({"put", "map-start", "map-read", "map-end"})
"""Those of a compacted log: see ``compacted_log``."""
OPS_OF_A_LOG = OPS_OF_A_MAP | {
    "send",
    "poll",
    "final",
    "final-start",
    "final-end",
    "replica",
    "delete-records",
    "offset-for-time",
}
BatchMark = tuple[int, ...]
"""Base offset, last offset, leader epoch, CRC, producer id, producer epoch, base sequence."""


@dataclass(frozen=True, slots=True)
class ProducerKind:
    """The guarantees of a producer: ``durable`` with acks=all, order and no duplicates if ``idempotent``."""

    durable: bool = True
    idempotent: bool = True
    pipelined: bool = False


STRICT = ProducerKind()


@dataclass(slots=True)
class Send:
    """One value sent to one key. ``open``: never answered, so the outcome is unknown. ``floor``: no lower
    offset can be its own, for what is below was there when it was sent."""

    process: str
    value: str
    kind: ProducerKind = STRICT
    timestamp_ms: int | None = None
    status: SendStatus = "open"
    offset: int | None = None
    answered_us: int | None = None
    floor: int = 0

    @property
    def must_stay(self) -> bool:
        """Whether enough replicas have acknowledged it."""
        return self.status == "ok" and self.kind.durable


@dataclass(frozen=True, slots=True)
class Read:
    """Successive records that one process read; ``continues``: not the first read of an assignment."""

    process: str
    time_us: int
    continues: bool
    records: tuple[tuple[int, str], ...]
    high_watermark: int | None = None


@dataclass(frozen=True, slots=True)
class TimeLookup:
    """The offset that was found for a time; None if no record is at or after it."""

    process: str
    asked_us: int
    timestamp_ms: int
    offset: int | None


@dataclass(slots=True)
class ReplicaLog:
    """The contents of one replica's own log."""

    records: dict[int, str] = field(default_factory=dict)
    batches: dict[int, BatchMark] = field(default_factory=dict)


@dataclass(slots=True)
class KeyIndex:
    """Everything in a history about one key. ``sends`` is in the order of invocation.

    ``resent`` is filled by the checker: see ``resends``. ``reads_before_last``: how many reads had been
    answered when the last read of all began, if that is known. ``acknowledged_end``: behind the last offset
    that was acknowledged with acks=all. ``low_watermark``: the highest one with which a deletion of records
    was answered; ``deletions``: the offsets below which records were to be deleted, of those deletions that
    were not refused; if everything committed was, the first ``deletable_sends`` may have been committed by
    then, and all if an attempt may still be on its way (``open_deletions``).
    """

    key: str
    sends: dict[str, Send] = field(default_factory=dict)
    sent_twice: list[str] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    lookups: list[TimeLookup] = field(default_factory=list)
    final: dict[int, str] = field(default_factory=dict)
    final_start: int = 0
    final_end: int | None = None
    reads_before_last: int | None = None
    acknowledged_end: int = 0
    low_watermark: int = 0
    deletions: Counter[int] = field(default_factory=Counter)
    deletable_sends: int = 0
    open_deletions: int = 0
    replicas: dict[str, ReplicaLog] = field(default_factory=dict)
    map_events: list[Event] = field(default_factory=list)
    resent: Mapping[str, frozenset[int]] = field(default_factory=dict)

    @property
    def asked_to(self) -> int:
        """The highest offset below which records were to be deleted."""
        return max(0, max(+self.deletions, default=0))

    @property
    def deletes_everything(self) -> bool:
        """Whether everything committed was to be deleted."""
        return any(offset < 0 for offset in +self.deletions)

    @property
    def deletable(self) -> int:
        """The end of what may have been deleted: below the log start, and below what was asked for."""
        return self.final_start if self.deletes_everything else min(self.final_start, self.asked_to)

    def may_be_deleted(self, number: int, offset: int) -> bool:
        """Whether a deletion may have reached the record of a send. ``number``: its place in ``sends``."""
        is_early = number < self.deletable_sends or self.open_deletions > 0
        return offset < self.final_start and (is_early or offset < self.asked_to)

    def is_resent(self, value: str, *offsets: int) -> bool:
        """Whether the client itself wrote a value at all of these offsets."""
        return self.resent.get(value, frozenset()).issuperset(offsets)


@dataclass(slots=True)
class LogIndex:
    """``keys`` by name; ``others``: the events that concern no key's log; ``producers`` by name;
    ``skippers``: the producers that have sent a batch before an earlier one."""

    keys: dict[str, KeyIndex] = field(default_factory=dict)
    others: list[Event] = field(default_factory=list)
    producers: dict[str, ProducerKind] = field(default_factory=dict)
    skippers: set[str] = field(default_factory=set)

    def key(self, name: str) -> KeyIndex:
        found = self.keys.get(name)
        if found is None:
            found = self.keys[name] = KeyIndex(name)
        return found


def is_of_a_log(event: Event) -> bool:
    """Whether an event concerns the log that it names, and no other."""
    return event.op in OPS_OF_A_LOG and event.key is not None


def build_index(events: Iterable[Event]) -> LogIndex:
    """Build the index in one pass over a history."""
    index = LogIndex()
    started: dict[str, set[str]] = {}  # the keys that each process has read since they were assigned
    for event in events:
        match event.op:
            case "send" if event.key is not None and event.value is not None:
                kind = index.producers.get(event.process, STRICT)
                _add_send(index.key(event.key), event, event.value, kind)
            case "poll" | "final" if event.key is not None and event.type == "ok":
                _add_read(index.key(event.key), event, started.setdefault(event.process, set()))
            case "final" if event.key is not None and event.type == "invoke":
                index.key(event.key).reads_before_last = len(index.key(event.key).reads)
            case "final-end" if event.key is not None:
                index.key(event.key).final_end = event.offset
            case "replica" if event.key is not None:
                _add_replica(index.key(event.key), event)
            case "assign":
                started.pop(event.process, None)
            case "assigned" | "rewind":
                started.get(event.process, set()).difference_update(
                    (event.detail or {}).get("partitions", ())
                )
                index.others.append(event)
            case "producer":
                index.producers[event.process] = _producer_kind(event.detail or {})
            case "skipped-sequence":
                index.skippers.add(event.process)
            case "final-start" if event.key is not None:
                index.key(event.key).final_start = event.offset or 0
            case "delete-records" if event.key is not None and event.value is not None:
                _add_deletion(index.key(event.key), event, int(event.value))
            case "offset-for-time" if event.key is not None and event.type == "ok":
                _add_lookup(index.key(event.key), event)
            case op if op in OPS_OF_A_MAP and event.key is not None:
                index.key(event.key).map_events.append(event)
            case _:
                index.others.append(event)
    return index


def _producer_kind(detail: Mapping[str, Any]) -> ProducerKind:
    return ProducerKind(
        durable=detail.get("acks", -1) == -1,
        idempotent=detail.get("idempotent", True),
        pipelined=detail.get("max_in_flight", 1) > 1,
    )


def _add_send(key: KeyIndex, event: Event, value: str, kind: ProducerKind) -> None:
    if event.type == "invoke":
        if value in key.sends:
            key.sent_twice.append(value)
        else:
            timestamp_ms = None if event.detail is None else event.detail.get("timestamp_ms")
            key.sends[value] = Send(event.process, value, kind, timestamp_ms, floor=key.acknowledged_end)
        return
    send = key.sends.get(value)
    if send is None:
        send = key.sends[value] = Send(event.process, value, kind)
    send.status = event.type
    send.offset = event.offset
    send.answered_us = event.time_us
    if send.must_stay and send.offset is not None:
        key.acknowledged_end = max(key.acknowledged_end, send.offset + 1)


def _add_lookup(key: KeyIndex, event: Event) -> None:
    detail = event.detail or {}
    asked_us, timestamp_ms = detail["asked_us"], detail["timestamp_ms"]
    key.lookups.append(TimeLookup(event.process, asked_us, timestamp_ms, event.offset))


def _add_deletion(key: KeyIndex, event: Event, offset: int) -> None:
    """A deletion may be tried again, at a later high watermark: what is sent after its answer stays."""
    if event.type == "invoke":
        key.deletions[offset] += 1
        key.open_deletions += offset < 0
    elif event.type in ("ok", "fail"):
        key.open_deletions -= offset < 0
        key.deletions[offset] -= event.type == "fail"
    if event.type == "ok" and event.offset is not None:
        key.low_watermark = max(key.low_watermark, event.offset)
        if offset < 0:
            key.deletable_sends = len(key.sends)


def _add_read(key: KeyIndex, event: Event, started: set[str]) -> None:
    if not event.records:
        return
    records = tuple(event.records)
    high_watermark = None if event.detail is None else event.detail.get("high_watermark")
    key.reads.append(Read(event.process, event.time_us, key.key in started, records, high_watermark))
    started.add(key.key)
    if event.op == "final":
        key.final.update(records)


def _add_replica(key: KeyIndex, event: Event) -> None:
    log = key.replicas.setdefault(event.process, ReplicaLog())
    log.records.update(event.records or ())
    for mark in (event.detail or {}).get("batches", ()):
        log.batches[mark[0]] = tuple(mark)
