"""InitProducerId.

A fresh producer id at epoch 0, also for an idempotent producer that asks to recover one (KIP-360): a new id
is always safe. Transactional ids are refused with INVALID_REQUEST: there are no transactions yet.
"""

from __future__ import annotations

from pykraft.broker.apis.services import BrokerServices
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext


async def handle(
    services: BrokerServices, context: RequestContext, request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "transactions are not supported")
    return InitProducerIdResponse(producer_id=await services.producer_ids.next_id(), producer_epoch=0)


def build_error(request: InitProducerIdRequest, version: int, error: KafkaError) -> InitProducerIdResponse:
    # While a controller is being elected the client is told that its coordinator is loading, and retries.
    code = error.code
    if code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER):
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return InitProducerIdResponse(error_code=code)
