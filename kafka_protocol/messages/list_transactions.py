"""ListTransactions (66): the transactional ids that this broker coordinates (KIP-664).

Version 1 filters by how long transactions have been open (KIP-994), 2 by a regular expression (KIP-1152). An
empty filter, or a negative duration, selects every transaction.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, array, int16, int32, int64, message, string, struct


@message(66, versions="0-2", flexible="0+")
class ListTransactionsRequest(Message):
    state_filters: list[str] = array("string", distinct=True)
    producer_id_filters: list[int] = array("int64", distinct=True)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


@struct
class ListedTransaction:
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@message(66, versions="0-2", flexible="0+")
class ListTransactionsResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array("string")
    transaction_states: list[ListedTransaction] = array(ListedTransaction)
