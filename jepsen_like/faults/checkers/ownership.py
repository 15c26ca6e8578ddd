"""Ownership as the members of a group believe it: no partition has two owners, and in the end each has one.

A member owns a partition from ``assigned`` until ``revoked``, ``lost`` or ``member-gone``. Where its
heartbeats are in the history it stops owning by itself one session after it sent the last one that was
answered: a coordinator that no longer hears of it may give its partitions away then, and not before. Where
what was committed to the offsets topic was not promised (``tail_losses``), coordinators may forget who owned
what until then. A coordinator writes a classic generation down when its assignments are known, so the next
one may begin again with generations in which nothing was assigned.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from pykraft.jepsen_like.faults.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.faults.history import Event

OFFSETS_TOPIC = "__consumer_offsets-"


@dataclass(frozen=True, slots=True)
class Claim:
    """One member's ownership of one partition; ``end_us`` is infinite while it lasts."""

    member: str
    start_us: int
    end_us: float


@dataclass(slots=True)
class Claimant:
    """``owned``: the time since which it owns each partition. ``heartbeat_us``: of its last heartbeat, if the
    history has them. ``epochs``: the last one by member id, and ``joined``, in a classic group, the last
    generation without an assignment."""

    group: str
    session_timeout_us: int
    topics: set[str] = field(default_factory=set)
    owned: dict[str, int] = field(default_factory=dict)
    heartbeat_us: int | None = None
    epochs: dict[str, int] = field(default_factory=dict)
    joined: dict[str, int] = field(default_factory=dict)
    is_classic: bool = False

    def claim(self, member: str, partition: str, until_us: float = inf) -> Claim:
        session_over_us = inf if self.heartbeat_us is None else self.heartbeat_us + self.session_timeout_us
        return Claim(member, self.owned[partition], min(until_us, session_over_us))


def check_ownership(events: Iterable[Event], findings: Findings) -> None:
    """One pass over the events and one over the claims."""
    members: dict[str, Claimant] = {}
    claims: dict[tuple[str, str], list[Claim]] = {}
    settled: list[Event] = []
    exempted_us = -1
    for event in events:
        if event.op == "member":
            _subscribe(members, event)
        elif event.op == "settled":
            settled.append(event)
        elif event.op == "exempted" and (event.key or "").startswith(OFFSETS_TOPIC):
            exempted_us = event.time_us
            for one in members.values():
                one.epochs.clear()
                one.joined.clear()
        elif (claimant := members.get(event.process)) is not None:
            _replay(claimant, event, claims, findings)
    for name, claimant in members.items():
        for partition in claimant.owned:
            claims.setdefault((claimant.group, partition), []).append(claimant.claim(name, partition))
    for (group, partition), of_partition in sorted(claims.items()):
        _check_overlaps(f"{group}/{partition}", of_partition, exempted_us, findings)
    for event in settled:
        _check_convergence(event, claims, findings)


def _subscribe(members: dict[str, Claimant], event: Event) -> None:
    detail: Mapping[str, Any] = event.detail or {}
    claimant = members.get(event.process)
    if claimant is None:
        session_us = detail.get("session_timeout_ms", 45_000) * 1000
        claimant = members[event.process] = Claimant(detail["group"], session_us)
        claimant.is_classic = detail.get("protocol") == "classic"
    claimant.topics.update(detail["topics"])


def _replay(
    claimant: Claimant,
    event: Event,
    claims: dict[tuple[str, str], list[Claim]],
    findings: Findings,
) -> None:
    detail: Mapping[str, Any] = event.detail or {}
    match event.op:
        case "heartbeat":
            claimant.heartbeat_us = max(claimant.heartbeat_us or 0, event.time_us)
            _check_epoch(claimant, event.process, detail["member_id"], detail["epoch"], findings)
        case "assigned":
            claimant.epochs.update(claimant.joined)
            for partition in detail["partitions"]:
                claimant.owned.setdefault(partition, event.time_us)
                if partition.rpartition("-")[0] not in claimant.topics:
                    example = (
                        f"{event.process} was assigned {partition}, subscribed {sorted(claimant.topics)}"
                    )
                    findings.add(Anomaly.FOREIGN_ASSIGNMENT, claimant.group, example)
        case "revoked" | "lost" | "member-gone":
            for partition in detail.get("partitions", tuple(claimant.owned)):
                if partition in claimant.owned:
                    claim = claimant.claim(event.process, partition, event.time_us)
                    claims.setdefault((claimant.group, partition), []).append(claim)
                    del claimant.owned[partition]
            if event.op == "lost":
                claimant.epochs.clear()
                claimant.joined.clear()


def _check_epoch(claimant: Claimant, member: str, member_id: str, epoch: int, findings: Findings) -> None:
    before = claimant.epochs.get(member_id, epoch)
    if epoch < before:
        findings.add(
            Anomaly.EPOCH_WENT_BACK, claimant.group, f"{member} was sent epoch {epoch} after {before}"
        )
    (claimant.joined if claimant.is_classic else claimant.epochs)[member_id] = epoch


def _check_overlaps(key: str, claims: list[Claim], exempted_us: int, findings: Findings) -> None:
    """The coordinator may have forgotten claims up to ``exempted_us``."""
    latest: Claim | None = None
    for claim in sorted(claims, key=lambda claim: claim.start_us):
        if (
            latest is not None
            and claim.start_us < latest.end_us
            and claim.member != latest.member
            and latest.start_us > exempted_us
        ):
            example = (
                f"{latest.member} from {latest.start_us} to {latest.end_us} us, "
                f"{claim.member} from {claim.start_us} us"
            )
            findings.add(Anomaly.OWNED_TWICE, key, example)
        if latest is None or claim.end_us >= latest.end_us:
            latest = claim


def _check_convergence(
    event: Event, claims: Mapping[tuple[str, str], list[Claim]], findings: Findings
) -> None:
    """After the bound each partition of a subscribed topic must have one owner, a subscriber."""
    detail, group = event.detail or {}, event.key or ""
    at_us = event.time_us + detail["within_us"]
    members: Mapping[str, list[str]] = detail["members"]
    for topic, count in detail["topics"].items():
        entitled = {name for name, topics in members.items() if topic in topics}
        for number in range(count if entitled else 0):
            of_partition = claims.get((group, f"{topic}-{number}"), [])
            owners = [claim.member for claim in of_partition if claim.start_us <= at_us < claim.end_us]
            if len(owners) != 1 or owners[0] not in entitled:
                example = (
                    f"{topic}-{number} is owned by {owners or 'no member'} {detail['within_us']} us later"
                )
                findings.add(Anomaly.NOT_CONVERGED, group, example)
