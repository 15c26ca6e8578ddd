"""A long immutable sequence of which one item can be replaced without copying all the others.

Up to :data:`PLAIN_MAX` partitions of a topic are a plain tuple. More are kept in chunks: changing one
partition then copies one chunk and the list of chunks, not a hundred thousand pointers. The form of a
sequence depends on its length alone, so that equal sequences compare equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, Generic, TypeVar, overload

PLAIN_MAX: Final = 512
CHUNK: Final = 256

T = TypeVar("T")


class Chunked(Sequence[T], Generic[T]):
    """Chunks of exactly :data:`CHUNK` items; the last has at least one. Made by :func:`updated`."""

    __slots__ = ("_chunks", "_length")

    def __init__(self, chunks: tuple[tuple[T, ...], ...], length: int) -> None:
        self._chunks = chunks
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self[position] for position in range(*index.indices(self._length)))
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError("index out of range")
        return self._chunks[index // CHUNK][index % CHUNK]

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._chunks)

    def __eq__(self, other: object) -> bool:
        # Chunks that two versions share are compared by identity.
        return self._chunks == other._chunks if isinstance(other, Chunked) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._chunks)

    def __repr__(self) -> str:
        return f"Chunked({list(self)!r})"

    def _updated(self, changed: Mapping[int, T], added: Sequence[T]) -> Chunked[T]:
        chunks = list(self._chunks)
        opened: dict[int, list[T]] = {}
        for index, item in changed.items():
            number = index // CHUNK
            if number not in opened:
                opened[number] = list(chunks[number])
            opened[number][index % CHUNK] = item
        for number, items in opened.items():
            chunks[number] = tuple(items)
        if added:
            last = () if len(chunks[-1]) == CHUNK else chunks.pop()
            chunks.extend(_split((*last, *added)))
        return Chunked(tuple(chunks), self._length + len(added))


def sequence_of(items: Iterable[T]) -> Sequence[T]:
    """The items as a tuple, or in chunks if there are more than :data:`PLAIN_MAX`."""
    plain = tuple(items)
    return plain if len(plain) <= PLAIN_MAX else Chunked(tuple(_split(plain)), len(plain))


def updated(items: Sequence[T], changed: Mapping[int, T], added: Sequence[T]) -> Sequence[T]:
    """``items`` (a result of this module) with some replaced, by index, and others added at the end."""
    if isinstance(items, Chunked):
        return items._updated(changed, added)
    if not items:
        return sequence_of(added)
    plain = list(items)
    for index, item in changed.items():
        plain[index] = item
    plain.extend(added)
    return sequence_of(plain)


def _split(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]
