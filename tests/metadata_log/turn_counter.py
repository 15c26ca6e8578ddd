"""An event loop that counts the work of its turns: the same on every machine, however busy it is."""

import sys
from collections.abc import Coroutine
from types import FrameType
from typing import Any

from pykraft.runtime.simulated.virtual_loop import VirtualLoop


class CountingLoop(VirtualLoop):
    """``longest`` is the number of calls (of functions and methods, also those in C, and each continuation of
    a generator) in the turn with the most; ``turns`` is the number of turns. A hundred calls take some twenty
    microseconds. A turn of more than ``most`` calls ends in an :class:`AssertionError`: it might last for
    minutes.
    """

    def __init__(self, most: int = 1_000_000) -> None:
        super().__init__()
        self.longest = 0
        self.turns = 0
        self._most = most
        self._calls = 0

    def forget(self) -> None:
        """Count from here on."""
        self.longest = self.turns = 0

    def run_counted(self, main: Coroutine[Any, Any, None]) -> None:
        """Run to the end."""
        sys.setprofile(self._count)
        try:
            self.run_until_complete(main)
        finally:
            sys.setprofile(None)
            self.close()

    def _run_once(self) -> None:
        self._calls = 0
        super()._run_once()
        self.longest = max(self.longest, self._calls)
        self.turns += 1

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self._calls += 1
            assert self._calls <= self._most, f"a turn of more than {self._most} calls"
