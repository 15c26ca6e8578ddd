"""Long lists, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")
U = TypeVar("U")

PAGE_SIZE: Final = 100
MOST_PAGES: Final = 1_000_000


class ListPage(NamedTuple, Generic[T]):
    """``items`` of ``total`` there are. Pages are counted from 1; one after the last is empty."""

    items: Sequence[T]
    number: int
    size: int
    total: int

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // self.size))

    @property
    def first(self) -> int:
        """The number of the first item, from 1; 0 on an empty page."""
        return (self.number - 1) * self.size + 1 if self.items else 0

    @property
    def last(self) -> int:
        return self.first + len(self.items) - 1 if self.items else 0

    def of(self, items: Sequence[U]) -> ListPage[U]:
        """The same page of other items."""
        return ListPage(items, self.number, self.size, self.total)


def page_of(items: Sequence[T], number: int, size: int = PAGE_SIZE) -> ListPage[T]:
    first = (number - 1) * size
    return ListPage(items[first : first + size], number, size, len(items))
