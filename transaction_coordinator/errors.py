"""The refusals that several requests share, and the one code that depends on the version of a request."""

from __future__ import annotations

from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from pykraft.transaction_coordinator.log.codec import MAX_TRANSACTIONAL_ID_BYTES
from pykraft.transaction_coordinator.state import ShardState
from pykraft.transaction_coordinator.transaction import Transaction

_KNOWS_FENCED_FROM: Final = {
    InitProducerIdRequest.API_KEY: 4,
    AddPartitionsToTxnRequest.API_KEY: 2,
    AddOffsetsToTxnRequest.API_KEY: 2,
    EndTxnRequest.API_KEY: 2,
}
"""The first versions with PRODUCER_FENCED (KIP-588). Older clients take INVALID_PRODUCER_EPOCH as fatal."""


def producer_fenced(api_key: int, version: int, transactional_id: str) -> KafkaError:
    """Another producer has taken over the transactional id."""
    knows = version >= _KNOWS_FENCED_FROM[api_key]
    return KafkaError(
        ErrorCode.PRODUCER_FENCED if knows else ErrorCode.INVALID_PRODUCER_EPOCH,
        f"There is a newer producer with the transactional id {transactional_id}.",
    )


def concurrent_transactions(transactional_id: str) -> KafkaError:
    """The last transaction of the id is not complete: try again."""
    return KafkaError(
        ErrorCode.CONCURRENT_TRANSACTIONS, f"A transaction of {transactional_id} is being completed."
    )


def check_transactional_id(transactional_id: str) -> None:
    """INVALID_REQUEST for an id that is empty, or does not fit into the key of a record."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
    if len(transactional_id.encode("utf-8")) > MAX_TRANSACTIONAL_ID_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{transactional_id[:50]!r}... is longer than {MAX_TRANSACTIONAL_ID_BYTES} bytes.",
        )


def find_transaction(state: ShardState, transactional_id: str) -> Transaction:
    """The value of an id; INVALID_PRODUCER_ID_MAPPING if it is not known here."""
    check_transactional_id(transactional_id)
    found = state.transactions.get(transactional_id)
    if found is None:
        raise other_producer_id(transactional_id)
    return found


def other_producer_id(transactional_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"The producer id is not the one of the transactional id {transactional_id}.",
    )
