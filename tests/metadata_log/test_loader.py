from collections.abc import Sequence
from dataclasses import replace

import pytest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.codec import RecordFormatError, decode_record, encode_record
from pykraft.metadata_log.delta import Changes, MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage
from pykraft.metadata_log.loader import CHECK_EVERY_BATCHES, GROWTH_RECORDS, MetadataLoader
from pykraft.metadata_log.records import (
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from pykraft.metadata_log.replay import replay
from pykraft.metadata_log.snapshot import iter_snapshot_values
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.listener import CommittedBatch, LeaderAndEpoch
from tests.narrowing import as_type

ID, OTHER = Uuid(b"t" * 16), Uuid(b"u" * 16)


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


# --- batches in pieces -----------------------------------------------------------------------------------


class Follower:
    def __init__(self) -> None:
        self.followed: list[tuple[int, int]] = []

    def handle_commit(self, batches: Sequence[CommittedBatch], image: MetadataImage) -> None:
        self.followed.append((batches[-1].last_offset, image.offset))

    def begin_snapshot(self) -> None: ...

    def finish_snapshot(self, image: MetadataImage, append_time_ms: int) -> None: ...


def pieces(whole: CommittedBatch, size: int) -> list[CommittedBatch]:
    return [
        replace(whole, values=whole.values[start : start + size], earlier=start)
        for start in range(0, len(whole.values), size)
    ]


def wide(base_offset: int, partitions: int) -> CommittedBatch:
    added = (PartitionRecord(index, ID, (1,), (1,), 1) for index in range(partitions))
    return batch(base_offset, TopicRecord("t", ID), *added)


def test_batch_in_pieces_counts_when_the_last_has_come() -> None:
    calls: list[tuple[str, MetadataDelta, MetadataImage]] = []
    follower = Follower()
    loader = MetadataLoader([Recorder("only", calls)], follower=follower)
    loader.handle_commit([control(0, 1)])
    *others, last = pieces(wide(1, 10), 3)
    for piece in others:
        loader.handle_commit([piece])
        assert (loader.offset, calls, follower.followed) == (0, [], [(0, 0)])
    loader.handle_commit([last])
    ((_, delta, image),) = calls
    assert loader.offset == image.offset == 11
    assert dict(delta.changed_partitions) == {ID: frozenset(range(10))}
    assert follower.followed[1:] == [(11, 11)]
    loader.handle_commit([batch(12, FeatureLevelRecord("f", 1))])
    assert loader.image.features["f"] == 1 and len(loader.image.topics_by_id[ID].partitions) == 10


def test_missing_piece_is_a_bug() -> None:
    loader = MetadataLoader()
    first, _, third = pieces(wide(0, 8), 3)
    loader.handle_commit([first])
    with pytest.raises(AssertionError):
        loader.handle_commit([third])


def test_snapshot_in_the_middle_of_a_batch_replaces_what_has_come_of_it() -> None:
    loader = MetadataLoader()
    loader.handle_commit([pieces(wide(0, 10), 3)[0]])
    feed(loader, image_of(TopicRecord("u", OTHER)), 20, 1)
    assert loader.offset == 19 and not loader.image.topic_by_id(ID)
    for piece in pieces(wide(20, 10), 3):
        loader.handle_commit([piece])
    assert loader.offset == 30 and {topic.name for topic in loader.image.topics_by_id.values()} == {"t", "u"}


# --- starting --------------------------------------------------------------------------------------------


def test_nothing_is_published_before_the_node_has_caught_up() -> None:
    calls: list[tuple[str, MetadataDelta, MetadataImage]] = []
    loader = MetadataLoader([Recorder("only", calls)], high_watermark=lambda: 4)
    loader.handle_commit([control(0, 1), batch(1, TopicRecord("t", ID))])
    loader.handle_commit([batch(2, PartitionRecord(0, ID, (1,), (1,), 1))])
    assert calls == []
    loader.handle_commit([batch(3, FeatureLevelRecord("f", 1))])
    ((_, delta, image),) = calls
    assert delta.old is EMPTY_IMAGE and delta.new is image is loader.image
    assert delta.created_topics == delta.changed_topics == {ID}
    assert dict(delta.changed_partitions) == {ID: frozenset([0])}
    assert delta.changed_features == {"f"}


def test_node_that_once_caught_up_publishes_every_slice() -> None:
    calls: list[tuple[str, MetadataDelta, MetadataImage]] = []
    high_watermark = [1]
    loader = MetadataLoader([Recorder("only", calls)], high_watermark=lambda: high_watermark[0])
    loader.handle_commit([batch(0, FeatureLevelRecord("f", 1))])
    high_watermark[0] = 100
    loader.handle_commit([batch(1, FeatureLevelRecord("g", 1))])
    assert [delta.changed_features for _, delta, _ in calls] == [{"f"}, {"g"}]


def test_owner_is_notified_when_the_image_has_grown() -> None:
    grown: list[int] = []
    loader = MetadataLoader(on_growth=lambda: grown.append(loader.offset))
    for _ in range(5):
        half = [NoOpRecord()] * (GROWTH_RECORDS // 2)
        loader.handle_commit([batch(loader.offset + 1, *half)])
    assert grown == [GROWTH_RECORDS - 1, 2 * GROWTH_RECORDS - 1]


# --- snapshots -------------------------------------------------------------------------------------------


def image_of(*records: Record) -> MetadataImage:
    return replay(EMPTY_IMAGE, records, 0, 1)[0]


def feed(loader: MetadataLoader, image: MetadataImage, end_offset: int, epoch: int) -> None:
    loader.begin_snapshot(SnapshotId(end_offset, epoch), 55)
    for values in iter_snapshot_values(image):
        loader.handle_snapshot_values(values)
    loader.finish_snapshot()


def test_start_from_a_snapshot_continues_after_it() -> None:
    calls: list[tuple[str, MetadataDelta, MetadataImage]] = []
    loader = MetadataLoader([Recorder("only", calls)], high_watermark=lambda: 101)
    feed(loader, image_of(TopicRecord("t", ID), PartitionRecord(0, ID, (1,), (1,), 1)), 100, 7)
    assert (loader.offset, loader.image.epoch, calls) == (99, 7, [])
    loader.handle_commit([batch(100, PartitionChangeRecord(0, ID, leader=-1), epoch=8)])
    ((_, delta, image),) = calls
    assert image.topics_by_id[ID].partitions[0].leader_epoch == 1
    assert delta.created_topics == {ID}


def test_fetched_snapshot_is_published_as_a_delta_from_the_image_before() -> None:
    gone, kept, back = (Uuid(letter * 16) for letter in (b"g", b"k", b"b"))
    old: list[Record] = [
        *(TopicRecord("gone", gone), PartitionRecord(0, gone, (1,), (1,), 1)),
        *(TopicRecord("kept", kept), PartitionRecord(0, kept, (1,), (1,), 1)),
        *(
            TopicRecord("t", ID),
            PartitionRecord(0, ID, (1, 2), (1,), 1),
            PartitionRecord(1, ID, (2,), (2,), 2),
        ),
        *(ConfigRecord(2, "gone", "a", "1"), ConfigRecord(2, "kept", "a", "1"), FeatureLevelRecord("f", 1)),
    ]
    later: list[Record] = [
        *(RemoveTopicRecord(gone), TopicRecord("gone", back), PartitionRecord(0, back, (3,), (3,), 3)),
        *(PartitionChangeRecord(1, ID, leader=-1), PartitionRecord(2, ID, (1,), (1,), 1)),
        *(ConfigRecord(4, "1", "b", "2"), FeatureLevelRecord("f", 0)),
    ]
    calls: list[tuple[str, MetadataDelta, MetadataImage]] = []
    loader = MetadataLoader([Recorder("only", calls)])
    loader.handle_commit([batch(0, *old)])
    before = loader.image
    feed(loader, image_of(*old, *later), 1000, 3)
    _, delta, image = calls[-1]
    assert delta.old is before and image is loader.image and image.offset == 999
    assert delta.deleted_topics == {gone: before.topics_by_id[gone]}
    assert delta.created_topics == {back}
    assert delta.changed_partitions == {back: frozenset([0]), ID: frozenset([1, 2])}
    assert delta.changed_configs == {(2, "gone"), (4, "1")}
    assert delta.changed_features == {"f"}
    assert image.topics_by_id[kept] is before.topics_by_id[kept]


def test_batch_in_the_middle_of_a_snapshot_is_a_bug() -> None:
    loader = MetadataLoader()
    loader.begin_snapshot(SnapshotId(5, 1), 0)
    with pytest.raises(AssertionError, match="in the middle"):
        loader.handle_commit([batch(0, NoOpRecord())])


# --- a controller on the same node -----------------------------------------------------------------------


class Controller:
    """A controller that has created its images itself, from offset ``first`` on."""

    def __init__(self) -> None:
        self.made: dict[int, tuple[MetadataImage, Changes]] = {}
        self.published: list[tuple[str, object]] = []

    def take_committed(self, batch: CommittedBatch) -> tuple[MetadataImage, Changes] | None:
        return self.made.pop(batch.base_offset, None)

    def handle_commit(self, batches: Sequence[CommittedBatch], image: MetadataImage) -> None:
        self.published.append(("commit", image))

    def handle_snapshot(self, image: MetadataImage) -> None:
        self.published.append(("snapshot", image))

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.published.append(("leader", leader))


def test_images_of_its_own_records_are_taken_from_the_controller_and_others_given_to_it() -> None:
    calls: list[tuple[str, MetadataDelta, MetadataImage]] = []
    controller = Controller()
    loader = MetadataLoader([Recorder("only", calls)], controller)
    loader.handle_leader_change(LeaderAndEpoch(1, 1))
    own: list[Record] = [TopicRecord("t", ID), PartitionRecord(0, ID, (1,), (1,), 1)]
    folded = image_of(FeatureLevelRecord("f", 1))
    controller.made[1] = replay(folded, own, 1, 1)
    taken = controller.made[1][0]
    loader.handle_commit([batch(0, FeatureLevelRecord("f", 1)), batch(1, *own)])
    assert loader.image is taken
    loader.handle_commit([control(3, 2)])
    feed(loader, taken, 50, 3)
    assert [name for name, _ in controller.published] == ["leader", "commit", "commit", "snapshot"]
    assert [as_type(image, MetadataImage).offset for _, image in controller.published[1:]] == [2, 3, 49]
    assert controller.published[-1][1] is loader.image
    ((_, delta, _),) = calls
    assert delta.created_topics == {ID} and delta.changed_features == {"f"}


def test_batch_in_pieces_is_taken_from_the_controller_though_it_resigns_meanwhile() -> None:
    calls: list[tuple[str, MetadataDelta, MetadataImage]] = []
    controller, follower = Controller(), Follower()
    loader = MetadataLoader([Recorder("only", calls)], controller, follower)
    whole = wide(0, 10)
    records = [decode_record(value) for value in whole.values]
    controller.made[0] = replay(EMPTY_IMAGE, records, 0, 1)
    taken = controller.made[0][0]
    *others, last = pieces(whole, 3)
    for piece in others:
        loader.handle_commit([piece])
        assert (loader.image, calls, controller.published, controller.made) == (EMPTY_IMAGE, [], [], {})
    loader.handle_commit([last])
    assert loader.image is taken
    assert controller.published == [("commit", taken)] and follower.followed == [(10, 10)]
    assert [dict(delta.changed_partitions) for _, delta, _ in calls] == [{ID: frozenset(range(10))}]
    loader.handle_commit([batch(11, FeatureLevelRecord("f", 1))])
    assert loader.offset == 11


def test_controller_whose_image_differs_from_the_log_stops_the_node() -> None:
    controller = Controller()
    loader = MetadataLoader(controller=controller)
    image = EMPTY_IMAGE
    with pytest.raises(AssertionError, match="differ"):
        for number in range(CHECK_EVERY_BATCHES + 1):
            # From the second batch on the controller's image has another level than it wrote.
            image, changes = replay(image, [FeatureLevelRecord("f", 7 if number else 5)], number, 1)
            controller.made[number] = image, changes
            loader.handle_commit([batch(number, FeatureLevelRecord("f", 5))])
    assert loader.offset == CHECK_EVERY_BATCHES - 1
