"""Request and response headers, and which version of them belongs to which request.

A request header precedes the body and is all that the server can read of an unknown request. Its client id
stays a plain nullable string even in the flexible header 2. A flexible response has header 1, except
ApiVersions, whose response always has header 0: a client reads it before it knows which versions the server
supports.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from pykraft.kafka_protocol.api_keys import ApiKey, flexible_from
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.codec.tagged import skip_tagged_fields
from pykraft.kafka_protocol.framing import SIZE_BYTES
from pykraft.kafka_protocol.primitives import Buffer, ProtocolError, truncated
from pykraft.lazy_dataclass import dataclass

REQUEST_HEADER = struct.Struct(">hhih")
"""API key, version, correlation id, and the length of the client id that follows."""

CORRELATION_ID = struct.Struct(">i")


@dataclass(slots=True)  # not frozen: one is made for each request, and frozen ones take three times as long
class RequestHeader:
    """The header of every request. ``api_key`` and ``api_version`` are as sent and may be unknown."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def is_flexible(api_key: int, version: int) -> bool:
    """Whether the body of this API at this version uses the compact encoding. Unknown APIs count as not."""
    return version >= flexible_from(api_key)


def response_header_version(api_key: int, version: int) -> int:
    """0, or 1 for a flexible response; 0 for ApiVersions whatever its version."""
    return 1 if api_key != ApiKey.API_VERSIONS and is_flexible(api_key, version) else 0


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a frame (without its size prefix) and the offset at which the body starts.

    The header of an unknown API is read as a plain one, so that the refusal can name the client.
    """
    try:
        api_key, version, correlation_id, length = REQUEST_HEADER.unpack_from(frame)
    except struct.error:
        raise truncated("request header") from None
    position = REQUEST_HEADER.size
    client_id = None
    if length >= 0:
        end = position + length
        if end > len(frame):
            raise truncated("client id")
        try:
            client_id = str(frame[position:end], "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("the client id is not UTF-8") from None
        position = end
    elif length != -1:
        raise truncated("client id")
    if is_flexible(api_key, version):
        position = _skip_tags(frame, position)
    return RequestHeader(api_key, version, correlation_id, client_id), position


def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Header and body of a request, without the size prefix."""
    encoded_client_id = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(encoded_client_id)
    out = bytearray(REQUEST_HEADER.pack(message.API_KEY, version, correlation_id, length))
    out += encoded_client_id
    if is_flexible(message.API_KEY, version):
        out.append(0)
    message.encode_into(version, out)
    return bytes(out)


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header in front of a response body."""
    header = CORRELATION_ID.pack(correlation_id)
    return header + b"\0" if response_header_version(api_key, version) else header


def start_response(api_key: int, version: int, correlation_id: int) -> bytearray:
    """A response frame up to its body: room for its size, and the header."""
    frame = bytearray(_empty_start(api_key, version))
    CORRELATION_ID.pack_into(frame, SIZE_BYTES, correlation_id)
    return frame


@lru_cache
def _empty_start(api_key: int, version: int) -> bytes:
    return bytes(SIZE_BYTES) + encode_response_header(api_key, version, 0)


def decode_response_header(api_key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """The correlation id of a response frame and the offset at which the body starts."""
    if len(frame) < CORRELATION_ID.size:
        raise truncated("response header")
    (correlation_id,) = CORRELATION_ID.unpack_from(frame)
    position = CORRELATION_ID.size
    if response_header_version(api_key, version):
        position = _skip_tags(frame, position)
    return correlation_id, position


def _skip_tags(frame: Buffer, position: int) -> int:
    try:
        if frame[position] == 0:
            return position + 1
        return skip_tagged_fields(frame, position, len(frame))
    except IndexError:
        raise truncated("header tags") from None
