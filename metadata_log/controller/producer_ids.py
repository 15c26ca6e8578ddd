"""Producer ids are allocated to brokers in blocks; a block is never allocated twice (KIP-730)."""

from __future__ import annotations

from typing import Final

from pykraft.metadata_log.controller.calls.requests import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from pykraft.metadata_log.controller.cluster_control import check_broker_epoch
from pykraft.metadata_log.controller.result import ControllerResult
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.records import ProducerIdsRecord

BLOCK_LENGTH: Final = 1000


def handle_allocate_producer_ids(
    image: MetadataImage, request: AllocateProducerIdsRequest
) -> ControllerResult[AllocateProducerIdsResponse]:
    """The next block; the response waits for the commit, so no other broker can ever get it."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    start = image.next_producer_id
    assert start + BLOCK_LENGTH < 1 << 63, "out of producer ids"
    record = ProducerIdsRecord(request.broker_id, request.broker_epoch, start + BLOCK_LENGTH)
    return ControllerResult((record,), AllocateProducerIdsResponse(start, BLOCK_LENGTH))
