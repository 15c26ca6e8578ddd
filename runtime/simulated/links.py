"""A network between numbered nodes that loses, repeats, delays and so reorders messages, and can be cut.

Decides from the seed what happens to each message; carries no messages itself. A cut is one-way, from a
sender to a receiver; a partition is two cuts for each pair.
"""

from __future__ import annotations

import random
from collections.abc import Iterable


class Links:
    """``drop`` and ``duplicate`` are probabilities; delays are uniform, and occasionally much longer."""

    __slots__ = ("_rng", "cuts", "drop", "duplicate", "max_delay_ms", "slow_ms", "straggle")

    def __init__(self, rng: random.Random, *, max_delay_ms: int = 5) -> None:
        self._rng = rng
        self.cuts: set[tuple[int, int]] = set()
        self.slow_ms: dict[tuple[int, int], int] = {}
        """The additional delay of messages, by sender and receiver."""
        self.drop = 0.0
        self.duplicate = 0.0
        self.straggle = 0.0
        self.max_delay_ms = max_delay_ms

    def deliveries(self, sender: int, receiver: int, *, may_be_slow: bool = True) -> tuple[int, ...]:
        """The delays after which copies of a message arrive; empty if it is lost.

        ``may_be_slow``: whether :attr:`slow_ms` concerns the message.
        """
        rng = self._rng
        chance = rng.random()
        if (sender, receiver) in self.cuts or chance < self.drop:
            return ()
        delay = 1 + int(rng.random() * self.max_delay_ms)
        if self.slow_ms and may_be_slow:
            delay += self.slow_ms.get((sender, receiver), 0)
        if self.straggle and rng.random() < self.straggle:
            delay += int(rng.random() * 40 * self.max_delay_ms)
        if self.duplicate and rng.random() < self.duplicate:
            return (delay, delay + 1 + int(rng.random() * 20 * self.max_delay_ms))
        return (delay,)

    def cut(self, senders: Iterable[int], receivers: Iterable[int]) -> None:
        """Drop all messages from ``senders`` to ``receivers``, but none in the other direction."""
        targets = list(receivers)
        self.cuts.update((a, b) for a in senders for b in targets if a != b)

    def partition(self, side: Iterable[int], others: Iterable[int]) -> None:
        left, right = list(side), list(others)
        self.cut(left, right)
        self.cut(right, left)

    def heal(self) -> None:
        self.cuts.clear()
        self.slow_ms.clear()

    def become_perfect(self) -> None:
        self.heal()
        self.drop = self.duplicate = self.straggle = 0.0
