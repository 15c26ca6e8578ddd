"""Finds out what is needed of a sequence: first by halves, then one by one."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def minimise(items: Sequence[T], still: Callable[[Sequence[T]], bool], at_least: int = 1) -> Sequence[T]:
    """``items`` without all that ``still`` does without; ``at_least`` are kept. ``still(items)`` holds."""
    size = max(len(items) // 2, 1)
    while True:
        start = 0
        while start < len(items):
            fewer = [*items[:start], *items[start + size :]]
            if len(fewer) >= at_least and still(fewer):
                items = fewer
            else:
                start += size
        if size == 1:
            return items
        size //= 2
