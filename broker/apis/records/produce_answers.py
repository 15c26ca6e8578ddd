"""The wait of a Produce request until what it confirms is committed, or flushed.

A request for very many partitions expires in slices.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from pykraft.broker.replicas.partition.purgatory import OffsetQueue, OffsetWaiter
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pykraft.broker.apis.records.produce import Production

_EXPIRED_AT_ONCE = 1_000
_NONE = int(ErrorCode.NONE)


class PendingProduce:
    """A request that waits until all of its batches are committed, or flushed.

    It waits for one of its batches itself; each of the others has a waiter of its own.
    """

    __slots__ = ("_production", "_waiting", "bucket")

    def __init__(self, production: Production) -> None:
        self._production: Production | None = production
        """None once it is answered, or nobody waits for the answer any more: a partition may refer to this
        for long, and must not keep the request alive.
        """
        self._waiting: dict[OffsetWaiter, int] = {}
        """The waiters and the place of their batch in the results."""
        self.bucket = -1

    def add(self, queue: OffsetQueue, next_offset: int, index: int) -> None:
        """Wait in a partition's queue for ``next_offset``; ``index`` is the place of the batch's result."""
        waiter: OffsetWaiter = _OneMore(self) if self in self._waiting else self
        self._waiting[waiter] = index
        queue.add(next_offset, waiter)

    def offset_committed(self) -> None:
        self.batch_done(self, _NONE)

    def offset_refused(self, error_code: int) -> None:
        self.batch_done(self, error_code)

    def batch_done(self, waiter: OffsetWaiter, error_code: int) -> None:
        index = self._waiting.pop(waiter, None)
        if index is None:
            return  # it has expired, or its client has disconnected
        production = self._production
        assert production is not None
        if error_code == _NONE and production.acks == 1:  # it waited for flushes
            error_code = self._refusal(production)
        if error_code != _NONE:
            production.refuse(index, error_code)
        if not self._waiting and self.bucket >= 0:
            production.services.wakeups.deadlines.remove(self)
            self._production = None
            production.send()

    def _refusal(self, production: Production) -> int:
        """Why nothing may be confirmed without the ISR: the lease may have expired during the flush."""
        try:
            production.services.replicas.refuse_past_lease()
        except KafkaError as error:
            return int(error.code)
        return _NONE

    def park(self, timeout_ms: int) -> None:
        """Wait until the batches are committed. Some may be already, and the client may have disconnected."""
        production = self._production
        assert production is not None
        if production.slot.abandoned:
            self._forget()
            return
        if not self._waiting:
            self._forget()
            production.send()
            return
        production.slot.on_abandon = self._abandon
        services = production.services
        services.wakeups.wait_until(self, services.clock.monotonic_ms() + max(timeout_ms, 0))

    def expire(self) -> None:
        """Answer with an error that says the outcome is unknown: the batches may still be committed."""
        assert self._production is not None
        self._production.do(self._expire_in_slices(self._production))

    def _expire_in_slices(self, production: Production) -> Generator[None, None, None]:
        self.bucket = -1
        left = _EXPIRED_AT_ONCE
        while self._waiting:
            _, index = self._waiting.popitem()
            production.refuse(index, ErrorCode.REQUEST_TIMED_OUT)
            left -= 1
            if not left:
                yield
                left = _EXPIRED_AT_ONCE
        self._forget()
        production.send()

    def _abandon(self) -> None:
        """The client has disconnected."""
        if self._production is not None:
            self._production.services.wakeups.deadlines.remove(self)
        self._forget()

    def _forget(self) -> None:
        self._production = None
        self._waiting.clear()


class _OneMore:
    """Waits for another batch of a request."""

    __slots__ = ("_request",)

    def __init__(self, request: PendingProduce) -> None:
        self._request = request

    def offset_committed(self) -> None:
        self._request.batch_done(self, _NONE)

    def offset_refused(self, error_code: int) -> None:
        self._request.batch_done(self, error_code)
