"""The clock of a test cluster: its wall clock can be set, elapsed time cannot be changed."""

from __future__ import annotations

from pykraft.runtime.clock import SystemClock


class SettableClock(SystemClock):
    """Retention, timestamps and whatever else asks for the time of day see the time that was set, and it goes
    on from there. Timeouts and sessions are measured on the monotonic clock."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms

    def set(self, wall_ms: int) -> None:
        """Milliseconds since 1970-01-01 UTC."""
        self._ahead_ms = wall_ms - super().wall_ms()

    def reset(self) -> None:
        self._ahead_ms = 0
