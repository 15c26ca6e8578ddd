"""Descriptions by name: each is made once, however often a request names it.

A group with thousands of members, named again and again in some bytes, is an answer of any length: it is
described and encoded once, and is in memory once until it has been sent.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Final

from pykraft.kafka_protocol.codec.pace import let_go
from pykraft.kafka_protocol.codec.schema import EncodedElements
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError

MOST_REPEATED_BYTES: Final = 16 << 20
"""What an answer may say again: the connection is held until all of it has been sent."""


_AT_ONCE: Final = 5_000
"""Names of a request: less than a millisecond."""


def each_once(names: Sequence[str]) -> Generator[None, None, list[str]]:
    """The names in order, without those that have come before; yields between slices."""
    seen: dict[str, None] = {}
    for start in range(0, len(names), _AT_ONCE):
        seen.update(dict.fromkeys(names[start : start + _AT_ONCE]))
        yield
    return list(seen)


def as_named(names: list[str], described: Mapping[str, bytes]) -> Generator[None, None, EncodedElements]:
    """The array of an answer, in the order of the request; yields between slices.

    ``described``: the element of each name, encoded. Nobody else needs ``names``: they are let go.
    INVALID_REQUEST if the answer would repeat more than :data:`MOST_REPEATED_BYTES`.
    """
    answer = EncodedElements()
    said_bytes = 0
    for start in range(0, len(names), _AT_ONCE):
        some = [described[name] for name in names[start : start + _AT_ONCE]]
        said_bytes += sum(map(len, some))
        answer += some
        yield
    repeated_bytes = said_bytes - sum(map(len, described.values()))
    if repeated_bytes > MOST_REPEATED_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{repeated_bytes} bytes of the answer would say the same again"
        )
    yield from let_go(names)
    return answer
