"""The result of a command: records for the log, and a response for the caller."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Generic, TypeVar

from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.records import Record

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[T]):
    """The outcome of one ``handle_*``. Nothing has changed yet.

    ``records`` are appended as one atomic batch or not at all, and only their replay changes the state. The
    response may be sent once they are committed; without records, once everything before is committed.
    ``with_base_offset`` completes a response that must name the offset of its records.
    ``upgrades_kraft_version``: the quorum, too, appends a batch, of its own records (UpdateFeatures).
    """

    records: tuple[Record, ...]
    response: T
    with_base_offset: Callable[[T, int], T] | None = None
    upgrades_kraft_version: bool = False

    def response_at(self, base_offset: int) -> T:
        """The response, given the offset of the first record."""
        if self.with_base_offset is None:
            return self.response
        return self.with_base_offset(self.response, base_offset)


InSlices = Generator[None, None, ControllerResult[T]]
"""The work that finds a result; nothing else may be decided between its slices."""
