"""Tests the checkers: plants one anomaly of each kind in a clean history, each of which must be found.

It runs at the start of every fault run, because a checker that cannot find anything looks the same as one
that finds nothing. Each plant is a small edit of the clean history that breaks one guarantee. It may break
others too, so the self-test demands only that the planted kind is found, and that nothing is found in the
clean history.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.history import check
from pykraft.jepsen_like.faults.checkers.self_test.compacted import COMPACTED_PLANTS, clean_compacted
from pykraft.jepsen_like.faults.checkers.self_test.groups import GROUP_PLANTS, clean_groups
from pykraft.jepsen_like.faults.checkers.self_test.planting import Plant, Plants, edited
from pykraft.jepsen_like.faults.checkers.self_test.power import POWER_PLANTS, allowed_loss
from pykraft.jepsen_like.faults.checkers.self_test.registers import REGISTER_PLANTS, clean_registers
from pykraft.jepsen_like.faults.checkers.self_test.transactions import TRANSACTION_PLANTS, clean_transactions
from pykraft.jepsen_like.faults.history import Event, EventType

KEY = "log-0"
RecordList = list[tuple[int, str]]


class SelfTestError(AssertionError):
    """A checker missed a planted anomaly, or found one in the clean history."""


def clean_history(sends_per_producer: int = 60) -> list[Event]:
    """Keys, producers, pollers, a last read, replicas, groups, transactions, registers; no anomaly.

    Some sends are answered with ``info`` (half of those were written), some fail and were not written.
    """
    events: list[Event] = []
    for partition in range(2):
        events += _clean_key(f"log-{partition}", sends_per_producer)
    stamped = [replace(event, time_us=1000 * number) for number, event in enumerate(events)]
    history = [*stamped, *clean_groups(stamped)]
    for clean in (clean_transactions, clean_registers, clean_compacted):
        history += clean(history[-1].time_us)
    return history


def _clean_key(key: str, sends_per_producer: int) -> list[Event]:
    events = [Event("ok", "consumer-1", 0, "assign")]
    log: list[tuple[int, str]] = []
    polled = {"consumer-1": 0, "consumer-2": 0}
    for sequence in range(sends_per_producer):
        for producer in ("p1", "p2", "p3"):
            number = len(events)
            value = f"{producer}-{sequence}"
            times = {"timestamp_ms": sequence * 10 - number % 7}
            events.append(Event("invoke", producer, 0, "send", key, value, detail=times))
            kind: EventType = "fail" if number % 15 == 7 else "info" if number % 10 == 3 else "ok"
            if kind == "ok" or (kind == "info" and number % 20 == 3):
                log.append((len(log), value))
            events.append(
                Event(kind, producer, 0, "send", key, value, len(log) - 1 if kind == "ok" else None)
            )
        for consumer, step in (("consumer-1", 2), ("consumer-2", 5)):
            if sequence % step == step - 1:
                events.append(Event("invoke", consumer, 0, "poll", key))
                records, limit = tuple(log[polled[consumer] :]), {"high_watermark": len(log)}
                events.append(Event("ok", consumer, 0, "poll", key, records=records, detail=limit))
                polled[consumer] = len(log)
    half = len(log) // 2
    events.append(Event("ok", "final", 0, "final", key, records=tuple(log[:half])))
    events.append(Event("ok", "final", 0, "final", key, records=tuple(log[half:])))
    events.append(Event("ok", "final", 0, "final-end", key, offset=len(log)))
    events.append(_lookup(events, log, key))
    for node in range(1, 4):
        batches = [[offset, offset, 1 + offset // 100, 7 * offset] for offset, _ in log]
        tail = [(len(log), f"unacknowledged-{node}")]  # above the high watermark replicas may differ
        events.append(
            Event(
                "ok", f"replica-{node}", 0, "replica", key, records=(*log, *tail), detail={"batches": batches}
            )
        )
    return events


def _lookup(events: Sequence[Event], log: RecordList, key: str) -> Event:
    """The offset for a time that several records are at or after."""
    times = {e.value: e.detail["timestamp_ms"] for e in events if e.op == "send" and e.detail}
    wanted = times[log[len(log) // 2][1]]
    offset = next(offset for offset, value in log if times[value] >= wanted)
    detail = {"timestamp_ms": wanted, "asked_us": 0}
    return Event("ok", "seeker", 0, "offset-for-time", key, offset=offset, detail=detail)


def _records(op: str, edit: Callable[[RecordList], RecordList], nth: int = 0) -> Plant:
    """Rewrites the records of the ``nth`` event of this operation on the first key."""

    def plant(events: list[Event]) -> list[Event]:
        place = [n for n, e in enumerate(events) if e.op == op and e.key == KEY and e.records][nth]
        return edited(events, place, records=tuple(edit(list(events[place].records or ()))))

    return plant


def _answer(edit: Callable[[Event], Event]) -> Plant:
    """Rewrites the twentieth acknowledgement on the first key."""

    def plant(events: list[Event]) -> list[Event]:
        answer = _an_acknowledged(events, 20)
        return [edit(event) if event is answer else event for event in events]

    return plant


def _without(events: Sequence[Event], value: str, ops: tuple[str, ...]) -> list[Event]:
    """The history without this value in the reads of these operations."""
    return [
        replace(event, records=tuple(r for r in event.records if r[1] != value))
        if event.records and event.key == KEY and event.op in ops
        else event
        for event in events
    ]


def _an_acknowledged(events: Sequence[Event], nth: int = 30) -> Event:
    return [e for e in events if e.op == "send" and e.key == KEY and e.type == "ok"][nth]


def _a_written_info(events: Sequence[Event]) -> str:
    unknown = {e.value for e in events if e.op == "send" and e.key == KEY and e.type == "info"}
    return next(
        v for e in events if e.op == "final" and e.key == KEY for _, v in e.records or () if v in unknown
    )


def _lose_write(events: list[Event]) -> list[Event]:
    return _without(events, str(_an_acknowledged(events).value), ("poll", "final", "replica"))


def _hide_tail(events: list[Event]) -> list[Event]:
    beyond = (
        Event("invoke", "p1", 0, "send", KEY, "p1-late"),
        Event("ok", "p1", 0, "send", KEY, "p1-late", 100_000),
    )
    return [*events, *beyond]


def _vanish(events: list[Event]) -> list[Event]:
    return _without(events, _a_written_info(events), ("final", "replica"))


def _swap_sends(events: list[Event]) -> list[Event]:
    """Swap two successive values of one producer, in the log and in their acknowledgements."""
    first, second = [
        e for e in events if e.op == "send" and e.key == KEY and e.process == "p2" and e.type == "ok"
    ][4:6]
    names = {first.value: second.value, second.value: first.value}

    def swapped(event: Event) -> Event:
        if event.key != KEY:
            return event
        if event.op == "send" and event.type == "ok" and event.value in names:
            return replace(event, offset=second.offset if event is first else first.offset)
        if event.records:
            return replace(event, records=tuple((o, str(names.get(v, v))) for o, v in event.records))
        return event

    return [swapped(event) for event in events]


def _go_back_between_polls(events: list[Event]) -> list[Event]:
    place = next(n for n, e in enumerate(events) if e.op == "poll" and e.type == "ok" and e.key == KEY)
    return [*events[: place + 1], *events[place:]]


def _read_too_far(events: list[Event]) -> list[Event]:
    place = next(n for n, e in enumerate(events) if e.op == "poll" and e.records and e.key == KEY)
    records = events[place].records or ()
    return edited(events, place, detail={"high_watermark": records[-1][0]})


def _read_deleted(events: list[Event]) -> list[Event]:
    deletion = Event("ok", "deleter", 0, "delete-records", KEY, "5", 5)
    return [*events, replace(deletion, type="invoke", offset=None), deletion]


def _lose_what_a_refused_deletion_named(events: list[Event]) -> list[Event]:
    """The log starts behind it, as if the deletion had been carried out."""
    start = 5
    asked = Event("invoke", "deleter", 0, "delete-records", KEY, str(start))
    refused = replace(asked, type="fail", error="planted")
    began = Event("ok", "final", 0, "final-start", KEY, offset=start)
    return [*_begin_at(events, start), asked, refused, began]


def _lose_beyond_a_deletion(events: list[Event]) -> list[Event]:
    """Nobody was told its offset, but it was sent after those that are behind the deletion."""
    lost, start = _an_acknowledged(events), 5
    untold = [replace(event, offset=None) if event == lost else event for event in events]
    gone = _begin_at(_without(untold, str(lost.value), ("poll", "final", "replica")), start)
    deletion = Event("ok", "deleter", 0, "delete-records", KEY, str(start), start)
    began = Event("ok", "final", 0, "final-start", KEY, offset=start)
    return [*gone, replace(deletion, type="invoke", offset=None), deletion, began]


def _begin_at(events: Sequence[Event], start: int) -> list[Event]:
    """The last read and the replicas have nothing below this offset of the first key."""
    return [
        replace(event, records=tuple(record for record in event.records if record[0] >= start))
        if event.records and event.key == KEY and event.op in ("final", "replica")
        else event
        for event in events
    ]


def _find_later(events: list[Event]) -> list[Event]:
    place = next(n for n, e in enumerate(events) if e.op == "offset-for-time")
    return edited(events, place, offset=(events[place].offset or 0) + 1)


def _diverge_batch(events: list[Event]) -> list[Event]:
    def changed(event: Event) -> Event:
        if event.process != "replica-2" or event.key != KEY or event.detail is None:
            return event
        batches = [list(batch) for batch in event.detail["batches"]]
        batches[8][2] += 1
        return replace(event, detail={"batches": batches})

    return [changed(event) for event in events]


def _with_event(op: str) -> Plant:
    return lambda events: [*events, Event("info", "node-1", 0, op, error="planted")]


_duplicate = _records("final", lambda records: [*records[:-1], (records[-1][0], records[3][1])])
_second_value = _records("poll", lambda records: [(records[0][0], records[1][1]), *records[1:]], nth=1)
_move_offset = _answer(lambda event: replace(event, offset=(event.offset or 0) + 100_000))
_fail_a_read_send = _answer(lambda event: replace(event, type="fail", offset=None))
_phantom = _records("final", lambda records: [*records[:5], (records[5][0], "nobody"), *records[6:]])
_skip_inside_poll = _records("poll", lambda records: [records[0], *records[2:]])
_go_back_inside_poll = _records("poll", lambda records: [*records, records[0]])
_skip_between_polls = _records("poll", lambda records: records[1:], nth=3)
_diverge_value = _records("replica", lambda records: [*records[:9], (records[9][0], "p1-0"), *records[10:]])
_lag_replica = _records("replica", lambda records: records[:-5], nth=2)

PLANTS: Plants = (
    ("an acknowledged value is nowhere", Anomaly.LOST_WRITE, _lose_write),
    ("an acknowledged value is beyond the last read", Anomaly.UNSEEN, _hide_tail),
    ("a refused deletion is carried out", Anomaly.LOST_WRITE, _lose_what_a_refused_deletion_named),
    ("a value without an offset is gone beyond a deletion", Anomaly.LOST_WRITE, _lose_beyond_a_deletion),
    ("a value is in the log twice", Anomaly.DUPLICATE, _duplicate),
    ("a poll goes beyond the high watermark", Anomaly.READ_TOO_FAR, _read_too_far),
    ("the last read has what was deleted", Anomaly.DELETED_READ, _read_deleted),
    ("an offset found by time is late", Anomaly.WRONG_OFFSET_FOR_TIME, _find_later),
    ("a poller saw another value at an offset", Anomaly.INCONSISTENT_OFFSETS, _second_value),
    ("a value was acknowledged elsewhere", Anomaly.MOVED_OFFSET, _move_offset),
    ("a failed send is read", Anomaly.ABORTED_READ, _fail_a_read_send),
    ("a value that was never sent is read", Anomaly.PHANTOM_READ, _phantom),
    ("a polled value is missing later", Anomaly.VANISHED_READ, _vanish),
    ("two sends of a producer are swapped", Anomaly.NONMONOTONIC_SEND, _swap_sends),
    ("a poll leaves out a record", Anomaly.INT_POLL_SKIP, _skip_inside_poll),
    ("a poll goes backwards", Anomaly.INT_NONMONOTONIC_POLL, _go_back_inside_poll),
    ("a record is left out between polls", Anomaly.POLL_SKIP, _skip_between_polls),
    ("a poll is repeated", Anomaly.NONMONOTONIC_POLL, _go_back_between_polls),
    ("a replica holds another value", Anomaly.DIVERGENT_REPLICA, _diverge_value),
    ("a replica holds a batch of another epoch", Anomaly.DIVERGENT_REPLICA, _diverge_batch),
    ("a replica lacks the end of the log", Anomaly.DIVERGENT_REPLICA, _lag_replica),
    ("a read position is refused", Anomaly.POSITION_LOST, _with_event("poll")),
    ("a producer gets an error for its sequence", Anomaly.PRODUCER_FATAL, _with_event("producer-fatal")),
    ("a node ends by itself", Anomaly.NODE_EXITED, _with_event("node-exited")),
    ("the healed cluster does not work", Anomaly.NO_PROGRESS, _with_event("no-progress")),
    *POWER_PLANTS,
    *GROUP_PLANTS,
    *TRANSACTION_PLANTS,
    *REGISTER_PLANTS,
    *COMPACTED_PLANTS,
)


def run_self_test() -> int:
    """Plant every anomaly; returns how many. :class:`SelfTestError` if the checkers fail."""
    clean = clean_history()
    imagined = check(clean)
    if imagined:
        raise SelfTestError(f"found in a clean history: {imagined[0]}")
    if imagined := check(allowed_loss(list(clean))):
        raise SelfTestError(f"found although the loss is allowed: {imagined[0]}")
    if uncovered := set(Anomaly) - {kind for _, kind, _ in PLANTS}:
        raise SelfTestError(f"no plant for {sorted(uncovered)}")
    for what, kind, plant in PLANTS:
        found = {finding.kind for finding in check(plant(list(clean)))}
        if kind not in found:
            raise SelfTestError(f"planted {kind} ({what}), found {sorted(found) or 'nothing'}")
    return len(PLANTS)
