"""The wait of a Produce request: answered once, and not kept alive by partitions that still know of it."""

import gc
import weakref
from collections.abc import Generator, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykraft.broker.apis.records.produce_answers import PendingProduce
from pykraft.broker.replicas.partition.purgatory import Deadlines, OffsetQueue
from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError


class Request:
    """In place of a :class:`~pykraft.broker.apis.records.produce.Production`."""

    def __init__(self, acks: int = -1) -> None:
        self.acks = acks
        self.results: list[int] = []
        self.sent = 0
        lease = self.lease = SimpleNamespace(is_over=False)

        def refuse_past_lease() -> None:
            if lease.is_over:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        self.slot = SimpleNamespace(abandoned=False, on_abandon=None)
        deadlines = Deadlines()
        self.services = SimpleNamespace(
            wakeups=SimpleNamespace(deadlines=deadlines, wait_until=deadlines.add),
            clock=SimpleNamespace(monotonic_ms=lambda: 0),
            replicas=SimpleNamespace(refuse_past_lease=refuse_past_lease),
        )

    def add(self, pending: PendingProduce, queue: OffsetQueue, next_offset: int) -> None:
        pending.add(queue, next_offset, len(self.results))
        self.results.append(0)

    def refuse(self, index: int, error_code: int) -> None:
        self.results[index] = int(error_code)

    def send(self) -> None:
        self.sent += 1

    def do(self, work: Generator[None, None, None]) -> None:
        at_once(work)


@pytest.fixture(autouse=True)
def by_reference_counting() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def make(acks: int = -1) -> tuple[Request, PendingProduce]:
    request = Request(acks)
    return request, PendingProduce(cast(Any, request))


def reach(queue: OffsetQueue, offset: int) -> None:
    for waiter in queue.pop_reached(offset):
        waiter.offset_committed()


def test_batches_of_one_partition_are_answered_together_and_once() -> None:
    request, pending = make()
    queue = OffsetQueue()
    for offset in (1, 2, 3):
        request.add(pending, queue, offset)
    pending.park(1000)
    reach(queue, 2)
    assert request.sent == 0
    for waiter in queue.pop_all():
        waiter.offset_refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (request.sent, request.results) == (1, [0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER])
    assert not len(request.services.wakeups.deadlines)


def test_batch_that_is_committed_before_the_next_is_appended_leaves_its_place_to_it() -> None:
    """A request that takes several turns; its partitions go on meanwhile."""
    request, pending = make()
    first, second, third = OffsetQueue(), OffsetQueue(), OffsetQueue()
    request.add(pending, first, 1)
    reach(first, 1)
    request.add(pending, second, 1)
    request.add(pending, third, 1)
    for waiter in second.pop_all():
        waiter.offset_refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    pending.park(1000)
    assert request.sent == 0
    reach(third, 1)
    assert (request.sent, request.results) == (1, [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0])


def test_request_whose_batches_are_all_committed_when_it_parks_is_answered_at_once() -> None:
    request, pending = make()
    queue = OffsetQueue()
    request.add(pending, queue, 1)
    reach(queue, 1)
    pending.park(1000)
    assert request.sent == 1 and not len(request.services.wakeups.deadlines)


@pytest.mark.parametrize("ends", ["expires", "loses its client", "has lost its client"])
def test_partitions_that_still_know_of_a_request_keep_only_its_waiters(ends: str) -> None:
    request, pending = make()
    queue = OffsetQueue()
    for offset in (1, 2):
        request.add(pending, queue, offset)
    request.slot.abandoned = ends == "has lost its client"
    pending.park(1000)
    if ends == "expires":
        request.services.wakeups.deadlines.expire(5000)
        assert request.results == [ErrorCode.REQUEST_TIMED_OUT] * 2
    elif ends == "loses its client":
        cast(Any, request.slot.on_abandon)()
        assert not len(request.services.wakeups.deadlines)
    sent, results, known = request.sent, list(request.results), weakref.ref(request)
    assert sent == (ends == "expires")
    request.slot.on_abandon = None  # as the slot does
    del request, pending
    assert known() is None and len(queue) == 2
    reach(queue, 1)
    for waiter in queue.pop_all():
        waiter.offset_refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert results in ([0, 0], [ErrorCode.REQUEST_TIMED_OUT] * 2)


def test_answered_request_is_let_go() -> None:
    request, pending = make()
    queue = OffsetQueue()
    request.add(pending, queue, 1)
    pending.park(1000)
    reach(queue, 1)
    assert request.sent == 1
    request.slot.on_abandon = None
    known = weakref.ref(request)
    del request
    assert known() is None


@pytest.mark.parametrize(("acks", "code"), [(1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (-1, ErrorCode.NONE)])
def test_only_what_waited_for_a_flush_is_refused_past_the_lease(acks: int, code: ErrorCode) -> None:
    request, pending = make(acks)
    queues = [OffsetQueue(), OffsetQueue()]
    for queue in queues:
        request.add(pending, queue, 1)
    pending.park(1000)
    request.lease.is_over = True
    for queue in queues:
        reach(queue, 1)
    assert (request.sent, request.results) == (1, [code] * 2)
