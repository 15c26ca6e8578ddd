"""Moves that make the offsets of a group part of a transaction, and those that look at them."""

from typing import Any, Final

from pykraft.jepsen_like.conformance.draw import ADMIN
from pykraft.jepsen_like.conformance.producer_blanks import ProducerEpoch, ProducerId
from pykraft.jepsen_like.conformance.script import GroupId, TransactionalId, blank
from pykraft.jepsen_like.conformance.transaction_draw import OWN_IDS, TransactionDraw
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

_MULTIPLE_GROUPS_VERSION: Final = 8


def commit(draw: TransactionDraw, actor: int, *, sound: bool = False) -> None:
    """By a member, by somebody who takes itself for one, or by a producer alone."""
    alone = sound or draw.rarely(2)
    request = TxnOffsetCommitRequest(
        transactional_id=blank(TransactionalId(OWN_IDS[actor])) if sound else draw.transactional_id(actor),
        group_id=blank(GroupId("g")) if sound else draw.group(),
        producer_id=blank(ProducerId(actor)) if sound else draw.producer_id(actor),
        producer_epoch=blank(ProducerEpoch(actor)) if sound else draw.producer_epoch(actor),
        generation_id=-1 if alone else draw.epoch(actor),
        member_id="" if alone else draw.member(actor),
        group_instance_id=None if alone else draw.instance(actor),
        topics=[
            TxnOffsetCommitRequestTopic(
                name=draw.topic_name(name), partitions=[_committed(draw, index) for index in set(indexes)]
            )
            for name, indexes in draw.places(least=0 if draw.rarely(12) else 1).items()
        ],
    )
    draw.add(actor, draw.version_of(actor, TxnOffsetCommitRequest), request)


def _committed(draw: TransactionDraw, index: int) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=draw.some((12, draw.rng.randrange(100)), (1, -1)),
        committed_leader_epoch=draw.some((2, -1), (1, 0)),
        committed_metadata=draw.some((4, "note"), (1, None), (1, ""), (1, "x" * 4097)),
    )


def commit_outside(draw: TransactionDraw) -> None:
    """OffsetCommit, over or under what a transaction has pending."""
    request = OffsetCommitRequest(
        group_id=draw.group(),
        topics=[
            OffsetCommitRequestTopic(
                name=draw.topic_name(name),
                topic_id=draw.topic_id(name),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=draw.rng.randrange(100),
                        committed_metadata="out",
                    )
                    for index in indexes
                ],
            )
            for name, indexes in draw.places().items()
        ],
    )
    draw.add(ADMIN, draw.version(OffsetCommitRequest), request)


def forget(draw: TransactionDraw) -> None:
    if not draw.serves(OffsetDeleteRequest):
        return
    topics = [
        OffsetDeleteRequestTopic(
            name=draw.topic_name(name),
            partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in set(indexes)],
        )
        for name, indexes in draw.places().items()
    ]
    request = OffsetDeleteRequest(group_id=blank(GroupId("g")), topics=topics)
    draw.add(ADMIN, draw.version(OffsetDeleteRequest), request)


def fetch(draw: TransactionDraw) -> None:
    version = draw.version(OffsetFetchRequest)
    add_fetch(draw, version, draw.places(), stable=not draw.rarely(3), everything=draw.rarely(3))


def add_fetch(
    draw: TransactionDraw, version: int, places: dict[str, list[int]], *, stable: bool, everything: bool
) -> None:
    request = OffsetFetchRequest(require_stable=stable)
    group: Any = blank(GroupId("g"))
    if version < _MULTIPLE_GROUPS_VERSION:
        request.group_id = group
        request.topics = [
            OffsetFetchRequestTopic(name=draw.topic_name(name), partition_indexes=indexes)
            for name, indexes in places.items()
        ]
    else:
        topics = [
            OffsetFetchRequestTopics(
                name=draw.topic_name(name), topic_id=draw.topic_id(name), partition_indexes=indexes
            )
            for name, indexes in places.items()
        ]
        request.groups = [OffsetFetchRequestGroup(group_id=group, topics=None if everything else topics)]
    draw.add(ADMIN, version, request)
