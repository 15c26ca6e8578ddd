"""How long to wait before a failed operation is tried again: exponential, with jitter.

Many callers that failed for one reason must not all retry at the same moment, nor as often as before.
Randomness is an argument.
"""

from __future__ import annotations

from typing import Protocol

from pykraft.lazy_dataclass import dataclass


class RandomSource(Protocol):
    """The part of :class:`random.Random` that jitter needs."""

    def random(self) -> float:
        """A random number in [0, 1), a new one with every call."""
        ...


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from ``initial_ms`` to ``longest_ms``, each shortened by up to a half."""

    initial_ms: int
    longest_ms: int

    def delay_ms(self, failures: int, rng: RandomSource) -> int:
        """The pause after ``failures`` failures in a row (at least one)."""
        assert failures >= 1, "nothing has failed"
        span_ms = min(self.longest_ms, self.initial_ms << min(failures - 1, 30))
        return span_ms - int(rng.random() * span_ms / 2)
