"""The length limit of names that clients choose.

A record's key and the members of a classic group hold strings with 16-bit lengths, while requests may carry
longer ones. Those are refused on arrival, so that nothing enters memory that could not be written to the log.
"""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError

MAX_NAME_BYTES = 0x7FFF


def check_names(*names: str | None, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
    """:class:`KafkaError` with ``code`` if a name does not fit into a record."""
    for name in names:
        if name is not None and len(name.encode("utf-8")) > MAX_NAME_BYTES:
            raise KafkaError(code, f"{name[:50]!r}... is longer than {MAX_NAME_BYTES} bytes.")
