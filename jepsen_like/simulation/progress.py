"""The progress of a long run: a line now and then."""

from collections.abc import Callable
from typing import Final, TextIO

from pykraft.jepsen_like.simulation.tally import Tally

LINE_EVERY_S: Final = 30.0


class Progress:
    """Writes to ``stream``; the time is an argument."""

    def __init__(self, stream: TextIO, now_s: Callable[[], float]) -> None:
        self._stream = stream
        self._now_s = now_s
        self._began_s = now_s()
        self._due_s = self._began_s

    def ran(self, tally: Tally, wanted: int) -> None:
        """One more of the ``wanted`` schedules of a ring is complete."""
        self._print_if_due(
            f"{tally.ring}: {tally.schedules:,} of {wanted:,} schedules,"
            f" {tally.faults.total():,} faults, {len(tally.failures)} violations"
        )

    def ran_directed(self, tally: Tally, wanted: int) -> None:
        """One more schedule that was written by hand is complete."""
        self._print_if_due(f"{tally.ring}: {tally.directed} of {wanted} schedules written by hand")

    def reduces(self, failure: str) -> None:
        """A schedule failed, and is being reduced."""
        self._print(f"{failure}; looking for a smaller schedule that fails, too")

    def _print_if_due(self, what: str) -> None:
        if self._now_s() >= self._due_s:
            self._print(what)

    def _print(self, what: str) -> None:
        now_s = self._now_s()
        self._due_s = now_s + LINE_EVERY_S
        print(f"{now_s - self._began_s:5.0f} s  {what}", file=self._stream, flush=True)
