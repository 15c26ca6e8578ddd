"""The image that tools read from the files of a metadata log, without a node."""

from collections.abc import Iterable

import pytest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import assign_offset
from pykraft.metadata_log.codec import encode_record
from pykraft.metadata_log.offline import read_image
from pykraft.metadata_log.records import PartitionRecord, TopicRecord
from pykraft.metadata_log.snapshot import iter_snapshot_values
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.metadata_log.harness import ControllerHarness

END, EPOCH = 1000, 7
SNAPSHOT = f"/m/{END:020d}-{EPOCH:010d}.checkpoint"
NEW = Uuid(b"n" * 16)


def written(values: Iterable[bytes], offset: int) -> bytes:
    data = bytearray(encode_batch([RecordInput(None, value, (), 0) for value in values]))
    assign_offset(data, 0, offset, EPOCH)
    return bytes(data)


def new_topic(offset: int) -> bytes:
    """Two records: a topic with one partition."""
    partition = PartitionRecord(0, NEW, (1,), (1,), leader=1, leader_epoch=0, partition_epoch=0)
    return written([encode_record(TopicRecord("new", NEW)), encode_record(partition)], offset)


@pytest.fixture
def disk(cluster: ControllerHarness) -> MemoryDisk:
    """With the snapshot of a cluster that has two topics."""
    cluster.create_assigned("t", [1, 2], [2, 3])
    cluster.create_assigned("u", [3])
    disk = MemoryDisk()
    disk.make_dirs("/m")
    content, offset = b"", 0
    for values in iter_snapshot_values(cluster.image):
        content += written(values, offset)
        offset += len(values)
    disk.write_atomic(SNAPSHOT, content)
    return disk


@pytest.mark.parametrize("path", [SNAPSHOT, "/m"], ids=["the file", "its directory"])
def test_image_of_a_snapshot_is_that_of_the_cluster(
    cluster: ControllerHarness, disk: MemoryDisk, path: str
) -> None:
    image = read_image(disk, path)
    assert list(iter_snapshot_values(image)) == list(iter_snapshot_values(cluster.image))
    assert sorted(topic.name for topic in image.topics_by_id.values()) == ["t", "u"]
    assert (image.offset, image.epoch) == (END - 1, EPOCH)


def test_records_after_the_snapshot_are_replayed_and_those_before_it_are_not(disk: MemoryDisk) -> None:
    garbage = written([b"not a record"], END - 1)
    disk.write_atomic(f"/m/{END - 1:020d}.log", garbage + new_topic(END))
    image = read_image(disk, "/m")
    topic = image.topic("new")
    assert topic is not None and len(topic.partitions) == 1
    assert image.offset == END + 1


def test_missing_records_are_an_error_that_names_the_file(disk: MemoryDisk) -> None:
    path = f"/m/{END + 1:020d}.log"
    disk.write_atomic(path, new_topic(END + 1))
    with pytest.raises(ValueError, match=f"{path} continues at offset {END + 1}, offset {END} is missing"):
        read_image(disk, "/m")


def test_directory_without_a_log_is_an_error(disk: MemoryDisk) -> None:
    disk.make_dirs("/empty")
    with pytest.raises(ValueError, match="/empty holds no segment"):
        read_image(disk, "/empty")
