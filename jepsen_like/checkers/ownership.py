"""Ownership as the members of a group believe it: no partition has two owners, and in the end each has one.

A member owns a partition from ``assigned`` until ``revoked``, ``lost`` or ``member-gone``. Where its
heartbeats are in the history it stops owning by itself one session after it sent the last one that was
answered: a coordinator that no longer hears of it may give its partitions away then, and not before. Where
what was committed to the offsets topic was not promised (``tail_losses``), coordinators may forget who owned
what until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from pykraft.jepsen_like.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.history import Event

OFFSETS_TOPIC = "__consumer_offsets-"


@dataclass(frozen=True, slots=True)
class Claim:
    """One member's ownership of one partition; ``end_us`` is None while it lasts."""

    member: str
    start_us: int
    end_us: int | None

    @property
    def ends_before_us(self) -> float:
        return inf if self.end_us is None else self.end_us


@dataclass(slots=True)
class Believer:
    """``owned``: the time since which it owns each partition. ``epochs``: the last one by member id."""

    group: str
    session_timeout_us: int
    topics: set[str] = field(default_factory=set)
    owned: dict[str, int] = field(default_factory=dict)
    heartbeat_us: int | None = None
    epochs: dict[str, int] = field(default_factory=dict)

    def claim(self, member: str, partition: str, until_us: int | None) -> Claim:
        end_us = until_us
        if self.heartbeat_us is not None and until_us is not None:
            end_us = min(until_us, self.heartbeat_us + self.session_timeout_us)
        return Claim(member, self.owned[partition], end_us)


def check_ownership(events: Iterable[Event], findings: Findings) -> None:
    """One pass over the events and one over the claims."""
    believers: dict[str, Believer] = {}
    claims: dict[tuple[str, str], list[Claim]] = {}
    settled: list[Event] = []
    forgiven_us = -1
    for event in events:
        if event.op == "member":
            _subscribe(believers, event)
        elif event.op == "settled":
            settled.append(event)
        elif event.op == "forgiven" and (event.key or "").startswith(OFFSETS_TOPIC):
            forgiven_us = event.time_us
            for one in believers.values():
                one.epochs.clear()
        elif (believer := believers.get(event.process)) is not None:
            _replay(believer, event, claims, findings)
    for name, believer in believers.items():
        for partition in believer.owned:
            claims.setdefault((believer.group, partition), []).append(believer.claim(name, partition, None))
    for (group, partition), of_partition in sorted(claims.items()):
        _check_overlaps(f"{group}/{partition}", of_partition, forgiven_us, findings)
    for event in settled:
        _check_convergence(event, claims, findings)


def _subscribe(believers: dict[str, Believer], event: Event) -> None:
    detail: Mapping[str, Any] = event.detail or {}
    believer = believers.get(event.process)
    if believer is None:
        session_us = detail.get("session_timeout_ms", 45_000) * 1000
        believer = believers[event.process] = Believer(detail["group"], session_us)
    believer.topics.update(detail["topics"])


def _replay(
    believer: Believer,
    event: Event,
    claims: dict[tuple[str, str], list[Claim]],
    findings: Findings,
) -> None:
    detail: Mapping[str, Any] = event.detail or {}
    match event.op:
        case "heartbeat":
            believer.heartbeat_us = max(believer.heartbeat_us or 0, event.time_us)
            _check_epoch(believer, event.process, detail["member_id"], detail["epoch"], findings)
        case "assigned":
            for partition in detail["partitions"]:
                believer.owned.setdefault(partition, event.time_us)
                if partition.rpartition("-")[0] not in believer.topics:
                    example = (
                        f"{event.process} was assigned {partition}, subscribed {sorted(believer.topics)}"
                    )
                    findings.add(Anomaly.FOREIGN_ASSIGNMENT, believer.group, example)
        case "revoked" | "lost" | "member-gone":
            for partition in detail.get("partitions", tuple(believer.owned)):
                if partition in believer.owned:
                    claim = believer.claim(event.process, partition, event.time_us)
                    claims.setdefault((believer.group, partition), []).append(claim)
                    del believer.owned[partition]
            if event.op == "lost":
                believer.epochs.clear()


def _check_epoch(believer: Believer, member: str, member_id: str, epoch: int, findings: Findings) -> None:
    before = believer.epochs.get(member_id, epoch)
    if epoch < before:
        findings.add(
            Anomaly.EPOCH_WENT_BACK, believer.group, f"{member} was sent epoch {epoch} after {before}"
        )
    believer.epochs[member_id] = epoch


def _check_overlaps(key: str, claims: list[Claim], forgiven_us: int, findings: Findings) -> None:
    """Of what was claimed up to ``forgiven_us`` the coordinator may know nothing any more."""
    latest: Claim | None = None
    for claim in sorted(claims, key=lambda claim: claim.start_us):
        overlaps = latest is not None and claim.start_us < latest.ends_before_us
        if (
            latest is not None
            and overlaps
            and claim.member != latest.member
            and latest.start_us > forgiven_us
        ):
            example = (
                f"{latest.member} from {latest.start_us} to {latest.end_us} us, "
                f"{claim.member} from {claim.start_us} us"
            )
            findings.add(Anomaly.OWNED_TWICE, key, example)
        if latest is None or claim.ends_before_us >= latest.ends_before_us:
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
            owners = [
                claim.member for claim in of_partition if claim.start_us <= at_us < claim.ends_before_us
            ]
            if len(owners) != 1 or owners[0] not in entitled:
                example = (
                    f"{topic}-{number} is owned by {owners or 'no member'} {detail['within_us']} us later"
                )
                findings.add(Anomaly.NOT_CONVERGED, group, example)
