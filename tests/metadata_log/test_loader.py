from __future__ import annotations

import pytest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.codec import RecordFormatError, encode_record
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.loader import MetadataLoader
from pykraft.metadata_log.records import FeatureLevelRecord, NoOpRecord, PartitionRecord, Record, TopicRecord
from pykraft.quorum.listener import CommittedBatch, LeaderAndEpoch

ID = Uuid(b"t" * 16)


class Recorder:
    def __init__(self, name: str, calls: list[tuple[str, MetadataDelta, MetadataImage]]) -> None:
        self._name = name
        self._calls = calls

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._calls.append((self._name, delta, image))


def batch(base_offset: int, *records: Record, epoch: int = 1) -> CommittedBatch:
    values = tuple(encode_record(record) for record in records)
    return CommittedBatch(base_offset, base_offset + len(records) - 1, epoch, 0, values)


def control(offset: int, epoch: int) -> CommittedBatch:
    return CommittedBatch(offset, offset, epoch, 0, ())


def test_publishers_are_called_in_order_with_the_joint_delta_of_a_slice() -> None:
    calls: list[tuple[str, MetadataDelta, MetadataImage]] = []
    loader = MetadataLoader([Recorder("first", calls), Recorder("second", calls)])
    loader.handle_commit(
        [
            control(0, 1),
            batch(1, TopicRecord("t", ID)),
            batch(2, PartitionRecord(0, ID, (1,), (1,), 1), FeatureLevelRecord("f", 1)),
        ]
    )
    assert [name for name, _, _ in calls] == ["first", "second"]
    assert calls[0][1] is calls[1][1]
    assert calls[0][1].created_topics == {ID}
    assert calls[0][2] is loader.image
    assert loader.offset == 3


def test_batches_without_change_move_the_offset_and_publish_nothing() -> None:
    calls: list[tuple[str, MetadataDelta, MetadataImage]] = []
    loader = MetadataLoader([Recorder("only", calls)])
    loader.handle_commit([control(0, 1), batch(1, NoOpRecord()), control(2, 4)])
    loader.handle_leader_change(LeaderAndEpoch(1, 4))
    assert (loader.offset, loader.image.epoch, calls) == (2, 4, [])


def test_a_gap_between_batches_is_a_bug() -> None:
    loader = MetadataLoader()
    with pytest.raises(AssertionError):
        loader.handle_commit([batch(1, NoOpRecord())])


def test_a_record_newer_than_the_code_stops_the_loader() -> None:
    loader = MetadataLoader()
    with pytest.raises(RecordFormatError):
        loader.handle_commit([CommittedBatch(0, 0, 1, 0, (b"\x92\x63\x00",))])
    assert loader.offset == -1
