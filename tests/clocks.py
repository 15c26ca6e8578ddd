"""Clocks that a test moves. :class:`pykraft.runtime.simulated.virtual_loop.VirtualClock` follows a loop."""

from dataclasses import dataclass


@dataclass
class ManualClock:
    """Both of its times stand still until a test moves them."""

    now_ms: int = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms
