"""SaslAuthenticate (36): one step of the SASL exchange. Version 1 adds the session's lifetime (KIP-368)."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, byte_string, int16, int64, message, string


@message(36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Message):
    auth_bytes: bytes = byte_string()


@message(36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse(Message):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = byte_string()
    session_lifetime_ms: int = int64("1+")
