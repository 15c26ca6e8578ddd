"""The two clocks of every component: one that only moves forward, one that gives the time of day.

Elapsed time (timeouts, leases, sessions) is always measured on the monotonic clock; the wall clock only
stamps records, because it may jump. Pure code takes ``now_ms`` as an argument and never reads a clock.
"""

from __future__ import annotations

import time
from typing import Final, Protocol


class Clock(Protocol):
    """Source of time in whole milliseconds."""

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start; never decreases."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump in either direction."""
        ...


_MONOTONIC: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""On Linux CLOCK_MONOTONIC stops while the machine is suspended, and leases would not expire."""


def monotonic_us() -> int:
    """Microseconds for measuring how long a piece of work takes; never for leases or sessions."""
    return time.perf_counter_ns() // 1_000


class SystemClock:
    """The operating system's clocks."""

    def monotonic_ms(self) -> int:
        return time.clock_gettime_ns(_MONOTONIC) // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
