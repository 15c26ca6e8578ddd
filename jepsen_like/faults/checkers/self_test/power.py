"""Power losses in the self-test: what must survive them, and what need not."""

from collections.abc import Sequence

from msgspec.structs import replace

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.self_test.planting import Plants
from pykraft.jepsen_like.faults.checkers.tail_losses import FLUSH_MESSAGES
from pykraft.jepsen_like.faults.history import NEMESIS, Event

KEY = "log-0"
ALL_NODES = ("1", "2", "3")


def allowed_loss(events: list[Event]) -> list[Event]:
    """No anomaly: all disks lose their tails, and with them a record that nobody had flushed."""
    return [*_without_one(events), *_tails_lost(events[-1].time_us, ALL_NODES)]


def _lose_with_one_disk(events: list[Event]) -> list[Event]:
    return [*_without_one(events), *_tails_lost(events[-1].time_us, ALL_NODES[:1])]


def _lose_with_killed_nodes(events: list[Event]) -> list[Event]:
    kills = [Event("info", NEMESIS, events[-1].time_us, "unclean-end", value=node) for node in ALL_NODES]
    return [*_without_one(events), *kills]


def _lose_flushed(events: list[Event]) -> list[Event]:
    topic = Event("info", "runner", 0, "topic", value="log", detail={FLUSH_MESSAGES: "1"})
    return [topic, *allowed_loss(events)]


def _lose_later(events: list[Event]) -> list[Event]:
    """Nothing is restored yet, but it was sent when the power was back."""
    return [*_tails_lost(-1, ALL_NODES), *_without_one(events)]


def _tails_lost(time_us: int, nodes: Sequence[str]) -> list[Event]:
    return [Event("info", NEMESIS, time_us, "tail-loss", value=node) for node in nodes]


def _without_one(events: Sequence[Event]) -> list[Event]:
    """The history without one acknowledged value in all reads."""
    value = [e.value for e in events if e.op == "send" and e.key == KEY and e.type == "ok"][30]
    return [
        replace(event, records=tuple(one for one in event.records if one[1] != value))
        if event.records and event.key == KEY
        else event
        for event in events
    ]


POWER_PLANTS: Plants = (
    ("a value is lost with the tail of one disk", Anomaly.LOST_WRITE, _lose_with_one_disk),
    ("a value is lost when all nodes are killed", Anomaly.LOST_WRITE, _lose_with_killed_nodes),
    ("a value of a flushed topic is lost with all tails", Anomaly.LOST_WRITE, _lose_flushed),
    ("a value is lost that was sent after all tails were", Anomaly.LOST_WRITE, _lose_later),
)
