"""Moves of producers: their ids, and what they produce, in transactions or not."""

from typing import Any, Final

from pykraft.jepsen_like.conformance.draw import ACTORS
from pykraft.jepsen_like.conformance.producer_blanks import (
    STRANGER_ID,
    Batch,
    ProducerEpoch,
    ProducerId,
)
from pykraft.jepsen_like.conformance.script import TransactionalId, blank
from pykraft.jepsen_like.conformance.transaction_draw import OWN_IDS, PLACES, TransactionDraw
from pykraft.kafka_protocol.messages.records import PartitionProduceData, ProduceRequest, TopicProduceData
from pykraft.kafka_protocol.messages.transactions import InitProducerIdRequest

TIMEOUT_MS: Final = 600_000
_MAX_TIMEOUT_MS: Final = 900_000
_RECOVERS_FROM: Final = 3


def init(draw: TransactionDraw, actor: int) -> None:
    """A producer begins, recovers with what it has, or asks with something odd."""
    version = draw.version(InitProducerIdRequest)
    request = InitProducerIdRequest(
        transactional_id=draw.some((30, draw.transactional_id(actor)), (2, None)),
        transaction_timeout_ms=draw.some(
            (40, TIMEOUT_MS), (1, 0), (1, -1), (1, _MAX_TIMEOUT_MS), (1, _MAX_TIMEOUT_MS + 1), (1, 2**31 - 1)
        ),
    )
    if version >= _RECOVERS_FROM and draw.rarely(3):
        request.producer_id, request.producer_epoch = _named_producer(draw, actor)
    draw.add(actor, version, request)


def _named_producer(draw: TransactionDraw, actor: int) -> tuple[Any, Any]:
    own, epoch = blank(ProducerId(actor)), blank(ProducerEpoch(actor))
    return draw.some(
        (12, (own, epoch)),
        (4, (own, blank(ProducerEpoch(actor, -1)))),
        (2, (own, blank(ProducerEpoch(actor, 1)))),
        (1, (own, -1)),
        (1, (-1, epoch)),
        (2, (blank(ProducerId(actor, older=True)), blank(ProducerEpoch(actor, older=True)))),
        (1, (blank(ProducerId((actor + 1) % ACTORS)), epoch)),
        (1, (STRANGER_ID, 0)),
        (1, (draw.producer_id(actor), draw.producer_epoch(actor))),
    )


def init_plainly(draw: TransactionDraw, actor: int, timeout_ms: int = TIMEOUT_MS) -> None:
    """As a client does that starts."""
    request = InitProducerIdRequest(transactional_id=_own(actor), transaction_timeout_ms=timeout_ms)
    draw.add(actor, draw.version(InitProducerIdRequest), request)


def init_idempotent(draw: TransactionDraw, actor: int) -> None:
    draw.add(
        actor,
        draw.version(InitProducerIdRequest),
        InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=draw.some((3, TIMEOUT_MS), (1, -1))
        ),
    )


def _own(actor: int) -> Any:
    return blank(TransactionalId(OWN_IDS[actor]))


def produce(draw: TransactionDraw, actor: int, places: list[tuple[str, int]]) -> None:
    """Soundly, as part of a transaction."""
    _send(draw, actor, places, transactional=True, sound=True)


def produce_something(draw: TransactionDraw, actor: int) -> None:
    places = draw.subset(PLACES, least=1) if draw.rarely(3) else [draw.rng.choice(PLACES)]
    _send(draw, actor, places, transactional=not draw.rarely(8), sound=draw.rarely(3))


def _send(
    draw: TransactionDraw, actor: int, places: list[tuple[str, int]], *, transactional: bool, sound: bool
) -> None:
    data: dict[str, list[PartitionProduceData]] = {}
    common = {} if sound else _oddities(draw, actor)
    for name, index in places:
        count = draw.some((4, 1), (2, 2), (1, 3))
        batch = Batch(actor, name, index, draw.records, count, transactional=transactional, **common)
        draw.records += count
        data.setdefault(name, []).append(PartitionProduceData(index=index, records=blank(batch)))
    request = ProduceRequest(
        transactional_id=_own(actor) if sound or not draw.rarely(12) else draw.transactional_id(actor),
        acks=-1 if sound else draw.some((20, -1), (1, 1)),
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(name=draw.topic_name(name), topic_id=draw.topic_id(name), partition_data=parts)
            for name, parts in data.items()
        ],
    )
    if not transactional and not draw.rarely(3):
        request.transactional_id = None
    if not sound and draw.rarely(30):
        request.transactional_id = None
    draw.add(actor, draw.version_of(actor, ProduceRequest), request)


def _oddities(draw: TransactionDraw, actor: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "gap": draw.some((16, 0), (2, 1), (2, -1), (1, -2), (1, 5), (1, -6)),
        "epoch_more": draw.some((20, 0), (2, -1), (2, 1)),
        "producer": draw.some((20, None), (1, (actor + 1) % ACTORS)),
    }
    if draw.rarely(30):
        found["gap"] = None
    return found
