"""SaslHandshake (17): choose a SASL mechanism. From version 1 SaslAuthenticate carries the tokens."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, array, int16, message, string


@message(17, versions="0-1")
class SaslHandshakeRequest(Message):
    mechanism: str = string()


@message(17, versions="0-1")
class SaslHandshakeResponse(Message):
    error_code: int = int16()
    mechanisms: list[str] = array("string")
