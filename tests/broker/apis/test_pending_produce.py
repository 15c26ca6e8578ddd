"""The wait of a Produce request: answered once, and not kept alive by partitions that still know of it."""

import gc
import weakref
from collections.abc import Generator, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykraft.broker.apis.records.produce import Production
from pykraft.broker.apis.records.produce_answers import PendingProduce
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.replicas.partition.purgatory import OffsetQueue
from pykraft.broker.replicas.replica_manager import ReplicaManager
from pykraft.broker.replicas.wakeups import Wakeups
from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.turns import UnlimitedTurn
from tests.broker.fetch_world import Loop, Slot
from tests.clocks import ManualClock
from tests.stand_ins import stand_in


class Results(list[int]):
    """Weak references to it tell whether the request is let go."""


class Request(Production):
    """Only what its wait needs."""

    _results: Any

    def __init__(self, acks: int = -1) -> None:
        self.acks = acks
        self._results = Results()
        self.sent = 0
        self.lease = SimpleNamespace(is_over=False)
        self.slot = Slot(0)
        clock = ManualClock(0)
        self.services = stand_in(
            BrokerServices,
            wakeups=Wakeups(cast(Any, Loop()), UnlimitedTurn(), clock, {}),
            clock=clock,
            replicas=stand_in(ReplicaManager, refuse_past_lease=partial(refuse_past_lease, self.lease)),
        )

    def add(self, pending: PendingProduce, queue: OffsetQueue, next_offset: int) -> None:
        pending.add(queue, next_offset, len(self._results))
        self._results.append(0)

    def refuse(self, index: int, error_code: int) -> None:
        self._results[index] = int(error_code)

    def send(self) -> None:
        self.sent += 1

    def do(self, work: Generator[None, None, None]) -> None:
        at_once(work)


def refuse_past_lease(lease: SimpleNamespace, *_: object) -> None:
    if lease.is_over:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.fixture(autouse=True)
def by_reference_counting() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def make(acks: int = -1) -> tuple[Request, PendingProduce]:
    request = Request(acks)
    return request, PendingProduce(request)


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
    assert (request.sent, request._results) == (1, [0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER])
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
    assert (request.sent, request._results) == (1, [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0])


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
    cast(Slot, request.slot).abandoned = ends == "has lost its client"
    pending.park(1000)
    if ends == "expires":
        request.services.wakeups.deadlines.expire(5000)
        assert request._results == [ErrorCode.REQUEST_TIMED_OUT] * 2
    elif ends == "loses its client":
        cast(Any, request.slot.on_abandon)()
        assert not len(request.services.wakeups.deadlines)
    sent, results, known = request.sent, list(request._results), weakref.ref(request._results)
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
    known = weakref.ref(request._results)
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
    assert (request.sent, request._results) == (1, [code] * 2)
