"""What a command comes to: records for the log, and an answer for whoever asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pykraft.metadata_log.records import Record

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[T]):
    """The outcome of one ``handle_*``. Nothing has changed yet.

    ``records`` enter the log as one atomic batch or not at all, and only their replay changes anything. The
    answer may leave once they are committed; with no records, once everything before is.
    ``with_base_offset`` completes an answer that must name the offset its records got.
    """

    records: tuple[Record, ...]
    response: T
    with_base_offset: Callable[[T, int], T] | None = None

    def response_at(self, base_offset: int) -> T:
        """The answer, given the offset of the first record."""
        if self.with_base_offset is None:
            return self.response
        return self.with_base_offset(self.response, base_offset)
