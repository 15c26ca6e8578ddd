"""Markers that no coordinator has sent."""

from pykraft.jepsen_like.conformance.draw import ADMIN
from pykraft.jepsen_like.conformance.producer_blanks import STRANGER_ID, ProducerEpoch, ProducerId
from pykraft.jepsen_like.conformance.script import blank
from pykraft.jepsen_like.conformance.transaction_draw import TransactionDraw
from pykraft.kafka_protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


def write(draw: TransactionDraw) -> None:
    actors = draw.subset(range(2), least=1) if draw.rarely(4) else [draw.actor()]
    request = WriteTxnMarkersRequest(markers=[_marker(draw, actor) for actor in actors])
    draw.add(ADMIN, draw.version(WriteTxnMarkersRequest), request)


def _marker(draw: TransactionDraw, actor: int) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=draw.some((16, blank(ProducerId(actor))), (1, STRANGER_ID + actor)),
        producer_epoch=draw.some(
            (8, blank(ProducerEpoch(actor))),
            (4, blank(ProducerEpoch(actor, 1))),
            (4, blank(ProducerEpoch(actor, -1))),
            (1, 0),
        ),
        transaction_result=draw.rarely(2),
        topics=[
            WritableTxnMarkerTopic(name=draw.topic_name(name), partition_indexes=indexes)
            for name, indexes in draw.places().items()
        ],
        coordinator_epoch=draw.some((20, 0), (3, -1), (1, 1)),
        transaction_version=draw.some((1, 0), (1, 1), (3, 2)),
    )
