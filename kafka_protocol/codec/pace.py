"""Reading and writing a large message in slices, so that it holds nothing else up.

The compiled functions (``decode_plan``, ``encode_plan``) pause after so many bytes. A reader also counts the
elements of a message's arrays before objects are made of them: one of two bytes becomes an object of a
hundred and more.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, TypeVar

from pykraft.kafka_protocol.primitives import ProtocolError

MAX_ITEMS: Final = 120_000
"""The elements of all arrays of a request: the topics and partitions of a cluster that has 10,000 topics with
100,000 partitions can be named once.
"""

SLICE_BYTES: Final = 8 << 10
"""Bytes of a message between two pauses: two milliseconds of work where they hold the smallest elements."""

FREED_AT_ONCE: Final = 1_000
"""Elements of a message, between two pauses: a millisecond or less."""

T = TypeVar("T")


def at_once(work: Generator[None, None, T]) -> T:
    """Run ``work`` without a pause and return its result: for what is small."""
    try:
        while True:
            next(work)
    except StopIteration as end:
        result: T = end.value
        return result


def let_go(items: list[Any]) -> Generator[None, None, None]:
    """Empty a list that nobody else needs: a hundred thousand objects are not freed within a turn."""
    while items:
        del items[-FREED_AT_ONCE:]
        yield


def forget(keys: set[Any]) -> Generator[None, None, None]:
    """As :func:`let_go`, for the keys that a large list was searched by."""
    while len(keys) > FREED_AT_ONCE:
        for _ in range(FREED_AT_ONCE):
            keys.pop()
        yield


class TooManyItemsError(ProtocolError):
    """A message has more elements than its reader allows."""


MAX_LISTS: Final = 20_000
"""The arrays of a message, those that are null included. Each topic has one, in which its partitions are."""


class ItemCount:
    """The room left for a message's arrays, and for the elements of all of them together."""

    __slots__ = ("_left", "_lists", "_most")

    def __init__(self, most: int) -> None:
        self._left = self._most = most
        self._lists = MAX_LISTS

    def add(self, items: int) -> None:
        """Account for an array. :class:`TooManyItemsError` if there are too many of them, or of elements."""
        self._left -= items
        if self._left < 0:
            raise TooManyItemsError(f"more than {self._most} items")
        self._lists -= 1
        if self._lists < 0:
            raise TooManyItemsError(f"more than {MAX_LISTS} lists")
