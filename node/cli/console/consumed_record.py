"""A record as it is printed: what the formatters of ``pykraft consumer`` take."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from pykraft.lazy_dataclass import dataclass

_TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}
_Headers = list[tuple[str, bytes | None]] | None


class UnprintableError(Exception):
    """A record that a formatter cannot print; the message says which, and why."""


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """``timestamp_type`` None: the record has no timestamp; ``leader_epoch`` None: it is not known."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    timestamp_type: str | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]
    key: bytes | None
    value: bytes | None


Formatter = Callable[[ConsumedRecord], bytes]
"""All that is printed of a record, its end of line included. :class:`UnprintableError`."""


def consumed_record(message: Message) -> ConsumedRecord:
    kind, timestamp_ms = message.timestamp()
    return ConsumedRecord(
        topic=cast(str, message.topic()),
        partition=cast(int, message.partition()),
        offset=cast(int, message.offset()),
        leader_epoch=message.leader_epoch(),
        timestamp_type=_TIMESTAMP_TYPES.get(kind),
        timestamp_ms=timestamp_ms,
        headers=tuple(cast(_Headers, message.headers()) or ()),
        key=message.key(),
        value=message.value(),
    )
