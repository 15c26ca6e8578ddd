"""Listeners are told of leaderships in the order of the log, and only of committed ones."""

from collections.abc import Iterator, Sequence

import pytest

from pykraft.kafka_protocol.records import BatchHeader, read_header
from pykraft.kafka_protocol.value_batches import encode_values
from pykraft.quorum import delivery as delivery_module
from pykraft.quorum.core.log_shape import SnapshotId
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


class _Log:
    def __init__(self, *sizes: int) -> None:
        """Batches of so many values each."""
        self._batches: list[tuple[BatchHeader, bytes]] = []
        self.values: list[bytes] = []
        self.end_offset = 0
        for size in sizes:
            values = [b"%d" % number for number in range(self.end_offset, self.end_offset + size)]
            data = encode_values(values, base_offset=self.end_offset, leader_epoch=1, timestamp_ms=5)
            self._batches.append((read_header(data), data))
            self.values += values
            self.end_offset += size

    def iter_batches(
        self, start_offset: int, end_offset: int | None = None
    ) -> Iterator[tuple[BatchHeader, bytes]]:
        return iter([(header, data) for header, data in self._batches if header.base_offset >= start_offset])


class _Slices(Recorder):
    """Records how many values each call holds, beside who leads."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[int] | LeaderAndEpoch] = []

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        super().handle_commit(batches)
        self.calls.append([len(batch.values) for batch in batches])

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.calls.append(leader)


def test_batch_of_very_many_values_is_handed_over_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_module, "SLICE_RECORDS", 10)
    log, listener = _Log(4, 5, 25, 3, 10, 11), _Slices()
    delivery = Delivery(log)
    delivery.high_watermark = log.end_offset
    ends = []
    while delivery.has_work:
        delivery.deliver_slice([listener])
        ends.append(delivery.delivered_offset)
    assert listener.calls == [[4, 5], [10], [10], [5], [3, 10], [10], [1]]
    assert ends == [9, 9, 9, 34, 47, 47, 58]
    assert listener.values == log.values
    assert [batch.size_bytes for batch in listener.batches] == [len(data) for _, data in log._batches]


def begun(monkeypatch: pytest.MonkeyPatch) -> tuple[Delivery, _Slices]:
    """The first of three pieces of a batch has been delivered; another batch of one value follows."""
    monkeypatch.setattr(delivery_module, "SLICE_RECORDS", 10)
    log, listener = _Log(25, 1), _Slices()
    delivery = Delivery(log)
    delivery.high_watermark = log.end_offset
    delivery.deliver_slice([listener])
    return delivery, listener


def test_leader_is_announced_between_batches_and_not_between_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    delivery, listener = begun(monkeypatch)
    leader = LeaderAndEpoch(2, 3)
    delivery.leader_changed(leader, None)
    while delivery.has_work:
        delivery.deliver_slice([listener])
    assert listener.calls == [[10], [10], [5], leader, [1]]


class _Snapshot:
    """Up to the end of the batch that is being delivered."""

    last_contained_log_time_ms = 5

    def __init__(self, end_offset: int) -> None:
        self.snapshot_id = SnapshotId(end_offset, 1)

    def __iter__(self) -> Iterator[tuple[bytes, ...]]:
        return iter([(b"all",)])

    def close(self) -> None: ...


def test_snapshot_takes_the_place_of_pieces_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    delivery, listener = begun(monkeypatch)
    delivery.replace_by(_Snapshot(25))
    while delivery.has_work:
        delivery.deliver_slice([listener])
    assert listener.calls == [[10], [1]] and listener.values == [b"all", b"25"]


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
