"""The groups of the self-test: two groups over the log of the clean history, and their anomalies."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.self_test.planting import Plant, Plants, edited
from pykraft.jepsen_like.faults.history import Event

STEP_US = 1_000_000
SESSION_MS = 6_000
MEMBERS = ("m1", "m2")


def clean_groups(log: Sequence[Event]) -> list[Event]:
    """Two groups of two members: the first member owns both partitions, then one is assigned to the second.

    Every member reads its partitions and commits. Then a static member is restarted. Meanwhile a topic is
    changed.
    """
    events = [event for group in ("g", "h") for event in _clean_group(log, group)]
    events += _static_group()
    changes = [
        Event("invoke", "admin", 0, "set", "t/partitions", "4"),
        Event("ok", "admin", 0, "set", "t/partitions", "4"),
        Event("invoke", "admin", 0, "set", "t/partitions", "6"),
        Event("info", "admin", 0, "set", "t/partitions", "6"),
        Event("invoke", "admin", 0, "set", "t/partitions", "8"),
        Event("ok", "admin", 0, "set", "t/partitions", "8"),
        Event("invoke", "admin", 0, "set", "t/partitions", "5"),
        Event("fail", "admin", 0, "set", "t/partitions", "5"),
        Event("ok", "look", 0, "get", "t/partitions", "8"),
    ]
    start_us = log[-1].time_us
    return [replace(e, time_us=start_us + STEP_US * (1 + n)) for n, e in enumerate([*events, *changes])]


def _clean_group(log: Sequence[Event], group: str) -> list[Event]:
    first, second = (f"{group}-{name}" for name in MEMBERS)
    member = {"group": group, "topics": ["log"], "session_timeout_ms": SESSION_MS}
    read = {key: [e.records or () for e in log if e.op == "final" and e.key == key] for key in _keys()}
    ends = {key: next(e.offset or 0 for e in log if e.op == "final-end" and e.key == key) for key in _keys()}
    settled = {
        "members": {first: ["log"], second: ["log"]},
        "topics": {"log": 2},
        "within_us": 3 * STEP_US,
    }
    return [
        Event("info", first, 0, "member", detail=member),
        _heartbeat(first, 1),
        _partitions(first, "assigned", *_keys()),
        *(Event("ok", first, 0, "poll", key, records=read[key][0]) for key in _keys()),
        *_commit(group, first, "log-0", 10),
        Event("info", second, 0, "member", detail=member),
        _heartbeat(first, 2),
        _partitions(first, "revoked", "log-1"),
        _heartbeat(second, 2),
        _partitions(second, "assigned", "log-1"),
        Event("info", "runner", 0, "settled", group, detail=settled),
        Event("ok", first, 0, "poll", "log-0", records=read["log-0"][1]),
        Event("ok", second, 0, "poll", "log-1", records=read["log-1"][0]),
        Event("ok", second, 0, "poll", "log-1", records=read["log-1"][1]),
        _heartbeat(first, 2),
        *_commit(group, first, "log-0", ends["log-0"]),
        *_commit(group, second, "log-1", ends["log-1"]),
        _heartbeat(second, 2),
        Event("ok", "looker", 0, "committed", f"{group}/log-0", f"{group}-m1@{ends['log-0']}", ends["log-0"]),
        _heartbeat(first, 2),
        _partitions(first, "lost", "log-0"),
        Event("info", first, 0, "member-gone"),
        Event("info", second, 0, "member-gone"),
    ]


def _static_group() -> list[Event]:
    """Two static members, one of which is restarted."""

    def member(name: str, instance_id: str) -> Event:
        detail = {"group": "s", "topics": ["log"], "instance_id": instance_id}
        return Event("info", name, 0, "member", detail=detail)

    return [
        member("s-0.0", "s-0"),
        member("s-1.0", "s-1"),
        _partitions("s-0.0", "assigned", "log-0"),
        _partitions("s-1.0", "assigned", "log-1"),
        Event("info", "runner", 0, "static-restart", "s", "s-0", detail={"within_us": 5 * STEP_US}),
        Event("info", "s-0.0", 0, "member-gone"),
        member("s-0.1", "s-0"),
        _partitions("s-0.1", "assigned", "log-0"),
        Event("info", "s-0.1", 0, "pause"),
        Event("info", "s-0.1", 0, "pause"),
        Event("info", "s-0.1", 0, "member-gone"),
        Event("info", "s-1.0", 0, "member-gone"),
    ]


def _keys() -> tuple[str, str]:
    return ("log-0", "log-1")


def _heartbeat(member: str, epoch: int) -> Event:
    return Event("ok", member, 0, "heartbeat", detail={"member_id": member, "epoch": epoch})


def _partitions(member: str, op: str, *partitions: str) -> Event:
    return Event("info", member, 0, op, detail={"partitions": list(partitions)})


def _commit(group: str, member: str, partition: str, offset: int) -> list[Event]:
    key, tag = f"{group}/{partition}", f"{member}@{offset}"
    return [Event(kind, member, 0, "commit", key, tag, offset) for kind in ("invoke", "ok")]


# --- plants ------------------------------------------------------------------------------------------------


def _place(events: Sequence[Event], op: str, process: str) -> int:
    return next(n for n, e in enumerate(events) if e.op == op and e.process == process and e.type != "invoke")


def _found(op: str, process: str, **changes: Any) -> Plant:
    """An event of this process says something else."""
    return lambda events: edited(events, _place(events, op, process), **changes)


def _assign_early(events: list[Event]) -> list[Event]:
    """The second member is assigned the partition before the first revokes it."""
    revoked, assigned = _place(events, "revoked", "g-m1"), _place(events, "assigned", "g-m2")
    return edited(events, assigned, time_us=events[revoked].time_us - 1)


def _outlive_the_session(events: list[Event]) -> list[Event]:
    """The second member gets a partition of the first, whose session, by its last heartbeat, is not over."""
    place = len(events) - 1 - next(n for n, e in enumerate(reversed(events)) if e.process == "g-m1")
    last = max(e.time_us for e in events if e.process == "g-m1" and e.op == "heartbeat")
    taken = replace(_partitions("g-m2", "assigned", "log-0"), time_us=last + SESSION_MS * 1000 - 1)
    late = replace(_partitions("g-m1", "lost", "log-0"), time_us=last + 2 * SESSION_MS * 1000)
    kept = [e for e in events if not (e.process == "g-m1" and e.op in ("lost", "member-gone"))]
    return [*kept[: place - 1], taken, late, *kept[place - 1 :]]


def _leave_unowned(events: list[Event]) -> list[Event]:
    return [e for e in events if not (e.process == "g-m2" and e.op == "assigned")]


def _lower_epoch(events: list[Event]) -> list[Event]:
    place = _place(events, "revoked", "g-m1")
    return [*events[:place], replace(_heartbeat("g-m1", 0), time_us=events[place].time_us), *events[place:]]


def _skip_records(events: list[Event]) -> list[Event]:
    """A record that no member of the group reads is committed nevertheless."""
    return [e for e in events if not (e.process.startswith("g-") and e.op == "poll" and e.key == "log-1")]


def _find_moved_commit(events: list[Event]) -> list[Event]:
    place = _place(events, "committed", "looker")
    return edited(events, place, offset=(events[place].offset or 0) + 1)


def _return_to_less(events: list[Event]) -> list[Event]:
    place = _place(events, "assigned", "s-0.1")
    return [*events[:place], *events[place + 1 :]]


def _disturb_others(events: list[Event]) -> list[Event]:
    place = _place(events, "assigned", "s-0.1")
    times = [event.time_us for event in events[place : place + 2]]
    moved = [_partitions("s-1.0", op, "log-1") for op in ("revoked", "assigned")]
    stamped = [replace(event, time_us=time_us + 1) for event, time_us in zip(moved, times, strict=True)]
    return [*events[: place + 1], stamped[0], events[place + 1], stamped[1], *events[place + 2 :]]


_forget_commit = _found("committed", "looker", value="g-m1@10", offset=10)
_forget_all_commits = _found("committed", "looker", value=None, offset=None)
_forget_change = _found("get", "look", value="4")
_find_refused_change = _found("get", "look", value="5")
_assign_foreign = _found("assigned", "g-m2", detail={"partitions": ["log-1", "other-0"]})

GROUP_PLANTS: Plants = (
    ("a partition is assigned before it is revoked", Anomaly.OWNED_TWICE, _assign_early),
    ("a partition is taken before a session is over", Anomaly.OWNED_TWICE, _outlive_the_session),
    ("a partition of another topic is assigned", Anomaly.FOREIGN_ASSIGNMENT, _assign_foreign),
    ("a partition stays without an owner", Anomaly.NOT_CONVERGED, _leave_unowned),
    ("a static member comes back to nothing", Anomaly.STATIC_MEMBER_REASSIGNED, _return_to_less),
    ("a restarted static member disturbs others", Anomaly.STATIC_MEMBER_REASSIGNED, _disturb_others),
    ("a member is sent a lower epoch", Anomaly.EPOCH_WENT_BACK, _lower_epoch),
    ("a group commits records that no member read", Anomaly.SKIPPED_BY_GROUP, _skip_records),
    ("an older commit is found", Anomaly.LOST_CHANGE, _forget_commit),
    ("no commit is found", Anomaly.LOST_CHANGE, _forget_all_commits),
    ("an older change is found", Anomaly.LOST_CHANGE, _forget_change),
    ("a refused change is found", Anomaly.PHANTOM_CHANGE, _find_refused_change),
    ("a commit is found with another offset", Anomaly.PHANTOM_CHANGE, _find_moved_commit),
)
