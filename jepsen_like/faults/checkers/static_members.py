"""Checks that a static member that is restarted within its session finds what it had, and disturbs nobody.

``static-restart`` says that the member with the instance id ``value`` of the group ``key`` is restarted now,
while the group is stable and nothing is broken, and that ``detail.within_us`` later it must own the same
partitions again. Until then nothing may change for the members of the group that are not restarted.

Nothing is said of a restart whose member finds that its instance id is still in use: then the departure of
the one before has not reached the coordinator, and clients do not repeat it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pykraft.jepsen_like.faults.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.faults.history import Event

_IN_USE = ("UNRELEASED_INSTANCE_ID", "The instance ID is still used by another member")


@dataclass(frozen=True, slots=True)
class _Restart:
    """``before``: the member that is restarted; ``owned``: what it had."""

    group: str
    instance_id: str
    due_us: int
    before: str
    owned: frozenset[str]


@dataclass(slots=True)
class _Members:
    """``newest``: of each group and instance id; ``group_of``, ``instance_of`` and ``owned``: by member."""

    newest: dict[tuple[str, str], str] = field(default_factory=dict)
    group_of: dict[str, str] = field(default_factory=dict)
    instance_of: dict[str, str] = field(default_factory=dict)
    owned: dict[str, set[str]] = field(default_factory=dict)

    def replay(self, event: Event) -> frozenset[str]:
        """The partitions that the event takes from its member, or gives it."""
        name, detail = event.process, event.detail or {}
        if event.op == "member":
            self.group_of[name] = detail["group"]
            self.owned.setdefault(name, set())
            if "instance_id" in detail:
                self.instance_of[name] = detail["instance_id"]
                self.newest[detail["group"], detail["instance_id"]] = name
        owned = self.owned.get(name, set())
        before = frozenset(owned)
        match event.op:
            case "assigned":
                owned.update(detail["partitions"])
            case "revoked" | "lost":
                owned.difference_update(detail["partitions"])
            case "member-gone":
                owned.clear()
        return before ^ owned


def check_static_members(events: Iterable[Event], findings: Findings) -> None:
    """One pass."""
    members, restarts = _Members(), list[_Restart]()
    for event in events:
        for restart in [one for one in restarts if one.due_us <= event.time_us]:
            restarts.remove(restart)
            _judge(restart, members, findings)
        changed = members.replay(event)
        if event.op == "poll-failed" and any(text in (event.error or "") for text in _IN_USE):
            group = members.group_of.get(event.process)
            restarts = [one for one in restarts if one.group != group]
        if event.op == "static-restart" and event.key is not None and event.value is not None:
            before = members.newest.get((event.key, event.value), "")
            due_us = event.time_us + (event.detail or {})["within_us"]
            owned = frozenset(members.owned.get(before, ()))
            restarts.append(_Restart(event.key, event.value, due_us, before, owned))
        elif changed and restarts:
            _check_others(event, changed, members, restarts, findings)
    for restart in restarts:
        _judge(restart, members, findings)


def _judge(restart: _Restart, members: _Members, findings: Findings) -> None:
    after = members.newest.get((restart.group, restart.instance_id), "")
    owned = members.owned.get(after, set())
    if after == restart.before or owned != restart.owned:
        what = "nobody" if after == restart.before else f"{after} owns {sorted(owned)}"
        example = f"{restart.before} owned {sorted(restart.owned)}; when it had been restarted {what}"
        findings.add(Anomaly.STATIC_MEMBER_REASSIGNED, restart.group, example)


def _check_others(
    event: Event,
    changed: frozenset[str],
    members: _Members,
    restarts: Iterable[_Restart],
    findings: Findings,
) -> None:
    group = members.group_of.get(event.process)
    restarted = {restart.instance_id for restart in restarts if restart.group == group}
    if restarted and members.instance_of.get(event.process) not in restarted:
        example = f"{event.process}: {event.op} {sorted(changed)}, while {sorted(restarted)} were restarted"
        findings.add(Anomaly.STATIC_MEMBER_REASSIGNED, str(group), example)
