"""The transactions of the self-test: appenders, a worker and a zombie, and their anomalies."""

from collections.abc import Sequence

from msgspec.structs import replace

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.self_test.planting import Plant, Plants, edited
from pykraft.jepsen_like.faults.history import Event, EventType

STEP_US = 1000
FIRST, SECOND, INPUT, OUTPUT = "txn-a-0", "txn-b-0", "txn-in-0", "txn-out-0"
GROUP = "workers"

Log = dict[str, list[tuple[int, str]]]


class _Writer:
    """Writes events, and the records of transactions into logs; markers take offsets."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.committed: Log = {key: [] for key in (FIRST, SECOND, INPUT, OUTPUT)}
        self._ends = dict.fromkeys(self.committed, 0)

    def add(self, kind: EventType, process: str, op: str, **fields: object) -> None:
        self.events.append(Event(kind, process, 0, op, **fields))  # type: ignore[arg-type]

    def init(self, process: str, transactional_id: str) -> None:
        for kind in ("invoke", "ok"):
            self.add(kind, process, "txn-init", value=transactional_id)

    def transact(
        self,
        process: str,
        name: str,
        records: Sequence[tuple[str, str]],
        outcome: EventType,
        offsets: tuple[str, int] | None = None,
        *,
        is_asked: bool = True,
    ) -> None:
        """``records``: key and suffix. Without ``is_asked`` it is aborted."""
        self.add(
            "info",
            process,
            "txn-begin",
            value=name,
            detail={"id": process.partition(".")[0], "count": len(records)},
        )
        sent: list[tuple[str, str, int]] = []
        for number, (key, suffix) in enumerate(records, start=1):
            value = f"{name}:{number}/{len(records)}{suffix}"
            self.add("invoke", process, "send", key=key, value=value)
            sent.append((key, value, self._ends[key]))
            self._ends[key] += 1
        if offsets is not None:
            self.add(
                "info", process, "txn-offset", key=f"{GROUP}/{offsets[0]}", value=name, offset=offsets[1]
            )
        op = "txn-commit" if is_asked else "txn-abort"
        self.add("invoke", process, op, value=name)
        self.add(outcome if is_asked else "ok", process, op, value=name)
        for key, value, offset in sent:
            known = offset if outcome == "ok" else None
            self.add(outcome, process, "send", key=key, value=value, offset=known)
            if is_asked:
                self.committed[key].append((offset, value))
        for key in {key for key, _, _ in sent}:
            self._ends[key] += 1  # the marker


def clean_transactions(start_us: int) -> list[Event]:
    writer = _Writer()
    writer.init("app.0", "app")
    writer.transact("app.0", "app.0#1", [(FIRST, ""), (SECOND, ""), (INPUT, "")], "ok")
    writer.transact("app.0", "app.0#2", [(FIRST, ""), (INPUT, "")], "fail", is_asked=False)
    writer.add("ok", "reader", "assign")
    writer.add("invoke", "reader", "poll", key=FIRST)
    writer.add("ok", "reader", "poll", key=FIRST, records=tuple(writer.committed[FIRST]))
    writer.init("app.1", "app")
    writer.transact("app.0", "app.0#3", [(FIRST, ""), (SECOND, "")], "fail", is_asked=False)
    writer.transact("app.1", "app.1#1", [(FIRST, ""), (SECOND, ""), (INPUT, "")], "info")
    writer.transact("app.1", "app.1#2", [(SECOND, ""), (INPUT, "")], "ok")
    writer.init("worker.0", "worker")
    inputs = [offset for offset, _ in writer.committed[INPUT]]
    outputs = [(OUTPUT, f"<{INPUT}@{offset}") for offset in inputs[:2]]
    writer.transact("worker.0", "worker.0#1", outputs, "ok", (INPUT, inputs[1] + 1))
    for key, records in writer.committed.items():
        writer.add("ok", "final", "final", key=key, records=tuple(records))
        writer.add("ok", "final", "final-end", key=key, offset=records[-1][0] + 1)
    writer.add("ok", "final", "txn-committed", key=f"{GROUP}/{INPUT}", offset=inputs[1] + 1)
    return [
        replace(event, time_us=start_us + STEP_US * (1 + number))
        for number, event in enumerate(writer.events)
    ]


# --- plants ------------------------------------------------------------------------------------------------


def _place(
    events: Sequence[Event], op: str, kind: str, value: str | None = None, key: str | None = None
) -> int:
    return next(
        n
        for n, e in enumerate(events)
        if (e.op, e.type) == (op, kind) and value in (None, e.value) and key in (None, e.key)
    )


def _last_read_without(key: str, transaction: str) -> Plant:
    def plant(events: list[Event]) -> list[Event]:
        place = _place(events, "final", "ok", key=key)
        kept = tuple(one for one in events[place].records or () if not one[1].startswith(transaction))
        return edited(events, place, records=kept)

    return plant


def _committed_offset(more: int) -> Plant:
    def plant(events: list[Event]) -> list[Event]:
        place = _place(events, "txn-committed", "ok")
        return edited(events, place, offset=(events[place].offset or 0) + more)

    return plant


def _read_early(events: list[Event]) -> list[Event]:
    commit = _place(events, "txn-commit", "invoke", "app.0#1")
    place = _place(events, "poll", "ok", key=FIRST)
    return edited(events, place, time_us=events[commit].time_us - 1)


def _read_own(events: list[Event]) -> list[Event]:
    """A transaction reads what it has written, and is committed only then."""
    place = _place(events, "txn-commit", "invoke", "app.1#2")
    value, after = "app.1#2:1/2", events[place]
    records = tuple((offset, text) for offset, text in _last_read(events, SECOND) if text == value)
    read = Event("ok", "app.1", after.time_us - 1, "poll", SECOND, records=records)
    return [*events[:place], read, *events[place:]]


def _last_read(events: Sequence[Event], key: str) -> list[tuple[int, str]]:
    return [(o, v) for e in events if e.op == "final" and e.key == key for o, v in e.records or ()]


def _swap_own(events: list[Event]) -> list[Event]:
    """The records of a transaction are in another order in the log than they were sent in."""
    place = _place(events, "final", "ok", key=OUTPUT)
    (first, one), (second, other), *rest = events[place].records or ()
    return edited(events, place, records=((first, other), (second, one), *rest))


def _write_before(events: list[Event]) -> list[Event]:
    """Records of the last transaction are before those of the first."""
    place = _place(events, "final", "ok", key=SECOND)
    records = list(events[place].records or ())
    offsets = [offset for offset, _ in records]
    values = [value for _, value in reversed(records)]
    return edited(events, place, records=tuple(zip(offsets, values, strict=True)))


def _read_in_a_circle(events: list[Event]) -> list[Event]:
    """The transaction that wrote the input of another has read an output of it."""
    output = next(
        (e.key, offset)
        for e in events
        if e.op == "final" and e.key == OUTPUT
        for offset, _ in e.records or ()
    )
    old, new = "app.0#1:3/3", f"app.0#1:3/3<{output[0]}@{output[1]}"

    def renamed(event: Event) -> Event:
        records = event.records and tuple((o, new if v == old else v) for o, v in event.records)
        return replace(event, records=records, value=new if event.value == old else event.value)

    return [renamed(event) for event in events]


def _commit_as_a_zombie(events: list[Event]) -> list[Event]:
    """The transaction that began when another instance had the id is committed."""
    return [
        replace(event, op="txn-commit") if (event.op, event.value) == ("txn-abort", "app.0#3") else event
        for event in events
    ]


def _process_twice(events: list[Event]) -> list[Event]:
    place = _place(events, "final", "ok", key=OUTPUT)
    records = list(events[place].records or ())
    again = (records[-1][0] + 5, "worker.0#1:1/2<" + records[0][1].partition("<")[2])
    return edited(events, place, records=(*records, again))


def _read_aborted(events: list[Event]) -> list[Event]:
    place = _place(events, "final", "ok", key=FIRST)
    records = tuple(sorted((*(events[place].records or ()), (2, "app.0#2:1/2"))))
    return edited(events, place, records=records)


def _hang(events: list[Event]) -> list[Event]:
    return [*events, Event("info", "final", 0, "hanging", key=FIRST, error="planted")]


_read_less = _last_read_without(SECOND, "app.1#1:")  # its outcome is unknown
_lose = _last_read_without(FIRST, "app.0#1:")
_commit_further = _committed_offset(100)
_commit_less = _committed_offset(-1)

TRANSACTION_PLANTS: Plants = (
    ("half of a transaction is read", Anomaly.TORN_TRANSACTION, _read_less),
    ("a record is read before its transaction ends", Anomaly.INTERMEDIATE_READ, _read_early),
    ("a transaction reads its own record", Anomaly.PRECOMMITTED_READ, _read_own),
    ("a transaction's records are swapped", Anomaly.INT_NONMONOTONIC_SEND, _swap_own),
    ("a later transaction is before an earlier one", Anomaly.WRITE_CYCLE, _write_before),
    ("two transactions have read each other's records", Anomaly.CIRCULAR_READ, _read_in_a_circle),
    ("a producer commits whose id was taken", Anomaly.ZOMBIE_COMMIT, _commit_as_a_zombie),
    ("an input has two outputs", Anomaly.PROCESSED_TWICE, _process_twice),
    ("a committed offset has passed an input", Anomaly.INPUT_WITHOUT_OUTPUT, _commit_further),
    ("an input was processed and not committed", Anomaly.OUTPUT_WITHOUT_INPUT, _commit_less),
    ("a record of an aborted transaction is read", Anomaly.ABORTED_READ, _read_aborted),
    ("a record of a committed transaction is missing", Anomaly.LOST_WRITE, _lose),
    ("a transaction does not end", Anomaly.HANGING_TRANSACTION, _hang),
)
