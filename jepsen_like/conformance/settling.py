"""Answers that stem from how fast a system is: a client tries again, and so does the player."""

from typing import Any, Final

from pykraft.jepsen_like.conformance.script import Step
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.offsets import TxnOffsetCommitRequest
from pykraft.kafka_protocol.messages.records import ProduceRequest
from pykraft.kafka_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)

PAUSE_S: Final = 0.02
"""Between one try and the next."""
SETTLED_S: Final = 1.0
"""An answer that is still the same after so long does not stem from speed; the grace of a run is added to it
some times over (:data:`GRACES`).
"""
GRACES: Final = 5
SOON_MS: Final = 2_000
"""A transaction with a shorter timeout is waited for (:attr:`.Step.until_ended`)."""
ENDED_S: Final = 15.0

_REQUESTS: Final = (
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
_EARLY: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
_DECIDED: Final = ("PrepareCommit", "PrepareAbort")


def is_early(step: Step, answer: Message) -> bool:
    """Whether another answer is to be expected a little later."""
    if step.until_ended:
        return isinstance(answer, DescribeTransactionsResponse) and any(
            is_open(one) and one.transaction_timeout_ms < SOON_MS for one in answer.transaction_states
        )
    if isinstance(step.request, ProduceRequest):
        return bool(_codes(answer) & (_EARLY | {ErrorCode.NOT_ENOUGH_REPLICAS}))
    return isinstance(step.request, _REQUESTS) and bool(_codes(answer) & _EARLY)


def is_open(transaction: DescribedTransaction) -> bool:
    return transaction.transaction_state == "Ongoing" or is_decided(transaction)


def is_decided(transaction: DescribedTransaction) -> bool:
    """Whether its markers are being written."""
    return transaction.transaction_state in _DECIDED


def _codes(value: Any) -> set[int]:
    if isinstance(value, list):
        return set().union(*map(_codes, value)) if value else set()
    if not hasattr(value, "FIELDS"):
        return set()
    codes = set()
    for spec in value.FIELDS:
        if spec.name.endswith("error_code"):
            codes.add(getattr(value, spec.name))
        else:
            codes |= _codes(getattr(value, spec.name))
    return codes
