"""UnregisterBroker (64): remove the registration of a broker that will not come back."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, int16, int32, message, string


@message(64, versions="0", flexible="0+")
class UnregisterBrokerRequest(Message):
    broker_id: int = int32()


@message(64, versions="0", flexible="0+")
class UnregisterBrokerResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
