"""Rare histories that are right have no finding, and rare anomalies have one."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.history import check
from pykraft.jepsen_like.faults.checkers.self_test.transactions import (
    FIRST,
    SECOND,
    TRANSACTION_PLANTS,
    clean_transactions,
)
from pykraft.jepsen_like.faults.history import Event, EventType
from tests.faults.histories import count_calls

SESSION_US = 6_000_000
FLUSHED = Event("info", "runner", 0, "topic", value="t", detail={"flush.messages": "1"})


def kinds(*events: Event) -> set[Anomaly]:
    return {finding.kind for finding in check(events)}


def sent(value: str, offset: int | None, outcome: EventType = "ok", process: str = "p") -> list[Event]:
    return [
        Event("invoke", process, 1, "send", "k", value),
        Event(outcome, process, 2, "send", "k", value, offset),
    ]


def polled(*records: tuple[int, str], process: str = "c") -> Event:
    return Event("ok", process, 3, "poll", "k", records=records)


def read_to_end(*records: tuple[int, str], start: int = 0) -> list[Event]:
    return [
        Event("ok", "final", 90, "final-start", "k", offset=start),
        Event("ok", "final", 91, "final", "k", records=records),
        Event("ok", "final", 92, "final-end", "k", offset=1 + records[-1][0]),
    ]


def repeating(acks: int) -> Event:
    """A producer that may write a value twice."""
    return Event("info", "w", 0, "producer", detail={"acks": acks, "idempotent": False})


def deleted(before: int) -> list[Event]:
    deletion = Event("invoke", "deleter", 5, "delete-records", "k", str(before))
    return [deletion, replace(deletion, type="ok", time_us=6, offset=before)]


def test_a_poll_of_nothing_is_no_position() -> None:
    log = (0, "a"), (1, "b")
    again = [Event("ok", "c", 4, "assign"), polled(), polled(log[0])]
    assert kinds(*sent("a", 0), *sent("b", 1), polled(*log), *again, *read_to_end(*log)) == set()


@pytest.mark.parametrize("polls", [(), (polled((0, "a")),)])
def test_a_record_without_a_known_offset_may_be_deleted(polls: Sequence[Event]) -> None:
    """Whoever repeats a request is not always told where the first one has written."""
    written, rest = [*sent("a", None), *polls, *sent("b", 1)], read_to_end((1, "b"), start=1)
    assert kinds(*written, *deleted(1), *rest) == set()
    assert kinds(*written, *deleted(0), *rest) == {Anomaly.LOST_WRITE}


def test_a_value_that_may_be_written_twice_is_where_it_was_acknowledged() -> None:
    begin, end = [repeating(-1), *sent("a", 0, process="w")], read_to_end((0, "a"), (1, "b"), (2, "b"))
    assert kinds(*begin, *sent("b", 2, process="w"), *end) == set()
    assert kinds(*begin, *sent("b", 4, process="w"), *end) == {Anomaly.MOVED_OFFSET}
    held_by_another = kinds(*begin, *sent("b", 0, process="w"), *end)
    assert Anomaly.MOVED_OFFSET in held_by_another


def test_a_copy_that_was_read_must_stay() -> None:
    history = [repeating(1), *sent("a", 1, process="w"), polled((0, "a"), (1, "a"))]
    assert kinds(*history, *read_to_end((0, "a"), (1, "a"))) == set()
    assert kinds(*history, *read_to_end((1, "a"))) == {Anomaly.VANISHED_READ}
    assert kinds(*history, *deleted(1), *read_to_end((1, "a"), start=1)) == set()


def test_what_was_not_acknowledged_may_be_committed_while_the_log_is_read_for_the_last_time() -> None:
    sends = [repeating(0), *sent("a", None, process="w"), *sent("b", None, process="w")]
    begin, end = [Event("invoke", "final", 80, "final", "k")], read_to_end((0, "a"))
    late = polled((0, "a"), (1, "b"))
    assert kinds(*sends, *begin, *end, late) == kinds(*sends, *begin, late, *end) == set()
    assert kinds(*sends, late, *begin, *end) == {Anomaly.VANISHED_READ}
    again = replace(late, process="d")
    assert kinds(*sends, late, *begin, *end, again) == {Anomaly.VANISHED_READ}
    strict = [*sent("a", 0), *sent("b", 1)]
    assert kinds(*strict, *begin, *end, late) == {Anomaly.LOST_WRITE}


def test_files_of_a_replica_may_hold_what_was_deleted() -> None:
    history = [*sent("a", 0), *sent("b", 1), *deleted(1), *read_to_end((1, "b"), start=1)]
    replica = Event("ok", "replica-1", 95, "replica", "k", records=[(0, "a"), (1, "b")])
    assert kinds(*history, replica) == set()
    assert kinds(*history, replace(replica, records=[(0, "a")])) == {Anomaly.DIVERGENT_REPLICA}


def test_nothing_found_for_a_time_is_wrong_only_after_an_acknowledgement() -> None:
    ask, answer = sent("a", 0)
    history = [replace(ask, detail={"timestamp_ms": 7}), answer, *read_to_end((0, "a"))]

    def looked_up(timestamp_ms: int, asked_us: int) -> Event:
        detail = {"timestamp_ms": timestamp_ms, "asked_us": asked_us}
        return Event("ok", "seeker", 50, "offset-for-time", "k", detail=detail)

    assert kinds(*history, looked_up(7, answer.time_us), looked_up(8, 40)) == set()
    assert kinds(*history, looked_up(7, answer.time_us + 1)) == {Anomaly.WRONG_OFFSET_FOR_TIME}


@pytest.mark.parametrize(("at_us", "is_over"), [(SESSION_US, False), (SESSION_US + 1, True)])
def test_a_member_that_falls_silent_owns_nothing_after_its_session(at_us: int, is_over: bool) -> None:
    """Also if the history ends before it knows."""
    detail = {"group": "g", "topics": ["t"], "session_timeout_ms": SESSION_US // 1000}
    members = (Event("info", name, 0, "member", detail=detail) for name in ("m1", "m2"))
    heartbeat = Event("ok", "m1", 1, "heartbeat", detail={"member_id": "1", "epoch": 1})
    owned = [
        Event("info", name, time_us, "assigned", detail={"partitions": ["t-0"]})
        for name, time_us in (("m1", 1), ("m2", at_us))
    ]
    assert kinds(*members, heartbeat, *owned) == (set() if is_over else {Anomaly.OWNED_TWICE})


def _with_zombie(*, is_read: bool) -> list[Event]:
    """A replaced producer asks for the commit of what it began before, and is not answered."""
    zombie, places = "app.0#3", {FIRST: (4, 1), SECOND: (2, 2)}
    history = []
    for event in clean_transactions(0):
        is_of_it = (event.value or "").startswith(zombie)
        if event.op == "final" and event.key in places and is_read:
            offset, number = places[event.key]
            records = sorted([*(event.records or ()), (offset, f"{zombie}:{number}/2")])
            event = replace(event, records=records)
        elif is_of_it and event.op == "txn-abort":
            event = replace(event, op="txn-commit", type="info" if event.type == "ok" else event.type)
        elif is_of_it and event.op == "send" and event.type == "fail":
            event = replace(event, type="info")
        history.append(event)
    return history


@pytest.mark.parametrize("is_read", [False, True])
def test_a_zombie_whose_records_are_read_has_committed_whatever_it_was_told(is_read: bool) -> None:
    assert kinds(*_with_zombie(is_read=is_read)) == ({Anomaly.ZOMBIE_COMMIT} if is_read else set())


def test_a_transaction_may_hang_of_which_all_disks_have_lost_the_coordinators_record() -> None:
    hanging = Event("info", "final", 99, "hanging", "t-0", error="stable up to 3 of 5")
    lost = [Event("info", "nemesis", 4, "tail-loss", value=node) for node in "12"]
    assert kinds(*lost, hanging) == set()
    assert kinds(*lost[1:], hanging) == {Anomaly.HANGING_TRANSACTION}
    assert kinds(FLUSHED, *lost, hanging) == {Anomaly.HANGING_TRANSACTION}


def test_transactions_are_whole_whatever_disks_lose_where_everything_is_flushed() -> None:
    clean = clean_transactions(0)
    unflushed = replace(FLUSHED, value="txn-b", detail={})
    flushed = [replace(FLUSHED, value=topic) for topic in ("txn-a", "txn-b", "txn-in", "txn-out")]
    lost = [Event("info", "nemesis", clean[-1].time_us, "tail-loss", value=node) for node in "12"]
    (torn,) = (plant for _, kind, plant in TRANSACTION_PLANTS if kind is Anomaly.TORN_TRANSACTION)
    assert kinds(*flushed, *clean, *lost) == set()
    assert Anomaly.TORN_TRANSACTION in kinds(*flushed, *torn(clean), *lost)
    assert kinds(*flushed, unflushed, *torn(clean), *lost) == set()


def _short_lived(keys: int) -> list[Event]:
    """Each read finds one key: it is set now, and those before were deleted long ago."""
    history: list[Event] = []
    for number in range(keys):
        time_us, reader = number * 1000, f"r{number}"
        for offset, text in ((2 * number, f"{number}=x"), (2 * number + 1, str(number))):
            put = Event("invoke", "w", time_us, "put", "m-0", text, detail={"number": offset})
            history += [put, replace(put, type="ok", offset=offset)]
        history += [
            Event("ok", reader, time_us, "map-start", "m-0", detail={"delete_retention_ms": 0}),
            Event("ok", reader, time_us, "map-read", "m-0", records=[(2 * number, f"{number}=x")]),
            Event("ok", reader, time_us, "map-end", "m-0", offset=2 * number + 1),
        ]
    return history


def test_work_does_not_grow_with_all_keys_that_a_compacted_log_has_had() -> None:
    few, many = _short_lived(50), _short_lived(400)
    assert check(few) == check(many) == ()
    small, large = count_calls(lambda: check(few)), count_calls(lambda: check(many))
    assert small > 50 and large < 9 * small


@pytest.mark.parametrize("is_in_use", [True, False])
def test_nothing_is_said_of_a_restart_whose_instance_id_is_still_in_use(is_in_use: bool) -> None:
    """The departure of its predecessor has been lost, and its session must expire first."""
    what = "UNRELEASED_INSTANCE_ID" if is_in_use else "UNKNOWN_MEMBER_ID"

    def member(name: str) -> Event:
        return Event("info", name, 0, "member", detail={"group": "g", "topics": ["t"], "instance_id": "i"})

    found = kinds(
        member("m.0"),
        Event("info", "m.0", 1, "assigned", detail={"partitions": ["t-0"]}),
        Event("info", "runner", 2, "static-restart", "g", "i", detail={"within_us": 10}),
        Event("info", "m.0", 3, "member-gone"),
        member("m.1"),
        Event("info", "m.1", 4, "poll-failed", error=what),
        Event("info", "runner", 20, "faults-end"),
    )
    assert (Anomaly.STATIC_MEMBER_REASSIGNED in found) != is_in_use
