"""How fast replicas may be copied: the throttles of leaders and of followers (KIP-73).

A rate is measured over the last eleven seconds, in windows of one, like Kafka's. A copy that is under way is
never cut: what it brought above the limit is made up for by waiting. Pure: time is an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

WINDOW_MS: Final = 1000
WINDOWS: Final = 11
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
_ALL: Final = "*"


class RateMeter:
    """Bytes a second over the last windows."""

    def __init__(self) -> None:
        #: (start, bytes) of each window in which something was recorded, the oldest first.
        self._windows: deque[tuple[int, int]] = deque()
        self._total = 0

    def record(self, size_bytes: int, now_ms: int) -> None:
        self._forget(now_ms)
        if self._windows and now_ms < self._windows[-1][0] + WINDOW_MS:
            start_ms, known = self._windows.pop()
            self._windows.append((start_ms, known + size_bytes))
        else:
            self._windows.append((now_ms, size_bytes))
        self._total += size_bytes

    def rate(self, now_ms: int) -> float:
        self._forget(now_ms)
        if not self._windows:
            return 0.0
        return self._total * 1000 / max(now_ms - self._windows[0][0], WINDOW_MS)

    def falls_to(self, limit: float, now_ms: int) -> int:
        """When the rate is ``limit`` or less, if nothing is recorded until then; ``now_ms`` if it is now."""
        self._forget(now_ms)
        total = self._total
        for start_ms, size_bytes in self._windows:
            end_ms = start_ms + WINDOWS * WINDOW_MS
            if total <= limit:
                low_ms = start_ms  # even over the shortest time that counts
            else:
                low_ms = start_ms - int(-total * 1000 // limit) if limit > 0 else end_ms
            if low_ms <= now_ms:
                return now_ms
            if low_ms < end_ms:
                return low_ms
            total -= size_bytes
            now_ms = max(now_ms, end_ms)
        return now_ms

    def _forget(self, now_ms: int) -> None:
        while self._windows and now_ms - self._windows[0][0] >= WINDOWS * WINDOW_MS:
            self._total -= self._windows.popleft()[1]


class ReplicationQuota:
    """One broker's limit as a leader, or as a follower, over all its throttled replicas."""

    def __init__(self) -> None:
        self.limit: int | None = None
        self._meter = RateMeter()

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Records of a throttled replica were sent or received."""
        self._meter.record(size_bytes, now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        return self.limit is not None and self._meter.rate(now_ms) > self.limit

    def free_at_ms(self, now_ms: int) -> int:
        """When it is no longer exceeded; ``now_ms`` if it is not."""
        return now_ms if self.limit is None else self._meter.falls_to(self.limit, now_ms)


class ReplicationQuotas:
    """Both limits of one broker."""

    def __init__(self) -> None:
        self.leader = ReplicationQuota()
        self.follower = ReplicationQuota()

    def set_limits(self, values: Mapping[str, str]) -> None:
        """Take the broker's dynamic properties."""
        for quota, name in ((self.leader, LEADER_RATE), (self.follower, FOLLOWER_RATE)):
            text = values.get(name)
            quota.limit = None if text is None else int(text)


def is_throttled(replicas: str, index: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas names a partition on a broker: itself, or all by ``*``."""
    entries = _entries(replicas)
    return _ALL in entries or f"{index}:{broker_id}" in entries


@lru_cache(maxsize=64)
def _entries(replicas: str) -> frozenset[str]:
    """Kept, because each of a topic's thousand partitions may ask for the same list."""
    return frozenset(entry.strip() for entry in replicas.split(","))
