"""Whether an answer is one: decodable, and without the error that stands for a bug."""

import struct
from typing import Any, Final

from pykraft.jepsen_like.simulation.fuzz.connection import KEPT_BYTES
from pykraft.jepsen_like.simulation.fuzz.drawing import DAMAGED, Drawn
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.headers import decode_response_header, encode_request
from pykraft.kafka_protocol.messages.cluster import ApiVersionsRequest
from pykraft.kafka_protocol.primitives import ProtocolError

PROBE: Final = 0x7F000000
"""The first correlation id of the requests that tell whether what precedes them has been answered."""


def encode_probe(number: int) -> bytes:
    return encode_request(ApiVersionsRequest(), 0, PROBE + number, None)


def what_is_wrong(drawn: Drawn, head: bytes, size_bytes: int) -> str | None:
    """Check the first answer behind a request, whose ``head`` is known; None if it is right.

    A damaged request may be one of another API or version: its answer is not read.
    """
    if size_bytes > KEPT_BYTES or struct.unpack_from(">i", head)[0] >= PROBE or drawn.what == DAMAGED:
        return None
    try:
        _, at = decode_response_header(drawn.api.key, drawn.version, head)
        response = drawn.api.response.decode(head[at:], drawn.version)
    except ProtocolError as error:
        return f"is answered with what is malformed: {error.message}"
    return "is answered with UNKNOWN_SERVER_ERROR" if _has_unknown_error(response) else None


def _has_unknown_error(value: Any) -> bool:
    for spec in value.FIELDS:
        held = getattr(value, spec.name)
        if spec.name == "error_code" and held == ErrorCode.UNKNOWN_SERVER_ERROR:
            return True
        if spec.kind == "struct" and held is not None and _has_unknown_error(held):
            return True
        is_of_structs = spec.kind == "array" and isinstance(spec.element, type)
        if is_of_structs and any(_has_unknown_error(item) for item in held or ()):
            return True
    return False
