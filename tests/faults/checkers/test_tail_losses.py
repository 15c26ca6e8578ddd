"""What was not promised is not demanded, and nothing else is let off."""

import pytest

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.history import check
from pykraft.jepsen_like.faults.history import Event

LOST = Event("invoke", "p", 1, "send", "t-0", "lost"), Event("ok", "p", 2, "send", "t-0", "lost", 0)
KEPT = Event("invoke", "p", 8, "send", "t-0", "kept"), Event("ok", "p", 9, "send", "t-0", "kept", 0)
END = (
    Event("ok", "final", 20, "final", "t-0", records=[(0, "kept")]),
    Event("ok", "final", 21, "final-end", "t-0", offset=1),
)


def tail_loss(node: str) -> Event:
    return Event("info", "nemesis", 4, "tail-loss", value=node)


def unclean_end(node: str) -> Event:
    return Event("info", "nemesis", 4, "unclean-end", value=node)


def restored(node: str) -> Event:
    return Event("info", "nemesis", 5, "tail-restored", value=node)


def topic(name: str, flush_messages: str | None) -> Event:
    detail = {"min.insync.replicas": "2"} | ({"flush.messages": flush_messages} if flush_messages else {})
    return Event("info", "runner", 0, "topic", value=name, detail=detail)


BOTH_LOST = (tail_loss("1"), tail_loss("2"))
BOTH_RESTORED = (restored("1"), restored("2"))


def kinds(*events: Event) -> set[Anomaly]:
    return {finding.kind for finding in check(events, min_insync_replicas=2)}


@pytest.mark.parametrize(
    "losses",
    [
        BOTH_LOST,
        (*BOTH_LOST, *BOTH_RESTORED),
        (tail_loss("1"), unclean_end("2")),
        (unclean_end("2"), tail_loss("1")),
        (topic("t", None), *BOTH_LOST),
        (topic("t", "2"), *BOTH_LOST),
        (topic("other", "1"), *BOTH_LOST),
        (Event("info", "nemesis", 4, "exempted", "t-0"),),
    ],
)
def test_what_too_many_disks_lost_is_exempted(losses: tuple[Event, ...]) -> None:
    polled = Event("ok", "reader", 3, "poll", "t-0", records=[(0, "lost")])
    assert kinds(*LOST, polled, *losses, *KEPT, *END) == set()


@pytest.mark.parametrize(
    "losses",
    [
        (),
        (tail_loss("1"),),
        (tail_loss("1"), tail_loss("1")),
        (tail_loss("1"), unclean_end("1")),
        (tail_loss("1"), restored("1"), tail_loss("2")),
        (unclean_end("1"), unclean_end("2"), unclean_end("3")),
        (unclean_end("1"), restored("1"), tail_loss("2")),
        (topic("t", "1"), *BOTH_LOST, tail_loss("3")),
        (Event("info", "nemesis", 4, "exempted", "t-1"),),
        (Event("info", "nemesis", 4, "exempted", "__consumer_offsets-0"),),
    ],
)
def test_what_fewer_disks_lost_is_not_exempted(losses: tuple[Event, ...]) -> None:
    assert Anomaly.LOST_WRITE in kinds(*LOST, *losses, *KEPT, *END)


def gone(begun_us: int, answered_us: int) -> tuple[Event, Event]:
    """A send that is acknowledged and never read."""
    return (
        Event("invoke", "p", begun_us, "send", "t-0", "gone"),
        Event("ok", "p", answered_us, "send", "t-0", "gone", 1),
    )


@pytest.mark.parametrize("restorations", [(), BOTH_RESTORED])
def test_what_is_sent_after_the_loss_must_stay(restorations: tuple[Event, ...]) -> None:
    found = kinds(*LOST, *BOTH_LOST, *restorations, *KEPT, *gone(10, 11), *END)
    assert found & {Anomaly.LOST_WRITE, Anomaly.UNSEEN}


def test_what_is_sent_before_an_operator_elects_somebody_proves_nothing() -> None:
    elected = Event("info", "nemesis", 20, "unclean-election", value="t-0")
    assert kinds(*LOST, *BOTH_LOST, *gone(10, 11), elected, *BOTH_RESTORED, *KEPT, *END) == set()


@pytest.mark.parametrize("answered_us", [5, 12])
def test_what_was_sent_before_the_loss_proves_nothing_whenever_it_is_answered(answered_us: int) -> None:
    sent, answered = gone(2, answered_us)
    assert kinds(*LOST, sent, *BOTH_LOST, *BOTH_RESTORED, answered, *KEPT, *END) == set()


def test_a_put_proves_nothing_either_if_it_was_made_before_the_loss() -> None:
    detail = {"number": 1}
    put = Event("invoke", "p", 1, "put", "m-0", "k=v", detail=detail)
    start = Event("ok", "r", 8, "map-start", "m-0", detail={"delete_retention_ms": 1})
    history = (put, Event("ok", "p", 2, "put", "m-0", "k=v", 0, detail=detail))
    read = (start, Event("ok", "r", 9, "map-end", "m-0", offset=5))
    assert kinds(*history, *read)
    assert kinds(*history, *BOTH_LOST, *BOTH_RESTORED, *read) == set()


def test_a_position_that_was_obtained_before_the_loss_may_be_lost_whenever_it_is_used() -> None:
    polled = Event("ok", "reader", 3, "poll", "t-0", records=[(0, "lost")])
    refused = Event("info", "reader", 30, "poll", "t-0", offset=1, error="out of range")
    begin, end = (*LOST, polled, *BOTH_LOST, *BOTH_RESTORED, *KEPT), (refused, *END)
    assert kinds(*begin, *end) == set()
    again = Event("ok", "reader", 12, "poll", "t-0", records=[(0, "kept")])
    assert kinds(*begin, again, *end) == {Anomaly.POSITION_LOST}


@pytest.mark.parametrize(
    ("topics", "opened_before", "found"),
    [
        ((), True, set()),
        ((topic("t", "1"), topic("u", None)), True, set()),
        ((topic("t", "1"),), True, {Anomaly.PRODUCER_FATAL}),
        ((), False, {Anomaly.PRODUCER_FATAL}),
    ],
)
def test_a_producer_may_fail_that_was_opened_before_the_loss(
    topics: tuple[Event, ...], opened_before: bool, found: set[Anomaly]
) -> None:
    opened = Event("info", "p", 0, "producer", detail={})
    before, after = ([opened], []) if opened_before else ([], [opened])
    fatal = Event("info", "p", 30, "producer-fatal", error="out of order")
    assert kinds(*topics, *before, *BOTH_LOST, *BOTH_RESTORED, *after, fatal) == found


def test_a_commit_may_be_forgotten_with_the_partition_that_held_it() -> None:
    first = Event("invoke", "m", 1, "commit", "g/t-0", "a", 5), Event("ok", "m", 2, "commit", "g/t-0", "a", 5)
    nothing = Event("ok", "looker", 30, "committed", "g/t-0", detail={"asked_us": 29})
    assert kinds(*first, nothing) == {Anomaly.LOST_CHANGE}
    assert kinds(*first, Event("info", "nemesis", 4, "exempted", "__consumer_offsets-3"), nothing) == set()


def test_a_coordinator_may_lose_ownership_with_the_partition_that_held_it() -> None:
    detail = {"group": "g", "topics": ["t"], "session_timeout_ms": 6_000}
    members = (Event("info", name, 0, "member", detail=detail) for name in ("m1", "m2", "m3"))
    own = {"partitions": ["t-0"]}
    history = [
        *members,
        Event("ok", "m1", 1, "heartbeat", detail={"member_id": "m1", "epoch": 5}),
        Event("info", "m1", 1, "assigned", detail=own),
        Event("info", "m2", 6, "assigned", detail=own),
        Event("info", "m2", 7, "revoked", detail=own),
        Event("ok", "m1", 8, "heartbeat", detail={"member_id": "m1", "epoch": 4}),
    ]
    exempted = Event("info", "nemesis", 4, "exempted", "__consumer_offsets-0")
    assert kinds(*history) == {Anomaly.OWNED_TWICE, Anomaly.EPOCH_WENT_BACK}
    assert kinds(*history[:5], exempted, *history[5:]) == set()
    later = [Event("info", name, 9, "assigned", detail=own) for name in ("m2", "m3")]
    assert kinds(*history[:3], exempted, *later) == {Anomaly.OWNED_TWICE}
