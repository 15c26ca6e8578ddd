"""The APIs that the transaction coordinator on this broker answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.serving.api import Handler, Q, R
from pykraft.kafka_protocol.messages.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.transaction_coordinator.service import TransactionCoordinatorService


def ask(
    method: Callable[[TransactionCoordinatorService, Q, int], Awaitable[R]],
) -> Handler[BrokerServices, Q, R]:
    """A handler that passes the request to the coordinator."""

    def handle(services: BrokerServices, context: RequestContext, request: Q, version: int) -> Awaitable[R]:
        return method(services.transactions, request, version)

    return handle


def add_offsets(
    services: BrokerServices, context: RequestContext, request: AddOffsetsToTxnRequest, version: int
) -> Awaitable[AddOffsetsToTxnResponse]:
    partition = services.groups.partition_for(request.group_id)
    return services.transactions.add_offsets(request, version, partition)
