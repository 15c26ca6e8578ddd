"""Topic, directory and cluster ids: sixteen bytes, written as 22 url-safe base64 characters.

Ids are plain ``bytes`` so that they hash fast and go onto the wire as they are. Randomness is an
argument: the caller supplies the sixteen bytes.
"""

from __future__ import annotations

import base64
import binascii
from typing import NewType

Uuid = NewType("Uuid", bytes)

ZERO_UUID = Uuid(bytes(16))
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
RESERVED_UUIDS = frozenset({ZERO_UUID, METADATA_TOPIC_ID})


def uuid_to_str(value: Uuid) -> str:
    """The 22-character form that Kafka's tools print."""
    return base64.urlsafe_b64encode(value).decode("ascii").rstrip("=")


def uuid_from_str(text: str) -> Uuid:
    """Parse the 22-character form. :class:`ValueError` unless it decodes to exactly sixteen bytes."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a base64 id: {error}") from None
    # The decoder also accepts the letters of ordinary base64, which would give one id several texts.
    if len(raw) != 16 or len(text) > 24 or "+" in text or "/" in text:
        raise ValueError(f"{text!r} is not a 16-byte base64 id")
    return Uuid(raw)


def make_uuid(random_bytes: bytes) -> Uuid | None:
    """A type-4 id from sixteen random bytes, or None if the draw is unusable and must be repeated.

    Unusable are reserved ids and those whose text starts with ``-`` (a command line would read it as a flag).
    """
    raw = bytearray(random_bytes)
    raw[6] = (raw[6] & 0x0F) | 0x40
    raw[8] = (raw[8] & 0x3F) | 0x80
    value = Uuid(bytes(raw))
    if value in RESERVED_UUIDS or uuid_to_str(value).startswith("-"):
        return None
    return value
