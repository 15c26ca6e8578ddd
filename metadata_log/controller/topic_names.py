"""Which topic names may be created."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Final, Protocol

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError

MAX_NAME_LENGTH: Final = 249
METADATA_TOPIC_NAME: Final = "__cluster_metadata"
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


class NamesInUse(Protocol):
    """A set of names, or a map by name."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def __contains__(self, name: object, /) -> bool: ...


def check_topic_name(name: str) -> None:
    """INVALID_TOPIC_EXCEPTION unless the name is legal: it becomes part of a directory name."""
    if not name:
        raise _refuse("the topic name is empty")
    if name in (".", ".."):
        raise _refuse(f"the topic name cannot be {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise _refuse(f"the topic name is longer than {MAX_NAME_LENGTH} characters")
    if _LEGAL.fullmatch(name) is None:
        raise _refuse(
            f"topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
        )
    if name == METADATA_TOPIC_NAME:
        raise _refuse(f"{name} is the name of the metadata log")


def check_collision(name: str, existing: NamesInUse) -> None:
    """INVALID_TOPIC_EXCEPTION if another name differs only in ``.`` and ``_``, which are equal in metrics."""
    parts = re.split(r"[._]", name)
    if len(parts) == 1:
        return
    # Looking up every spelling is cheaper than visiting every topic, unless there are very many spellings.
    if 2 ** (len(parts) - 1) <= len(existing):
        other = next((text for text in _iter_spellings(parts) if text != name and text in existing), None)
    else:
        folded = name.replace(".", "_")
        other = next((text for text in existing if text != name and text.replace(".", "_") == folded), None)
    if other is not None:
        raise _refuse(f"topic {name} collides with existing topic {other}: '.' and '_' count as the same")


def _iter_spellings(parts: list[str]) -> Iterator[str]:
    for separators in product("._", repeat=len(parts) - 1):
        yield parts[0] + "".join(map("".join, zip(separators, parts[1:], strict=True)))


def _refuse(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
