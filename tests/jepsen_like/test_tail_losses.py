"""What was not promised is not demanded, and nothing else is let off."""

from __future__ import annotations

import pytest

from pykraft.jepsen_like.checkers.findings import Anomaly
from pykraft.jepsen_like.checkers.history import check
from pykraft.jepsen_like.history import Event

LOST = Event("invoke", "p", 1, "send", "t-0", "lost"), Event("ok", "p", 2, "send", "t-0", "lost", 0)
KEPT = Event("invoke", "p", 8, "send", "t-0", "kept"), Event("ok", "p", 9, "send", "t-0", "kept", 0)
END = (
    Event("ok", "final", 20, "final", "t-0", records=[(0, "kept")]),
    Event("ok", "final", 21, "final-end", "t-0", offset=1),
)


def tail_loss(node: str) -> Event:
    return Event("info", "nemesis", 4, "tail-loss", value=node)


def restored(node: str) -> Event:
    return Event("info", "nemesis", 5, "tail-restored", value=node)


def kinds(*events: Event) -> set[Anomaly]:
    return {finding.kind for finding in check(events, min_insync_replicas=2)}


@pytest.mark.parametrize(
    "losses",
    [
        (tail_loss("1"), tail_loss("2")),
        (tail_loss("1"), tail_loss("2"), restored("1"), restored("2")),
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
        (tail_loss("1"), restored("1"), tail_loss("2")),
        (Event("info", "nemesis", 4, "exempted", "t-1"),),
        (Event("info", "nemesis", 4, "exempted", "__consumer_offsets-0"),),
    ],
)
def test_what_fewer_disks_lost_is_not_exempted(losses: tuple[Event, ...]) -> None:
    assert Anomaly.LOST_WRITE in kinds(*LOST, *losses, *KEPT, *END)


def test_what_is_acknowledged_after_the_loss_must_stay() -> None:
    later = Event("invoke", "p", 10, "send", "t-0", "gone"), Event("ok", "p", 11, "send", "t-0", "gone", 1)
    found = kinds(*LOST, tail_loss("1"), tail_loss("2"), restored("1"), restored("2"), *KEPT, *later, *END)
    assert found & {Anomaly.LOST_WRITE, Anomaly.UNSEEN}


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
