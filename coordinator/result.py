"""The result of every coordinator's handlers, and what becomes of it.

Handlers are pure. Nothing in a result has happened yet: the shard replays and appends the records first; only
if that succeeds does the rest take effect. Answers are sent when the high watermark has passed the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from pykraft.kafka_protocol.batch_builder import Producer
from pykraft.lazy_dataclass import dataclass


class Result(Protocol):
    """A decision."""

    @property
    def records(self) -> Sequence[object]: ...

    @property
    def response(self) -> object: ...

    @property
    def producer(self) -> Producer | None:
        """Whose transaction the records are part of, if they are."""
        ...

    @property
    def moves_others(self) -> bool:
        """Whether it concerns other requests, or changes the state without a record."""
        ...

    @property
    def has_effects(self) -> bool:
        """Whether something has to be begun outside of the shard once the records are appended."""
        ...


R = TypeVar("R", bound=Result)


@dataclass(slots=True)
class Outcome(Generic[R]):
    """A result that was replayed, to be answered once the high watermark reaches ``offset`` (None: at once).

    ``is_staged``: there is no offset yet. The answer is sent, or an error in its place, when
    :meth:`.Shard.flush` has written what is staged.
    """

    offset: int | None
    result: R
    is_staged: bool = False
