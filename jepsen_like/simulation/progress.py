"""The progress of a long run: one line that is rewritten on a terminal, otherwise lines at intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TextIO

from pykraft.jepsen_like.simulation.tally import Tally

LINE_EVERY_S: Final = 30.0
_REWRITE_EVERY_S: Final = 0.2
_CLEAR_LINE: Final = "\r\x1b[K"


class Progress:
    """Writes to ``stream``; the time is an argument."""

    def __init__(self, stream: TextIO, now_s: Callable[[], float]) -> None:
        self._stream = stream
        self._now_s = now_s
        self._began_s = now_s()
        self._is_terminal = stream.isatty()
        self._every_s = _REWRITE_EVERY_S if self._is_terminal else LINE_EVERY_S
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

    def clear(self) -> None:
        """Clear the line, because other output follows."""
        if self._is_terminal:
            self._stream.write(_CLEAR_LINE)
            self._stream.flush()

    def _print_if_due(self, what: str) -> None:
        if self._now_s() >= self._due_s:
            self._print(what)

    def _print(self, what: str) -> None:
        now_s = self._now_s()
        self._due_s = now_s + self._every_s
        line = f"{now_s - self._began_s:5.0f} s  {what}"
        self._stream.write(f"{_CLEAR_LINE}{line}" if self._is_terminal else f"{line}\n")
        self._stream.flush()
