"""Moves that make a transaction: partitions and groups become part of it, and it ends."""

from typing import Any, Final

from pykraft.jepsen_like.conformance.draw import ACTORS
from pykraft.jepsen_like.conformance.producer_blanks import ProducerEpoch, ProducerId
from pykraft.jepsen_like.conformance.script import GroupId, TransactionalId, blank
from pykraft.jepsen_like.conformance.transaction_draw import OWN_IDS, TransactionDraw
from pykraft.kafka_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
)

_LAST_OF_CLIENTS: Final = 3


def add_partitions(draw: TransactionDraw, actor: int, places: list[tuple[str, int]]) -> None:
    """Soundly, by a client."""
    topics: dict[str, list[int]] = {}
    for name, index in places:
        topics.setdefault(name, []).append(index)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=blank(TransactionalId(OWN_IDS[actor])),
        v3_and_below_producer_id=blank(ProducerId(actor)),
        v3_and_below_producer_epoch=blank(ProducerEpoch(actor)),
        v3_and_below_topics=_topics(draw, topics),
    )
    draw.add(actor, draw.version(AddPartitionsToTxnRequest, most=_LAST_OF_CLIENTS), request)


def add_something(draw: TransactionDraw, actor: int) -> None:
    """By a client, or as a broker asks."""
    version = draw.version(AddPartitionsToTxnRequest)
    if version > _LAST_OF_CLIENTS:
        request = AddPartitionsToTxnRequest(transactions=_transactions(draw, actor))
    else:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=draw.transactional_id(actor),
            v3_and_below_producer_id=draw.producer_id(actor),
            v3_and_below_producer_epoch=draw.producer_epoch(actor),
            v3_and_below_topics=_topics(draw, _places(draw)),
        )
    draw.add(actor, version, request)


def _transactions(draw: TransactionDraw, actor: int) -> list[AddPartitionsToTxnTransaction]:
    """Requests of several producers, but each transactional id once: the answers would be compared in any
    order. Kafka never answers a request without any.
    """
    actors = draw.some((6, [actor]), (4, [actor, 2]))
    found: dict[str, AddPartitionsToTxnTransaction] = {}
    for one in actors:
        transactional_id = draw.transactional_id(one)
        found[repr(transactional_id)] = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=draw.producer_id(one),
            producer_epoch=draw.producer_epoch(one),
            verify_only=draw.rarely(2),
            topics=_topics(draw, _places(draw)),
        )
    return list(found.values())


def _places(draw: TransactionDraw) -> dict[str, list[int]]:
    places = draw.places(least=0 if draw.rarely(10) else 1)
    if draw.rarely(20):
        for indexes in places.values():
            indexes.append(indexes[0])
    return places


def _topics(draw: TransactionDraw, places: dict[str, list[int]]) -> list[Any]:
    return [
        AddPartitionsToTxnTopic(name=draw.topic_name(name), partitions=indexes)
        for name, indexes in places.items()
    ]


def add_offsets(draw: TransactionDraw, actor: int, *, sound: bool = False) -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id=blank(TransactionalId(OWN_IDS[actor])) if sound else draw.transactional_id(actor),
        producer_id=blank(ProducerId(actor)) if sound else draw.producer_id(actor),
        producer_epoch=blank(ProducerEpoch(actor)) if sound else draw.producer_epoch(actor),
        group_id=blank(GroupId("g")) if sound else draw.group(),
    )
    draw.add(actor, draw.version(AddOffsetsToTxnRequest), request)


def end(draw: TransactionDraw, actor: int, *, sound: bool = False) -> None:
    request = EndTxnRequest(
        transactional_id=blank(TransactionalId(OWN_IDS[actor])) if sound else draw.transactional_id(actor),
        producer_id=blank(ProducerId(actor)) if sound else draw.producer_id(actor),
        producer_epoch=blank(ProducerEpoch(actor)) if sound else draw.producer_epoch(actor),
        committed=not draw.rarely(3),
    )
    draw.add(actor, draw.version_of(actor, EndTxnRequest), request)


def end_again(draw: TransactionDraw, actor: int) -> None:
    """A retry: with the epoch that the producer had when it ended the transaction."""
    version = draw.version_of(actor, EndTxnRequest)
    older = actor in draw.newer and not draw.rarely(4)
    request = EndTxnRequest(
        transactional_id=blank(TransactionalId(OWN_IDS[actor % ACTORS])),
        producer_id=blank(ProducerId(actor, older=older)),
        producer_epoch=blank(ProducerEpoch(actor, older=older)),
        committed=not draw.rarely(2),
    )
    draw.add(actor, version, request)
