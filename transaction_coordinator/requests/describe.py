"""DescribeTransactions: one transactional id as an administrator sees it (KIP-664). Read-only.

All topics are shown: which of them a client may describe is not checked, since there is no authorization yet.
"""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.transactions import DescribedTransaction, TopicData
from pykraft.transaction_coordinator.call import Call
from pykraft.transaction_coordinator.log.codec import by_topic
from pykraft.transaction_coordinator.result import CoordinatorResult
from pykraft.transaction_coordinator.state import ShardState


def handle_describe(
    state: ShardState, transactional_id: str, call: Call
) -> CoordinatorResult[DescribedTransaction]:
    """For one id of a request, which may name several; an error is in its part of the answer."""
    if not transactional_id:
        return CoordinatorResult(build_failure(transactional_id, ErrorCode.INVALID_REQUEST))
    found = state.transactions.get(transactional_id)
    if found is None:
        return CoordinatorResult(build_failure(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
    return CoordinatorResult(
        DescribedTransaction(
            transactional_id=transactional_id,
            transaction_state=found.state.label,
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.start_timestamp_ms,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            topics=[
                TopicData(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(found.partitions).items()
            ],
        )
    )


def build_failure(transactional_id: str, code: ErrorCode) -> DescribedTransaction:
    return DescribedTransaction(error_code=code, transactional_id=transactional_id)
