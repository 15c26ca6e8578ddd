"""InitProducerId (22): hand out a producer id and epoch, or bump the epoch of a known one.

Every idempotent producer asks for this, transactional or not. Version 3 lets a producer name its current id
and epoch (KIP-360). Version 6, two-phase commit, is not stable in Kafka and not served.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, int16, int32, int64, message, string


@message(22, versions="0-5", flexible="2+")
class InitProducerIdRequest(Message):
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


@message(22, versions="0-5", flexible="2+")
class InitProducerIdResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
