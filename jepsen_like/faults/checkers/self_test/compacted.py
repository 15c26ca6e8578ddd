"""The compacted log of the self-test: two writers, reads while it is compacted, replicas; and anomalies."""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.self_test.planting import Plant, Plants, edited
from pykraft.jepsen_like.faults.history import Event

LOG = "map-0"
STEP_US = 1_000_000
DELETE_RETENTION_MS = 30_000
RecordTuple = tuple[tuple[int, str], ...]


class _Writer:
    """Writes events, and the log as it is while nothing is compacted: the text at each offset."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.log: list[str] = []
        self._numbers: dict[str, int] = {}

    def put(self, process: str, text: str, outcome: str = "ok", *, is_written: bool = True) -> None:
        number = self._numbers[process] = self._numbers.get(process, 0) + 1
        detail = {"number": number}
        self.events.append(Event("invoke", process, 0, "put", LOG, text, detail=detail))
        if is_written:
            self.log.append(text)
        offset = len(self.log) - 1 if outcome == "ok" else None
        self.events.append(
            Event(outcome, process, 0, "put", LOG, text, offset, detail=detail)  # type: ignore[arg-type]
        )

    def read(self, process: str, offsets: Sequence[int]) -> None:
        retention = {"delete_retention_ms": DELETE_RETENTION_MS}
        records = tuple((offset, self.log[offset]) for offset in offsets)
        half = len(records) // 2
        self.events += (
            Event("ok", process, 0, "map-start", LOG, detail=retention),
            Event("ok", process, 0, "map-read", LOG, records=records[:half]),
            Event("ok", process, 0, "map-read", LOG, records=records[half:]),
            Event("ok", process, 0, "map-end", LOG, offset=len(self.log)),
        )


def clean_compacted(start_us: int) -> list[Event]:
    writer = _Writer()
    for text in ("a=1", "b=1", "a=2", "c=1", "b"):
        writer.put("w.0", text)
    writer.put("v.0", "x=1")
    writer.read("r.0", range(6))
    writer.put("w.0", "c=2", "info")
    writer.put("w.0", "d=1", "info", is_written=False)
    writer.put("w.0", "a=4", "fail", is_written=False)
    writer.put("v.0", "x")
    writer.put("v.0", "y=1", "info", is_written=False)
    writer.read("r.1", (2, 4, 6, 7))
    for number in range(20):
        writer.put("w.0", f"a={number + 5}")
    writer.put("v.0", "z", "info")
    writer.read("r.2", (6, *range(20, 29)))
    for node in (1, 2):
        offsets = (2, 6, *range(26, 29)) if node == 1 else range(29)
        records = (*((n, writer.log[n]) for n in offsets), (29, f"a=unknown-{node}"))
        writer.events.append(Event("ok", f"replica-{node}", 0, "replica", LOG, records=records))
    return [replace(event, time_us=start_us + STEP_US * (1 + n)) for n, event in enumerate(writer.events)]


# --- plants ------------------------------------------------------------------------------------------------


def _with_records(process: str, edit: Callable[[RecordTuple], Iterable[tuple[int, str]]]) -> Plant:
    """Other records in the last event in which this process has read any."""

    def plant(events: list[Event]) -> list[Event]:
        place = max(n for n, e in enumerate(events) if e.key == LOG and e.process == process and e.records)
        records = tuple((offset, text) for offset, text in events[place].records or ())
        return edited(events, place, records=tuple(edit(records)))

    return plant


def _without(process: str, missing: int) -> Plant:
    """The record at this offset is in nothing that the process has read."""
    return lambda events: [
        replace(e, records=tuple(one for one in e.records if one[0] != missing))
        if e.key == LOG and e.process == process and e.records
        else e
        for e in events
    ]


def _swap(events: list[Event]) -> list[Event]:
    """A writer is told that its second put is before its first."""
    places = [n for n, e in enumerate(events) if e.op == "put" and e.process == "w.0" and e.type == "ok"]
    first, second = places[5:7]
    moved = edited(events, first, offset=events[second].offset)
    return edited(moved, second, offset=events[first].offset)


_read_older = _without("r.0", 2)  # the one before is there
_lose_key = _without("r.0", 3)
_lose_unknown = _without("r.2", 6)  # a put of unknown outcome that was read once
_resurrect = _without("r.0", 4)
_resurrect_in_replica = _without("replica-2", 7)  # the deletion; the value is there
_forget_tombstone = _without("r.1", 7)
_lag_replica = _without("replica-1", 27)
_move = _with_records("r.2", lambda records: (*records, (30, "a=24")))
_other_value = _with_records("r.0", lambda records: ((3, "c=2"), *records[1:]))
_read_failed = _with_records("r.2", lambda records: (*records, (30, "a=4")))
_read_phantom = _with_records("r.2", lambda records: (*records, (30, "q=1")))
_delete_phantom = _with_records("r.2", lambda records: (*records, (30, "c")))
_read_twice = _with_records("r.2", lambda records: (*records, (30, "c=2")))
_go_back = _with_records("r.0", lambda records: (*records, records[0]))

COMPACTED_PLANTS: Plants = (
    ("a compacted log holds an older value", Anomaly.STALE_MAP_READ, _read_older),
    ("a replica's compacted log ends early", Anomaly.STALE_MAP_READ, _lag_replica),
    ("a compacted log has lost a key", Anomaly.LOST_WRITE, _lose_key),
    ("a compacted log has lost what was read", Anomaly.LOST_WRITE, _lose_unknown),
    ("a deleted key is back", Anomaly.RESURRECTED_KEY, _resurrect),
    ("a deleted key is back in a replica", Anomaly.RESURRECTED_KEY, _resurrect_in_replica),
    ("a deletion is gone too early", Anomaly.TOMBSTONE_LOST, _forget_tombstone),
    ("compaction moves a record", Anomaly.MOVED_OFFSET, _move),
    ("compaction changes a value", Anomaly.INCONSISTENT_OFFSETS, _other_value),
    ("a compacted log holds a failed put", Anomaly.ABORTED_READ, _read_failed),
    ("a compacted log holds what nobody put", Anomaly.PHANTOM_READ, _read_phantom),
    ("a compacted log deletes by itself", Anomaly.PHANTOM_READ, _delete_phantom),
    ("a compacted log holds a put twice", Anomaly.DUPLICATE, _read_twice),
    ("a read of a compacted log goes back", Anomaly.INT_NONMONOTONIC_POLL, _go_back),
    ("two puts of a writer are swapped", Anomaly.NONMONOTONIC_SEND, _swap),
)
