"""Moves of the members of a consumer group (KIP-848)."""

from dataclasses import dataclass
from typing import Any

from pykraft.jepsen_like.conformance.draw import ACTORS, LONG_MS, Draw
from pykraft.jepsen_like.conformance.script import NO_TOPIC, TOPICS, MemberId, Owned, blank
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)


@dataclass(frozen=True, slots=True)
class ConsumerKind:
    """Shared by the members of one script."""

    assignor: str | None
    regex: bool
    """Whether members subscribe to regular expressions."""


def join(draw: Draw, actor: int, kind: ConsumerKind) -> None:
    version = draw.version(ConsumerGroupHeartbeatRequest)
    request = ConsumerGroupHeartbeatRequest(
        group_id=draw.group(),
        member_id=draw.member(actor, "" if version == 0 and draw.rarely(2) else f"member-{actor}"),
        member_epoch=0,
        instance_id=draw.instance(actor),
        rack_id=draw.some((3, None), (1, "rack"), (1, "")),
        rebalance_timeout_ms=draw.some((20, LONG_MS), (1, -1), (1, 0), (1, -2)),
        subscribed_topic_names=_names(draw),
        subscribed_topic_regex=_regex(draw, kind),
        server_assignor=draw.some((20, kind.assignor), (1, ""), (1, "odd"), (1, None)),
        topic_partitions=draw.some(
            (20, []), (1, None), (1, _owned(actor, "all")), (1, _owned(actor, "more"))
        ),
    )
    draw.add(actor, version, request)


def stay(draw: Draw, actor: int, kind: ConsumerKind) -> None:
    """A heartbeat of a member, with any of its fields null or not."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=draw.group(),
        member_id=draw.member(actor),
        member_epoch=draw.epoch(actor),
        instance_id=draw.some((3, None), (1, draw.instance(actor))),
        rack_id=draw.some((8, None), (1, "rack"), (1, "")),
        rebalance_timeout_ms=draw.some((6, -1), (4, LONG_MS), (1, 0)),
        subscribed_topic_names=draw.some((8, None), (2, _names(draw))),
        subscribed_topic_regex=draw.some((8, None), (2, _regex(draw, kind))),
        server_assignor=draw.some((8, None), (2, kind.assignor), (1, ""), (1, "odd")),
        topic_partitions=draw.some(
            (6, None),
            (8, _owned(actor, "all")),
            (2, _owned(actor, "less")),
            (1, _owned(actor, "more")),
            (2, []),
        ),
    )
    draw.add(actor, draw.version(ConsumerGroupHeartbeatRequest), request)


def leave(draw: Draw, actor: int) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=draw.group(),
        member_id=draw.member(actor),
        member_epoch=draw.some((4, -1), (3, -2), (1, -3)),
        instance_id=draw.instance(actor),
    )
    draw.add(actor, draw.version(ConsumerGroupHeartbeatRequest), request)


def beat_as_a_stranger(draw: Draw, actor: int) -> None:
    """A heartbeat of a member that no group has."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=draw.group(), member_id="stranger", member_epoch=draw.some((2, -1), (1, 1))
    )
    draw.add(actor, draw.version(ConsumerGroupHeartbeatRequest), request)


def settle(draw: Draw, kind: ConsumerKind) -> None:
    """Some rounds in which every member reports exactly what it was assigned."""
    for _ in range(draw.rng.randint(1, 2)):
        for actor in range(ACTORS):
            request = ConsumerGroupHeartbeatRequest(
                group_id=draw.group(),
                member_id=blank(MemberId(actor)),
                member_epoch=draw.epoch(actor),
                topic_partitions=_owned(actor, "all"),
            )
            draw.add(actor, draw.version(ConsumerGroupHeartbeatRequest), request)


def _names(draw: Draw) -> list[str] | None:
    return draw.some(
        (20, draw.subset([*TOPICS, NO_TOPIC])), (6, ["apples"]), (1, None), (1, ["apples", "apples"])
    )


def _regex(draw: Draw, kind: ConsumerKind) -> str | None:
    if not kind.regex:
        return draw.some((12, None), (1, ""), (1, "*bad"))
    return draw.some((4, None), (2, ".*pp.*"), (2, "berries|cherries"), (1, ""), (1, "*bad"))


def _owned(actor: int, how: str) -> Any:
    return blank(Owned(actor, ConsumerGroupHeartbeatRequestTopicPartitions, how))
