"""Batches and records as rows of arrays, which tasks exchange: in buckets of a range of offsets of one log.

A bucket is compared as a whole, by numpy; nothing is held of more than one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.void]
Bucket = tuple[int, int]
"""The number of a log, and that of a range of its offsets."""

BUCKET_OFFSETS: Final = 1 << 16

BATCH: Final = np.dtype(
    [
        ("base_offset", "i8"),
        ("last_offset", "i8"),
        ("leader_epoch", "i4"),
        ("crc", "u4"),
        ("position", "i8"),
        ("size_bytes", "i8"),
        ("replica", "i4"),
        ("segment", "i4"),
    ]
)
RECORD: Final = np.dtype(
    [
        ("offset", "i8"),
        ("replica", "i4"),
        ("segment", "i4"),
        ("position", "i8"),
        ("leader_epoch", "i4"),
        ("content", "i8"),
        ("is_readable", "?"),
    ]
)
"""``content``: a hash. Of a batch that cannot be opened there is one row, at its base offset."""

_IDENTITY: Final = ["base_offset", "last_offset", "leader_epoch", "crc"]


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets that a replica holds, except what damage has taken: ``holes``, in order."""

    start: int
    end: int
    holes: tuple[tuple[int, int], ...] = ()


Extents = Mapping[int, Extent]
"""The extents of one log, by the number of the replica."""


def by_bucket(log: int, rows: Rows, offset: str) -> Iterator[tuple[Bucket, Rows]]:
    """``rows``, in the order of the column ``offset``, by bucket."""
    numbers = rows[offset] // BUCKET_OFFSETS
    for part in np.split(rows, np.flatnonzero(np.diff(numbers)) + 1):
        if part.size:
            yield (log, int(part[offset][0]) // BUCKET_OFFSETS), part


def partition_of(bucket: Bucket) -> int:
    """Neighbours go to different tasks."""
    return bucket[0] * 31 + bucket[1]


def differing_batches(rows: Rows, extents: Extents) -> Rows:
    """The batches that not every replica holds alike whose extent they reach into."""
    rows = rows[np.argsort(rows[_IDENTITY], kind="stable")]
    starts, counts = _groups(rows[_IDENTITY])
    first = rows[starts]
    expected = sum(
        (one.start <= first["last_offset"]) & (first["base_offset"] < one.end) for one in extents.values()
    )
    return rows[np.repeat(counts < expected, counts)]


def suspicious_records(rows: Rows, extents: Extents, compacted_end: int) -> Iterator[Rows]:
    """By offset, copies of records that differ, that cannot be read, or that some replicas lack."""
    rows = rows[np.argsort(rows["offset"], kind="stable")]
    starts, counts = _groups(rows["offset"])
    offsets = rows["offset"][starts]
    expected = sum((one.start <= offsets) & (offsets < one.end) for one in extents.values())
    differ = (counts < expected) & (offsets >= compacted_end)
    differ |= ~np.logical_and.reduceat(rows["is_readable"], starts)
    for name in ("content", "leader_epoch"):
        differ |= np.minimum.reduceat(rows[name], starts) != np.maximum.reduceat(rows[name], starts)
    for start, count in zip(starts[differ].tolist(), counts[differ].tolist(), strict=True):
        yield rows[start : start + count]


def _groups(sorted_keys: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each run of equal keys begins, and its length."""
    begins = np.flatnonzero(np.concatenate(([True], sorted_keys[1:] != sorted_keys[:-1])))
    return begins, np.diff(np.append(begins, len(sorted_keys)))
