"""The APIs that the transaction coordinator on this broker answers."""

from __future__ import annotations

from pykraft.broker.apis.services import BrokerServices
from pykraft.kafka_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from pykraft.kafka_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from pykraft.kafka_protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from pykraft.kafka_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from pykraft.kafka_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pykraft.kafka_protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext


async def init_producer_id(
    services: BrokerServices, context: RequestContext, request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse:
    return await services.transactions.init_producer_id(request, version)


async def add_partitions(
    services: BrokerServices, context: RequestContext, request: AddPartitionsToTxnRequest, version: int
) -> AddPartitionsToTxnResponse:
    return await services.transactions.add_partitions(request, version)


async def add_offsets(
    services: BrokerServices, context: RequestContext, request: AddOffsetsToTxnRequest, version: int
) -> AddOffsetsToTxnResponse:
    partition = services.groups.partition_for(request.group_id)
    return await services.transactions.add_offsets(request, version, partition)


async def end_txn(
    services: BrokerServices, context: RequestContext, request: EndTxnRequest, version: int
) -> EndTxnResponse:
    return await services.transactions.end_txn(request, version)


async def describe_transactions(
    services: BrokerServices, context: RequestContext, request: DescribeTransactionsRequest, version: int
) -> DescribeTransactionsResponse:
    return await services.transactions.describe_transactions(request, version)


async def list_transactions(
    services: BrokerServices, context: RequestContext, request: ListTransactionsRequest, version: int
) -> ListTransactionsResponse:
    return await services.transactions.list_transactions(request, version)
