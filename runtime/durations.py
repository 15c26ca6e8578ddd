"""A histogram of durations that costs its caller two additions."""

from __future__ import annotations

from typing import Final

BUCKETS: Final = 28
"""Bucket n counts durations below 2ⁿ µs that are not in an earlier one; the last one all longer ones."""


class Durations:
    """``counts`` by bucket, not cumulative; ``sum_us`` of all durations."""

    __slots__ = ("counts", "sum_us")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.sum_us = 0

    def add(self, duration_us: int) -> None:
        self.counts[min(duration_us.bit_length(), BUCKETS - 1)] += 1
        self.sum_us += duration_us

    @property
    def count(self) -> int:
        return sum(self.counts)
