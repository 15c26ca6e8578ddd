"""DescribeTransactions (65): the transactions of some transactional ids, with their partitions (KIP-664)."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, array, int16, int32, int64, message, string, struct


@message(65, versions="0", flexible="0+")
class DescribeTransactionsRequest(Message):
    transactional_ids: list[str] = array("string")


@struct
class TopicData:
    topic: str = string()
    partitions: list[int] = array("int32")


@struct
class DescribedTransaction:
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


@message(65, versions="0", flexible="0+")
class DescribeTransactionsResponse(Message):
    throttle_time_ms: int = int32()
    transaction_states: list[DescribedTransaction] = array(DescribedTransaction)
