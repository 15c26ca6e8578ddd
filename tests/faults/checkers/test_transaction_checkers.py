"""What the checkers of transactions find, and what they allow. The anomalies are planted in the self-test."""

from msgspec.structs import replace

from pykraft.jepsen_like.faults.checkers.cycles import find_cycles
from pykraft.jepsen_like.faults.checkers.history import examine
from pykraft.jepsen_like.faults.checkers.self_test.transactions import (
    FIRST,
    SECOND,
    TRANSACTION_PLANTS,
    clean_transactions,
)
from pykraft.jepsen_like.faults.checkers.transaction_index import Name, index_transactions, parse_value
from pykraft.jepsen_like.faults.history import Event


def test_clean_transactions_have_no_finding() -> None:
    report = examine(clean_transactions(0))
    assert (report.findings, report.write_cycles) == ((), 0)


def test_each_anomaly_is_found_in_transactions_alone() -> None:
    for what, kind, plant in TRANSACTION_PLANTS:
        kinds = {finding.kind for finding in examine(plant(clean_transactions(0))).findings}
        assert kind in kinds, what


def test_value_names_its_transaction_and_its_input() -> None:
    assert parse_value("app.0#1:2/3") == Name("app.0#1", None)
    assert parse_value("worker.0#1:1/1<txn-in-0@17") == Name("worker.0#1", ("txn-in-0", 17))
    assert parse_value("p1-17") is None


def test_concurrent_transactions_may_write_in_different_orders() -> None:
    """Kafka does not isolate writes: such a cycle is counted, and no finding."""
    one, two = "a.0#1", "b.0#1"
    begun = [
        Event("info", name[:3], 0, "txn-begin", value=name, detail={"id": name[0], "count": 2})
        for name in (one, two)
    ]
    sent, ended = [], []
    for name, offsets in ((one, (0, 1)), (two, (1, 0))):
        for number, (key, offset) in enumerate(zip((FIRST, SECOND), offsets, strict=True), start=1):
            value = f"{name}:{number}/2"
            sent.append(Event("invoke", name[:3], 0, "send", key, value))
            ended.append(Event("ok", name[:3], 0, "send", key, value, offset))
    commits = [
        Event(kind, name[:3], 0, "txn-commit", value=name) for kind in ("invoke", "ok") for name in (one, two)
    ]
    finals = []
    for key in (FIRST, SECOND):
        records = sorted((e.offset or 0, str(e.value)) for e in ended if e.key == key)
        finals.append(Event("ok", "final", 0, "final", key, records=tuple(records)))
        finals.append(Event("ok", "final", 0, "final-end", key, offset=2))
    events = [*begun, *sent, *commits, *ended, *finals]
    report = examine([replace(event, time_us=n) for n, event in enumerate(events)])
    assert (report.findings, report.write_cycles) == ((), 1)


def _log(*transactions: tuple[str, str, str], logs: dict[str, list[str]]) -> list[Event]:
    """``transactions``: name, the logs to which each of its records is sent, and what follows in its value;
    ``logs``: what is in them. All transactions are concurrent."""
    begun, sent, ended = [], [], []
    for name, keys, suffixes in transactions:
        places = keys.split(",")
        detail = {"id": name[0], "count": len(places)}
        begun.append(Event("info", name[:3], 0, "txn-begin", value=name, detail=detail))
        for number, (key, suffix) in enumerate(zip(places, suffixes.split(","), strict=True), start=1):
            value = f"{name}:{number}/{len(places)}{suffix}"
            sent.append(Event("invoke", name[:3], 0, "send", key, value))
            ended.append(Event("ok", name[:3], 0, "send", key, value))
    commits = [
        Event(kind, name[:3], 0, "txn-commit", value=name)
        for kind in ("invoke", "ok")
        for name, _, _ in transactions
    ]
    reads = []
    for key, values in logs.items():
        reads.append(Event("ok", "final", 0, "final", key, records=tuple(enumerate(values))))
        reads.append(Event("ok", "final", 0, "final-end", key, offset=len(values)))
    events = [*begun, *sent, *commits, *ended, *reads]
    return [replace(event, time_us=n) for n, event in enumerate(events)]


def test_records_of_others_between_those_of_a_transaction_are_counted() -> None:
    """``int-send-skip``: Kafka does not isolate writes."""
    history = _log(
        ("a.0#1", "x,x,x", ",,"),
        ("b.0#1", "x", ""),
        logs={"x": ["a.0#1:1/3", "b.0#1:1/1", "a.0#1:2/3", "a.0#1:3/3"]},
    )
    report = examine(history)
    assert (report.findings, report.send_skips) == ((), 1)


def _anomalous_reads(second_reads: str) -> list[Event]:
    """A transaction wrote to ``x`` and to ``y``. One reader had ``x`` without it, and another ``y`` with it:
    what each read is the input of an output in ``z``, and the output of the second is before the first's."""
    return _log(
        ("o.0#1", "x,y", ","),
        ("w.0#1", "x,y", ","),
        ("q.0#1", "z", "<x@0"),
        ("r.0#1", "z", second_reads),
        logs={
            "x": ["o.0#1:1/2", "w.0#1:1/2"],
            "y": ["o.0#1:2/2", "w.0#1:2/2"],
            "z": [f"r.0#1:1/1{second_reads}", "q.0#1:1/1<x@0"],
        },
    )


def test_circles_through_an_antidependency_are_counted() -> None:
    """G-single: Kafka shows consumers of two logs no transaction as a whole."""
    report = examine(_anomalous_reads("<y@1"))
    assert (report.findings, report.antidependency_cycles, report.write_cycles) == ((), 1, 0)
    report = examine(_anomalous_reads("<y@0"))
    assert (report.findings, report.antidependency_cycles) == ((), 0)


def test_own_records_may_be_read_after_the_commit() -> None:
    history = clean_transactions(0)
    place = max(n for n, event in enumerate(history) if event.op == "txn-commit" and event.value == "app.0#1")
    read = Event("ok", "app.0", history[place].time_us + 1, "poll", FIRST, records=[(0, "app.0#1:1/3")])
    assert examine([*history[: place + 1], read, *history[place + 1 :]]).findings == ()


def test_nothing_is_demanded_of_coordinators_that_lost_their_log() -> None:
    lost = Event("info", "disks", 0, "exempted", key="__transaction_state-1")
    assert not index_transactions([*clean_transactions(0), lost]).is_guaranteed
    for _, kind, plant in TRANSACTION_PLANTS:
        if kind in ("torn-transaction", "zombie-commit", "processed-twice"):
            found = {finding.kind for finding in examine([*plant(clean_transactions(0)), lost]).findings}
            assert kind not in found


def test_cycles_are_found_in_a_graph_with_and_without_them() -> None:
    line = {number: {number + 1: None} for number in range(2000)} | {2000: {}}
    assert find_cycles(line) == []
    ring = line | {2000: {1990: None}}
    assert [sorted(one) for one in find_cycles(ring)] == [list(range(1990, 2001))]
    assert find_cycles({1: {1: None}, 2: {3: None}, 3: {}}) == []
