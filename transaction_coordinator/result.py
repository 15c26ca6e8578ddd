"""The result of a handler: records to write, an answer, and transactions whose markers are due.

Handlers are pure. Nothing in a result has happened yet: the shard replays and appends the records first. The
answer is sent, and markers are written, when the high watermark has passed the records: a decision that may
still be lost must neither be known nor be carried out.
"""

from __future__ import annotations

from typing import Any, Generic, TypeAlias, TypeVar

from pykraft.lazy_dataclass import dataclass
from pykraft.transaction_coordinator.log.records import TransactionRecord

A = TypeVar("A")
"""A response; or, where a request concerns several transactional ids, what is said of one of them."""


@dataclass(slots=True)
class CoordinatorResult(Generic[A]):
    """``prepared``: the transactional ids whose transactions the records end. Their markers are to be written
    once the records are committed, then :mod:`~pykraft.transaction_coordinator.requests.endings` is called.
    """

    response: A
    records: tuple[TransactionRecord, ...] = ()
    prepared: tuple[str, ...] = ()

    @property
    def producer(self) -> None:
        """Its own records are not part of a transaction."""
        return None

    @property
    def moves_others(self) -> bool:
        """Whether it concerns other requests: none does."""
        return False

    @property
    def has_effects(self) -> bool:
        """Whether markers are to be written."""
        return bool(self.prepared)


AnyResult: TypeAlias = CoordinatorResult[Any]

NOTHING = CoordinatorResult(None)
