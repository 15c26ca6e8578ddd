"""Operations that wait: for a high watermark, for more bytes, or until their timeout.

A waiting operation is completed once, by whichever comes first. Deadlines are kept in coarse buckets, so that
the usual operation, which completes long before its deadline, costs two dictionary operations. This module
does not decide what completes an operation, and never reads a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

BUCKET_MS = 10


class Waiting(Protocol):
    """An operation that waits. ``bucket`` belongs to :class:`Deadlines`."""

    bucket: int

    def expire(self) -> None: ...


class Deadlines:
    """Operations by deadline, in buckets of ``BUCKET_MS``: none expires early, none much later."""

    __slots__ = ("_buckets", "_order")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Waiting, None]] = {}
        self._order: list[int] = []

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self._buckets.values())

    def add(self, operation: Waiting, deadline_ms: int) -> None:
        number = deadline_ms // BUCKET_MS + 1
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            heappush(self._order, number)
        bucket[operation] = None
        operation.bucket = number

    def remove(self, operation: Waiting) -> None:
        bucket = self._buckets.get(operation.bucket)
        if bucket is not None:
            bucket.pop(operation, None)

    @property
    def next_ms(self) -> int | None:
        """The time at which :meth:`expire` has something to do; None if no operation waits."""
        while self._order and not self._buckets[self._order[0]]:
            del self._buckets[heappop(self._order)]
        return self._order[0] * BUCKET_MS if self._order else None

    def expire(self, now_ms: int, has_room: Callable[[], bool] = lambda: True) -> bool:
        """Call ``expire`` of every operation whose deadline has passed, in order of their deadlines.

        Stops when ``has_room`` is false; returns whether all were expired. The others stay due.
        """
        while self._order and self._order[0] * BUCKET_MS <= now_ms:
            bucket = self._buckets[self._order[0]]
            while bucket:
                if not has_room():
                    return False
                operation = next(iter(bucket))
                # Removed first, so that if it fails the others can still expire.
                del bucket[operation]
                operation.expire()
            if self._order and self._buckets.get(self._order[0]) is bucket:
                del self._buckets[heappop(self._order)]
        return True


class OffsetWaiter(Protocol):
    """A request that waits until a partition has committed, or flushed, everything below an offset."""

    def offset_committed(self) -> None: ...
    def offset_refused(self, error_code: int) -> None: ...


class OffsetQueue:
    """The waiters of one partition, ordered by the (exclusive) offset they wait for."""

    __slots__ = ("_late", "_queue", "_sequence")

    def __init__(self) -> None:
        self._queue: deque[tuple[int, OffsetWaiter]] = deque()
        # A duplicate waits for an offset below those that already wait; rare, so kept apart.
        self._late: list[tuple[int, int, OffsetWaiter]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._queue) + len(self._late)

    def add(self, offset: int, waiter: OffsetWaiter) -> None:
        if self._queue and offset < self._queue[-1][0]:
            self._sequence += 1
            heappush(self._late, (offset, self._sequence, waiter))
        else:
            self._queue.append((offset, waiter))

    def pop_reached(self, offset: int) -> list[OffsetWaiter]:
        """Remove and return all waiters for ``offset`` or less."""
        reached: list[OffsetWaiter] = []
        queue = self._queue
        while queue and queue[0][0] <= offset:
            reached.append(queue.popleft()[1])
        while self._late and self._late[0][0] <= offset:
            reached.append(heappop(self._late)[2])
        return reached

    def pop_all(self) -> list[OffsetWaiter]:
        """Remove and return all waiters."""
        waiters = [waiter for _, waiter in self._queue] + [entry[2] for entry in sorted(self._late)]
        self._queue.clear()
        self._late.clear()
        return waiters
