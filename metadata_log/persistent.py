"""The one place that names the persistent map: a dictionary whose every version stays readable.

Changing a map gives a new one that shares all but the changed path with the old, so that keeping an image
costs nothing and changing one topic among many costs microseconds. ``mutate()`` opens a private builder for
many changes; ``finish()`` closes it.

Iteration order depends on hashes, which differ between processes: where the order can be seen from outside
(records, requests, logs), iterate ``sorted(...)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TypeVar

from immutables import Map, MapMutation

__all__ = ["Map", "MapMutation", "drain", "freeze"]

K = TypeVar("K")
V = TypeVar("V")


def freeze(mapping: Mapping[K, V]) -> Map[K, V]:
    """A persistent copy of any mapping."""
    return Map(mapping)


_DRAINED_AT_ONCE = 64


def drain(mapping: Map[K, V]) -> Iterator[tuple[K, V]]:
    """The items of a map, letting go of what was yielded.

    For walks that take many turns of the event loop, while the current version parts from this one: an old
    version of a million entries that is dropped at the end of a walk takes seconds to be freed, in one piece.
    """
    while mapping:
        items = list(islice(mapping.items(), _DRAINED_AT_ONCE))
        with mapping.mutate() as left:
            for key, _ in items:
                del left[key]
            mapping = left.finish()
        yield from items
