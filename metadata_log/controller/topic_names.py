"""Which topic names may be created."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError

MAX_NAME_LENGTH: Final = 249
METADATA_TOPIC_NAME: Final = "__cluster_metadata"
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """INVALID_TOPIC_EXCEPTION unless the name is legal: it becomes part of a directory's name."""
    if not name:
        raise _refuse("the topic name is empty")
    if name in (".", ".."):
        raise _refuse(f"the topic name cannot be {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise _refuse(f"the topic name is longer than {MAX_NAME_LENGTH} characters")
    if _LEGAL.fullmatch(name) is None:
        raise _refuse(
            f"topic name {name!r} holds other characters than ASCII letters, digits, '.', '_' and '-'"
        )
    if name == METADATA_TOPIC_NAME:
        raise _refuse(f"{name} is the metadata log's own name")


def check_collision(name: str, existing: Iterable[str]) -> None:
    """INVALID_TOPIC_EXCEPTION if another name differs only in ``.`` for ``_``: metrics confuse the two."""
    if "." not in name and "_" not in name:
        return
    folded = name.replace(".", "_")
    for other in existing:
        if other != name and other.replace(".", "_") == folded:
            raise _refuse(f"topic {name} collides with existing topic {other}: '.' and '_' count as the same")


def _refuse(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
