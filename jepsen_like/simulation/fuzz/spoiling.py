"""Frames of requests that no client sends: bytes are damaged, and tagged fields are unknown."""

import struct
from random import Random
from typing import Any

from pykraft.broker.serving.api import Api
from pykraft.kafka_protocol.codec.tagged import MAX_TAGGED_FIELDS
from pykraft.kafka_protocol.primitives import write_uvarint


def with_unknown_tags(rng: Random, api: Api[Any, Any, Any], version: int, frame: bytes) -> bytes:
    """Some, as many as are allowed, or more, at the end of the body, or in the header."""
    if version < api.request.FLEXIBLE_FROM:
        return frame
    count = rng.choice((1, 3, MAX_TAGGED_FIELDS, MAX_TAGGED_FIELDS + 1, 300_000))
    tags = bytearray()
    write_uvarint(tags, count)
    for number in range(count):
        write_uvarint(tags, 1000 + number)
        tags.append(0)
    if rng.random() < 0.5:
        return frame[:-1] + bytes(tags)
    (client_id_bytes,) = struct.unpack_from(">h", frame, 8)
    at = 10 + max(0, client_id_bytes)
    return frame[:at] + bytes(tags) + frame[at + 1 :]


def damaged(rng: Random, frame: bytes) -> bytes:
    """Cut short, or with some other bytes; seldom in the API or version."""
    spoiled = bytearray(frame)
    if rng.random() < 0.3:
        return bytes(spoiled[: rng.randint(0, len(spoiled))])
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(4 if rng.random() < 0.9 else 0, len(spoiled))
        spoiled[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(spoiled)
