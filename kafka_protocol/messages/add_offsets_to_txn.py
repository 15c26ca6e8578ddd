"""AddOffsetsToTxn (25): enrol a group's offsets in a transaction."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, int16, int32, int64, message, string


@message(25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Message):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message(25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
