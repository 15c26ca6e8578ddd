"""When snapshots are written, what they contain, and what happens to those that are overtaken."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log import snapshot_generator
from pykraft.metadata_log.codec import encode_record
from pykraft.metadata_log.loader import MetadataLoader
from pykraft.metadata_log.records import FeatureLevelRecord, NoOpRecord, PartitionRecord, Record, TopicRecord
from pykraft.metadata_log.snapshot import SLICE_RECORDS
from pykraft.metadata_log.snapshot_generator import SnapshotGenerator
from pykraft.metadata_log.snapshot_schedule import SnapshotConfig, SnapshotSchedule
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.listener import CommittedBatch
from tests.asynchronous import in_loop
from tests.clocks import ManualClock
from tests.waits import settle, until

ID = Uuid(b"t" * 16)


class FakeWriter:
    def __init__(self, quorum: "FakeQuorum", end_offset: int, append_time_ms: int) -> None:
        self.quorum, self.end_offset, self.append_time_ms = quorum, end_offset, append_time_ms
        self.values: list[bytes] = []
        self.state = "open"

    def append(self, values: Sequence[bytes]) -> None:
        assert self.state == "open" and 0 < len(values) <= SLICE_RECORDS
        if self.quorum.fault is not None:
            raise self.quorum.fault
        self.values += values

    async def finish(self) -> None:
        assert self.state == "open"
        self.state = "finishing"
        await self.quorum.may_finish.wait()
        self.state = "finished"

    def abort(self) -> None:
        assert self.state == "open"
        self.state = "aborted"


class FakeQuorum:
    def __init__(self) -> None:
        self.writers: list[FakeWriter] = []
        self.fault: OSError | None = None
        self.latest = 0
        self.asked = 0
        self.may_finish = asyncio.Event()
        self.may_finish.set()

    def start_snapshot(self, end_offset: int, append_time_ms: int) -> FakeWriter | None:
        self.asked += 1
        if end_offset <= self.latest:
            return None
        self.latest = end_offset
        self.writers.append(FakeWriter(self, end_offset, append_time_ms))
        return self.writers[-1]


class World:
    def __init__(self, config: SnapshotConfig) -> None:
        self.clock = ManualClock(1_000)
        self.quorum = FakeQuorum()
        self.fatal: list[BaseException] = []
        self.generator = SnapshotGenerator(config, self.quorum, self.clock, self.fatal.append)
        self.loader = MetadataLoader(follower=self.generator)
        self.generator.start()

    def commit(self, *records: Record, size_bytes: int = 10) -> None:
        base = self.loader.offset + 1
        values = tuple(encode_record(record) for record in records)
        batch = CommittedBatch(base, base + len(records) - 1, 3, 777, values, size_bytes)
        self.loader.handle_commit([batch])

    def create(self, partitions: int, topic_id: Uuid = ID) -> None:
        created: list[Record] = [TopicRecord(topic_id.hex(), topic_id)]
        created += [PartitionRecord(index, topic_id, (1,), (1,), 1) for index in range(partitions)]
        self.commit(*created, size_bytes=100)

    async def written(self, count: int = 1) -> FakeWriter:
        await until(lambda: len(self.quorum.writers) == count)
        await until(lambda: self.quorum.writers[-1].state == "finished")
        return self.quorum.writers[-1]


@asynccontextmanager
async def begun(*, config: SnapshotConfig) -> AsyncIterator[World]:
    async with asyncio.timeout(20):
        world = World(config)
        yield world
        await world.generator.stop()


world = in_loop(begun)


@pytest.mark.world(config=SnapshotConfig(max_bytes=100, max_interval_ms=0))
async def test_snapshot_is_written_after_so_many_bytes_and_holds_the_image(world: World) -> None:
    world.commit(FeatureLevelRecord("f", 1), size_bytes=99)
    await settle()
    assert world.quorum.writers == []
    world.create(3)
    writer = await world.written()
    assert (writer.end_offset, writer.append_time_ms) == (5, 777)
    loaded = MetadataLoader()
    loaded.begin_snapshot(SnapshotId(writer.end_offset, 3), writer.append_time_ms)
    loaded.handle_snapshot_values(writer.values)
    loaded.finish_snapshot()
    assert loaded.image == world.loader.image


@pytest.mark.world(config=SnapshotConfig(max_bytes=100, max_interval_ms=0))
async def test_log_grows_while_an_older_image_is_written(world: World) -> None:
    world.create(5 * SLICE_RECORDS)
    await until(lambda: bool(world.quorum.writers) and bool(world.quorum.writers[0].values))
    image = world.loader.image
    world.commit(FeatureLevelRecord("later", 1), size_bytes=99)
    writer = await world.written()
    assert writer.end_offset == image.offset + 1
    assert len(writer.values) == 5 * SLICE_RECORDS + 1
    world.commit(NoOpRecord(), size_bytes=1)  # records committed meanwhile count for the next snapshot
    assert (await world.written(2)).end_offset == world.loader.offset + 1


@pytest.mark.world(config=SnapshotConfig(max_bytes=100, max_interval_ms=0))
async def test_snapshot_is_abandoned_when_a_newer_state_is_loaded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_generator, "PAUSE_S", 0)
    world.create(5 * SLICE_RECORDS)
    await until(lambda: bool(world.quorum.writers))
    world.loader.begin_snapshot(SnapshotId(1_000_000, 9), 888)
    assert world.quorum.writers[0].state == "aborted"
    world.loader.handle_snapshot_values([encode_record(FeatureLevelRecord("new", 2))])
    await settle()
    world.loader.finish_snapshot()
    await settle()
    assert world.quorum.asked == 1
    world.commit(NoOpRecord(), size_bytes=100)
    writer = await world.written(2)
    assert writer.end_offset == 1_000_001 and len(writer.values) == 1


@pytest.mark.world(config=SnapshotConfig(max_bytes=100, max_interval_ms=0))
async def test_state_loaded_while_a_snapshot_is_flushed_does_not_delay_the_next_one(world: World) -> None:
    world.quorum.may_finish.clear()
    world.create(3)
    await until(lambda: bool(world.quorum.writers) and world.quorum.writers[0].state == "finishing")
    world.loader.begin_snapshot(SnapshotId(1_000_000, 9), 888)
    world.loader.finish_snapshot()
    world.quorum.may_finish.set()
    await world.written()
    world.commit(NoOpRecord(), size_bytes=100)
    assert (await world.written(2)).end_offset == 1_000_001


@pytest.mark.world(config=SnapshotConfig(max_bytes=100, max_interval_ms=0))
async def test_unfinished_snapshot_at_a_stop_is_abandoned(world: World) -> None:
    world.create(5 * SLICE_RECORDS)
    await until(lambda: bool(world.quorum.writers))
    await world.generator.stop()
    assert world.quorum.writers[0].state == "aborted"
    assert world.fatal == []


@pytest.mark.world(config=SnapshotConfig(max_bytes=100, max_interval_ms=0))
async def test_disk_fault_while_writing_a_snapshot_is_fatal(world: World) -> None:
    world.quorum.fault = OSError(5, "input/output error")
    world.create(3)
    await until(lambda: bool(world.fatal))
    assert world.fatal == [world.quorum.fault]
    assert world.quorum.writers[0].state == "aborted"


@pytest.mark.world(config=SnapshotConfig(max_bytes=100, max_interval_ms=0))
async def test_existing_snapshot_is_not_requested_repeatedly(world: World) -> None:
    world.quorum.latest = 100
    world.create(3)
    await settle()
    world.commit(NoOpRecord(), size_bytes=99)
    await settle()
    assert world.quorum.writers == [] and world.fatal == []


@pytest.mark.world(config=SnapshotConfig(max_bytes=1000, max_interval_ms=40))
async def test_snapshot_is_written_after_a_while_if_anything_is_new(world: World) -> None:
    world.clock.now_ms += 40
    await settle()
    assert world.quorum.writers == []
    world.commit(NoOpRecord(), size_bytes=1)
    writer = await world.written()
    assert (writer.end_offset, writer.values) == (1, [])


@pytest.mark.parametrize(
    ("committed", "age_ms", "expected"),
    [
        (0, 5000, None),
        (1, 0, 60),
        (1, 59, 1),
        (1, 5000, 0),
        (99, 59, 1),
        (100, 0, 0),
    ],
)
def test_bytes_or_time_whichever_comes_first(committed: int, age_ms: int, expected: int | None) -> None:
    schedule = SnapshotSchedule(SnapshotConfig(100, 60), 1000)
    schedule.handle_commit(committed)
    assert schedule.wait_ms(1000 + age_ms) == expected


def test_without_a_bound_on_time_only_bytes_count() -> None:
    schedule = SnapshotSchedule(SnapshotConfig(100, 0), 0)
    schedule.handle_commit(99)
    assert schedule.wait_ms(1 << 40) is None
    schedule.handle_snapshot(5)
    schedule.handle_commit(100)
    assert schedule.wait_ms(5) == 0
