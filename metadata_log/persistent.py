"""The one place that names the persistent map: a dictionary whose every version stays readable.

Changing a map returns a new one that shares all but the changed path with the old one, so that keeping an
image costs nothing and changing one topic among many costs microseconds. ``mutate()`` opens a private builder
for many changes; ``finish()`` closes it.

Iteration order depends on hashes, which differ between processes: where the order can be seen from outside
(records, requests, logs), iterate ``sorted(...)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

from immutables import Map, MapMutation

__all__ = ["Map", "MapMutation", "drain"]

K = TypeVar("K")
V = TypeVar("V")


_DRAINED_AT_ONCE = 64


def drain(mapping: Map[K, V]) -> Iterator[tuple[K, V]]:
    """The items of a map; each part of the map is freed after it was yielded.

    For walks that take many turns of the event loop, while the current version diverges from this one:
    freeing an old version of a million entries at once, at the end of a walk, takes seconds.
    """
    while mapping:
        items = list(islice(mapping.items(), _DRAINED_AT_ONCE))
        with mapping.mutate() as left:
            for key, _ in items:
                del left[key]
            mapping = left.finish()
        yield from items
