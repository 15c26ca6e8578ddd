"""The one place that names the persistent map: a dictionary whose every version stays readable.

Changing a map gives a new one that shares all but the changed path with the old, so that keeping an image
costs nothing and changing one topic among many costs microseconds. ``mutate()`` opens a private builder for
many changes; ``finish()`` closes it.

Iteration order depends on hashes, which differ between processes: where the order can be seen from outside
(records, requests, logs), iterate ``sorted(...)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from immutables import Map, MapMutation

__all__ = ["Map", "MapMutation", "freeze"]

K = TypeVar("K")
V = TypeVar("V")


def freeze(mapping: Mapping[K, V]) -> Map[K, V]:
    """A persistent copy of any mapping."""
    return Map(mapping)
