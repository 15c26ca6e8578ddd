"""Moves of the members of a classic group."""

from dataclasses import dataclass
from typing import Final

from pykraft.jepsen_like.conformance.draw import ACTORS, LONG_MS, Draw
from pykraft.jepsen_like.conformance.script import NO_TOPIC, TOPICS, MemberId, blank
from pykraft.kafka_protocol.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from pykraft.kafka_protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

PROTOCOLS: Final = ("range", "roundrobin", "sticky")


@dataclass(frozen=True, slots=True)
class ClassicKind:
    """Shared by the members of one script."""

    protocol_type: str

    @property
    def is_consumer(self) -> bool:
        return self.protocol_type == "consumer"


def join(draw: Draw, actor: int, kind: ClassicKind, least_version: int = 0) -> None:
    request = JoinGroupRequest(
        group_id=draw.group(),
        session_timeout_ms=draw.some((40, LONG_MS), (1, 1), (1, 10**9), (1, -1)),
        rebalance_timeout_ms=LONG_MS,
        member_id=draw.member(actor),
        group_instance_id=draw.instance(actor),
        protocol_type=draw.some((40, kind.protocol_type), (1, ""), (1, "odd")),
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=_metadata(draw, kind))
            for name in draw.some(
                (20, PROTOCOLS[:2]), (4, PROTOCOLS[:1]), (2, PROTOCOLS[1:]), (1, ()), (1, ("odd",))
            )
        ],
        reason=draw.some((1, None), (1, "because")),
    )
    draw.add(actor, draw.version(JoinGroupRequest, least_version), request)


def _metadata(draw: Draw, kind: ClassicKind) -> bytes:
    if kind.is_consumer and not draw.rarely(20):
        topics = ["apples"] if draw.rarely(2) else draw.subset([*TOPICS, NO_TOPIC])
        return encode_subscription(ConsumerProtocolSubscription(topics=topics), draw.rng.randrange(4))
    # Kafka never answers a consumer whose subscription is longer than this and cannot be read.
    return b"" if kind.is_consumer else draw.some((6, b"metadata"), (1, b""), (1, b"other"))


def sync(draw: Draw, actor: int, kind: ClassicKind) -> None:
    """Every member brings assignments, for nobody knows who leads."""
    number = draw.rng.randrange(100)
    assignments = [
        SyncGroupRequestAssignment(member_id=blank(MemberId(other)), assignment=b"%d-%d" % (other, number))
        for other in (range(ACTORS) if not draw.rarely(6) else draw.subset(range(ACTORS)))
    ]
    if draw.rarely(10):
        assignments.append(SyncGroupRequestAssignment(member_id="nobody", assignment=b"lost"))
    request = SyncGroupRequest(
        group_id=draw.group(),
        generation_id=draw.epoch(actor),
        member_id=draw.member(actor),
        group_instance_id=draw.instance(actor),
        protocol_type=draw.some((20, kind.protocol_type), (10, None), (1, "odd"), (1, "")),
        protocol_name=draw.some((20, None), (6, PROTOCOLS[0]), (1, "odd"), (1, "")),
        assignments=assignments,
    )
    draw.add(actor, draw.version(SyncGroupRequest), request)


def heartbeat(draw: Draw, actor: int) -> None:
    request = HeartbeatRequest(
        group_id=draw.group(),
        generation_id=draw.epoch(actor),
        member_id=draw.member(actor),
        group_instance_id=draw.instance(actor),
    )
    draw.add(actor, draw.version(HeartbeatRequest), request)


def leave(draw: Draw, actor: int) -> None:
    leaving = [actor, *draw.subset(range(ACTORS))] if draw.rarely(3) else [actor]
    request = LeaveGroupRequest(
        group_id=draw.group(),
        member_id=draw.member(actor),
        members=[
            MemberIdentity(
                member_id=draw.some((3, draw.member(other)), (1, "")),
                group_instance_id=draw.instance(other),
                reason=draw.some((1, None), (1, "because")),
            )
            for other in (leaving if not draw.rarely(20) else [])
        ],
    )
    draw.add(actor, draw.version(LeaveGroupRequest), request)


def rebalance(draw: Draw, kind: ClassicKind) -> None:
    """Members join, get their assignment and send heartbeats, as clients do."""
    joining = draw.subset(range(ACTORS), least=1)
    draw.rng.shuffle(joining)
    two_steps = draw.rarely(2)
    for actor in joining:
        join(draw, actor, kind, least_version=4 if two_steps else 0)
    if two_steps:
        for actor in joining:
            join(draw, actor, kind)
    draw.rng.shuffle(joining)
    for actor in joining:
        sync(draw, actor, kind)
    for actor in draw.subset(joining):
        heartbeat(draw, actor)
