"""EndTxn (26): commit or abort a transaction. Version 5 answers with the bumped producer epoch (KIP-890)."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, boolean, int16, int32, int64, message, string


@message(26, versions="0-5", flexible="3+")
class EndTxnRequest(Message):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message(26, versions="0-5", flexible="3+")
class EndTxnResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)
