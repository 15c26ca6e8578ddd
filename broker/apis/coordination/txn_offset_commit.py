"""TxnOffsetCommit: asks the transaction's coordinator, then the group's, which is on this broker (KIP-890).

Up to version 4 the client has put the group's partition of ``__consumer_offsets`` into its transaction (with
AddOffsetsToTxn), and that is only verified; from 5 on this broker puts it there. Otherwise no marker would
come for the offsets, and readers that want stable ones would wait forever. A marker that arrives before they
are written takes the verification back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pykraft.broker.apis.records.produce_transactions import is_disabled
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.logs.producers.verification import UNVERIFIED, Guard
from pykraft.coordinator.partitioning import OFFSETS_TOPIC
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.offsets import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from pykraft.kafka_protocol.records import BatchHeader, read_header
from pykraft.kafka_protocol.request_context import RequestContext

ADDS_FROM: Final = 5
"""The first version whose producers leave it to the broker to put the offsets into their transaction."""
GENERIC_ERROR_FROM: Final = 4
"""The first version whose producers know TRANSACTION_ABORTABLE."""

_TRANSLATED: Final = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
}
"""Errors of logs and of transaction coordinators, as a producer expects them of a group coordinator."""


async def handle(
    services: BrokerServices, context: RequestContext, request: TxnOffsetCommitRequest, version: int
) -> TxnOffsetCommitResponse:
    async def verify(partition: int) -> Callable[[], None]:
        try:
            return await _verify(services, request, version, partition)
        except KafkaError as error:
            raise KafkaError(_translate(error.code, version), error.message) from error

    return await services.groups.txn_offset_commit(context, request, version, verify)


async def _verify(
    services: BrokerServices, request: TxnOffsetCommitRequest, version: int, index: int
) -> Callable[[], None]:
    """Returns what raises :class:`KafkaError` once the transaction is over."""
    header = _header_of(request)
    adds = version >= ADDS_FROM
    partition = services.replicas.by_name(OFFSETS_TOPIC, index)
    guard: Guard | None = UNVERIFIED
    if adds or not is_disabled(services):
        now_ms = services.clock.monotonic_ms()
        guard = partition.begin_verification(header, now_ms, supports_epoch_bump=adds)
        if guard is not None:
            producer = request.producer_id, request.producer_epoch
            place = (OFFSETS_TOPIC, index)
            errors = await services.verifier.verify(request.transactional_id, *producer, [place], adds=adds)
            if place in errors:
                raise errors[place]

    def still_verified() -> None:
        partition.require_verified(header, guard)

    return still_verified


def _header_of(request: TxnOffsetCommitRequest) -> BatchHeader:
    """As that of the batch in which the offsets will be: producer, epoch, no sequence."""
    builder = BatchBuilder((request.producer_id, request.producer_epoch))
    builder.add(b"", None)
    return read_header(memoryview(builder.build(-1, 0)))


def _translate(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < GENERIC_ERROR_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return _TRANSLATED.get(code, code)
