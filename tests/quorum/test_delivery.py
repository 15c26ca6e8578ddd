"""Listeners are told of leaderships in the order of the log, and only of committed ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pykraft.kafka_protocol.records import BatchHeader
from pykraft.quorum.delivery import Delivery
from pykraft.quorum.listener import CommittedBatch, LeaderAndEpoch
from tests.quorum.nodes import Recorder


class _Listener(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.received: list[int | LeaderAndEpoch] = []

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        self.received += [batch.base_offset for batch in batches]

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.received.append(leader)


class _NoLog:
    def iter_batches(
        self, start_offset: int, end_offset: int | None = None
    ) -> Iterator[tuple[BatchHeader, bytes]]:
        return iter(())


def test_leader_elected_again_learns_first_that_its_earlier_leadership_ended() -> None:
    listener = _Listener()
    delivery = Delivery(_NoLog())
    first, lost, again = LeaderAndEpoch(1, 5), LeaderAndEpoch(None, 6), LeaderAndEpoch(1, 7)
    delivery.delivered_offset = delivery.high_watermark = 11
    delivery.leader_changed(first, 10)
    delivery.deliver_slice([listener])
    delivery.leader_changed(lost, None)
    delivery.leader_changed(again, 20)
    assert delivery.has_work
    delivery.deliver_slice([listener])
    assert not delivery.has_work
    delivery.delivered_offset = delivery.high_watermark = 21
    delivery.deliver_slice([listener])
    assert listener.received == [first, lost, again]


def test_leadership_that_ended_before_it_was_committed_is_never_announced() -> None:
    listener = _Listener()
    delivery = Delivery(_NoLog())
    delivery.leader_changed(LeaderAndEpoch(None, 1), None)
    delivery.leader_changed(LeaderAndEpoch(1, 1), 10)
    delivery.leader_changed(LeaderAndEpoch(2, 2), None)
    delivery.leader_changed(LeaderAndEpoch(None, 3), None)
    delivery.leader_changed(LeaderAndEpoch(1, 4), 12)
    delivery.leader_changed(LeaderAndEpoch(1, 5), 13)
    while delivery.has_work:
        delivery.deliver_slice([listener])
    delivery.delivered_offset = delivery.high_watermark = 14
    while delivery.has_work:
        delivery.deliver_slice([listener])
    assert listener.received == [LeaderAndEpoch(None, 3), LeaderAndEpoch(1, 5)]
