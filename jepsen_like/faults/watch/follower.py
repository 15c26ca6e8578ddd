"""Reads a history while it is written: whole lines only, a part at a time."""

from pathlib import Path
from typing import Final

from pykraft.jepsen_like.faults.history import Event, HistoryError, event_from_json

_READ_BYTES: Final = 1 << 20
_LONGEST_LINE_BYTES: Final = 64 << 20


class HistoryFollower:
    """``position``: how many bytes were read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rest = b""
        self._lines = 0
        self._problem: HistoryError | None = None
        self.position = 0

    @property
    def left_bytes(self) -> int:
        """The bytes that are written and not read yet."""
        try:
            return max(0, self._path.stat().st_size - self.position)
        except FileNotFoundError:
            return 0

    def read(self) -> list[Event]:
        """The next events, of about a mebibyte; none while nothing more is written.

        :class:`HistoryError` that names the line if the next one is not an event: nothing is read after it.
        """
        if self._problem is not None:
            raise self._problem
        try:
            with self._path.open("rb") as file:
                file.seek(self.position)
                data = file.read(_READ_BYTES)
        except FileNotFoundError:
            return []
        self.position += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        events: list[Event] = []
        try:
            for line in lines:
                self._lines += 1
                events.append(event_from_json(line))
            if len(self._rest) > _LONGEST_LINE_BYTES:
                raise HistoryError("a line without an end")
        except HistoryError as error:
            self._problem = HistoryError(f"{self._path.name}:{self._lines}: {error}")
            if not events:
                raise self._problem from None
        return events
