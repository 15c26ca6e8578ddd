"""The length limit of names that clients choose, and how very many of them are sorted.

A record's key and the members of a classic group hold strings with 16-bit lengths, while requests may carry
longer ones. Those are refused on arrival, so that nothing enters memory that could not be written to the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError

MAX_NAME_BYTES = 0x7FFF

SORTED_AT_ONCE = 2_000
"""Some 1.5 ms."""


def check_names(*names: str | None, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
    """:class:`KafkaError` with ``code`` if a name does not fit into a record."""
    for name in names:
        if name is not None and len(name.encode("utf-8")) > MAX_NAME_BYTES:
            raise KafkaError(code, f"{name[:50]!r}... is longer than {MAX_NAME_BYTES} bytes.")


def check_group_id(group_id: str) -> None:
    """INVALID_GROUP_ID for an empty id, which only offsets may be committed for."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")


def sorted_runs(
    names: Iterable[str], is_wanted: Callable[[str], bool] = lambda name: True
) -> Iterator[list[str]]:
    """Those that are wanted of some of the names at a time, sorted: :func:`heapq.merge` has all in order."""
    left = iter(names)
    while some := list(islice(left, SORTED_AT_ONCE)):
        yield sorted(filter(is_wanted, some))
