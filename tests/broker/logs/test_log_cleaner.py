"""A broker compacts its logs: what stays, what waits, and what ends a round.

It is long because every way to end a round begins with the same half-compacted log.
"""

import errno
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar, cast

import pytest

from pykraft.broker.config import CleanerConfig
from pykraft.broker.logs.log_cleaner import PAUSE_MS, LogCleaner
from pykraft.broker.logs.producers.verification import UNVERIFIED
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.markers import ABORT, EndOfTransaction, Marker
from pykraft.kafka_protocol.record_codec import RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.record_spans import iter_spans
from pykraft.kafka_protocol.records import HEADER_BYTES, assign_offset, read_header, write_crc
from pykraft.log_store import checkpoint
from pykraft.log_store.interface import CorruptLogError
from pykraft.metadata_log.image import PartitionRegistration
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.tasks import TaskSupervisor, Workers
from tests.batch_fields import BatchFields
from tests.broker.data_cluster import DataBroker, DataCluster
from tests.narrowing import present
from tests.unexpected import unexpected
from tests.waits import until

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "file.delete.delay.ms": "0"}
T = TypeVar("T")


def keyed(key: bytes, value: bytes | None, **fields: Any) -> bytes:
    typed: BatchFields = fields  # type: ignore[assignment]
    return encode_batch([RecordInput(key, value, (), 1_700_000_000_000)], **typed)


async def produce(
    cluster: DataCluster, leader: int, *records: tuple[bytes, bytes | None], topic: str = "t"
) -> None:
    client = await cluster.client(leader)
    for key, value in records:
        result = await client.produce(keyed(key, value), topic=topic, acks=1)
        assert result.error_code == ErrorCode.NONE


def roll(cluster: DataCluster, topic: str = "t") -> None:
    for broker in cluster.brokers.values():
        replica = broker.table.find(topic, 0)
        if replica is not None and broker.node_id in cluster.controller.brokers:
            replica.log.roll(0)


async def clean(broker: DataBroker) -> None:
    while await broker.data.cleaner.clean_dirtiest():
        pass


def stored(
    cluster: DataCluster, node_id: int, topic: str = "t"
) -> list[tuple[int, bytes | None, bytes | None]]:
    log = cluster.partition(node_id, topic).log
    return [
        (record.offset, record.key, record.value)
        for header, batch in log.iter_batches(0)
        for record in decode_batch(batch, header)
    ]


def offsets_of(cluster: DataCluster, node_id: int, topic: str = "t") -> list[int]:
    return [offset for offset, _, _ in stored(cluster, node_id, topic)]


A, B, C = (b"a", b"1"), (b"b", b"1"), (b"c", b"1")


@pytest.mark.world(brokers=(1, 2))
async def test_the_newest_record_of_each_key_stays_at_its_offset(cluster: DataCluster) -> None:
    await cluster.create(1, 2, configs=COMPACT)
    await produce(cluster, 1, A, B, A, C, B)
    await until(lambda: cluster.partition(2).high_watermark == 5)
    roll(cluster)
    await produce(cluster, 1, A, A)
    await until(lambda: cluster.partition(2).high_watermark == 7)
    for node_id in (1, 2):
        await clean(cluster.brokers[node_id])
        assert offsets_of(cluster, node_id) == [2, 3, 4, 5, 6]  # the head is whole
    client = await cluster.client(1)
    for offset in range(7):
        found = await client.fetch(offset)
        assert found.error_code == ErrorCode.NONE
        header = read_header(found.records or b"")
        assert header.base_offset <= offset < header.next_offset
    checkpoints = checkpoint.read_offset_checkpoint(cluster.disk(1), "/d1/cleaner-offset-checkpoint")
    assert checkpoints == {("t", 0): 5}
    await until(lambda: not any(name.endswith(".deleted") for name in cluster.disk(1).list("/d1/t-0")))


@pytest.mark.parametrize("power_loss", [None, *range(4)])
async def test_a_restart_knows_what_is_clean(cluster: DataCluster, power_loss: int | None) -> None:
    await cluster.create(1, configs=COMPACT)
    await produce(cluster, 1, A, B, A)
    roll(cluster)
    await produce(cluster, 1, B)
    await clean(cluster.brokers[1])
    before = stored(cluster, 1)
    broker = cluster.brokers[1]
    await broker.logs.checkpoints.write({("t", 0): 4})
    await broker.stop(clean=power_loss is None)
    if power_loss is not None:
        cluster.disk(1).crash(random.Random(power_loss))
    broker = await cluster.reopen(1)
    assert not broker.logs.offline
    assert stored(cluster, 1) == before
    assert broker.logs.checkpoints.cleaned_offset(broker.logs.logs["t", 0]) == 3
    await cluster.brokers[1].data.scrubber.scrub_all()
    assert not broker.logs.offline


async def test_nothing_is_compacted_that_is_not_committed(cluster: DataCluster) -> None:
    await cluster.create(1, 2, configs=COMPACT)
    await produce(cluster, 1, A, A)
    roll(cluster)
    await produce(cluster, 1, A)
    partition = cluster.partition(1)
    for committed, left in ((1, [0, 1, 2]), (2, [1, 2])):
        partition.handle_follower_fetch(2, committed, 100, 0, 0)
        assert partition.high_watermark == committed
        await clean(cluster.brokers[1])
        assert offsets_of(cluster, 1) == left


@pytest.mark.world(brokers=(1, 2))
async def test_a_follower_that_ends_within_what_was_removed_follows_on(cluster: DataCluster) -> None:
    await cluster.create(1, 2, configs=COMPACT)
    await produce(cluster, 1, A, A)
    await until(lambda: cluster.partition(2).high_watermark == 2)
    await cluster.brokers[2].stop()
    await produce(cluster, 1, A)
    await cluster.shrink(1)
    await produce(cluster, 1, A, B)
    roll(cluster)
    await produce(cluster, 1, C)
    await clean(cluster.brokers[1])
    assert offsets_of(cluster, 1) == [3, 4, 5]
    await cluster.reopen(2)
    await until(lambda: cluster.partition(2).high_watermark == 6)
    assert offsets_of(cluster, 2) == [0, 1, 3, 4, 5]
    next_offset = 0
    for header in cluster.partition(2).log.iter_headers(0):
        assert header.base_offset == next_offset
        next_offset = header.next_offset
    assert not cluster.controller.lost
    await cluster.brokers[2].data.scrubber.scrub_all()
    assert not cluster.brokers[2].logs.offline


async def follow(cluster: DataCluster, node_id: int) -> None:
    """Start a broker with a new replica; wait until it has everything that its leader has committed."""
    await cluster.start(node_id)
    old, end_offset = cluster.controller.partition(), cluster.partition(1).log.log_end_offset
    replicas = (*old.replicas, node_id)
    cluster.controller.set_partition(replace(old, replicas=replicas, partition_epoch=old.partition_epoch + 1))
    await until(lambda: cluster.brokers[node_id].table.find("t", 0))
    await until(lambda: cluster.partition(node_id).high_watermark == end_offset)


@pytest.mark.world(brokers=(1, 3))
@pytest.mark.parametrize(
    ("cleaned", "restarts"),
    [(2, False), (2, True), (1, False)],
    ids=["compacted here", "compacted before a crash", "copied from a compacted log"],
)
async def test_a_follower_that_lost_what_its_leader_still_has_is_copied_anew(
    cluster: DataCluster, cleaned: int, restarts: bool
) -> None:
    """The newest record of a key is lost with all disks that are left but one, whose log diverges before it.
    The one before counts again; that disk has compacted it away."""
    await cluster.create(1, 3, configs=COMPACT)
    await produce(cluster, 1, A)
    await until(lambda: cluster.partition(3).high_watermark == 1)
    await cluster.brokers[3].stop()
    await produce(cluster, 1, B)
    await cluster.shrink(1)
    if cleaned == 2:
        await follow(cluster, 2)
    await produce(cluster, 1, A)
    if cleaned == 2:
        await until(lambda: cluster.partition(2).high_watermark == 3)
    roll(cluster)
    await produce(cluster, 1, C)
    if cleaned == 2:
        await until(lambda: cluster.partition(2).high_watermark == 4)
    await clean(cluster.brokers[cleaned])
    if cleaned == 1:
        await follow(cluster, 2)
    assert offsets_of(cluster, 2) == [1, 2, 3]
    await cluster.brokers[1].stop()
    if restarts:
        await cluster.brokers[2].stop(clean=False)
        assert not cluster.disk(2).exists("/d2/replication-offset-checkpoint")
    await cluster.start(3)
    cluster.controller.elect(3, (3,))
    if restarts:
        await cluster.start(2)
    await produce(cluster, 3, B, B)
    await until(lambda: set(cluster.controller.partition().isr) == {2, 3})
    assert stored(cluster, 2) == stored(cluster, 3) == [(0, *A), (1, *B), (2, *B)]
    assert cluster.controller.lost == [(2, "t")]


@pytest.mark.world(brokers=(1, 2))
@pytest.mark.parametrize("cut", ["uncommitted", "everything"])
async def test_a_compacted_log_is_truncated_where_nothing_of_it_can_be_missing(
    cluster: DataCluster, cut: str
) -> None:
    await cluster.create(1, 2, configs=COMPACT)
    await produce(cluster, 1, A, A)
    await until(lambda: cluster.partition(2).high_watermark == 2)
    roll(cluster)
    await produce(cluster, 1, A)
    await until(lambda: cluster.partition(2).high_watermark == 3)
    await clean(cluster.brokers[2])
    await cluster.brokers[1].stop()
    follower = cluster.partition(2)
    tail = bytearray(keyed(*B))
    assign_offset(tail, 0, 3, 0)
    follower.append_as_follower(memoryview(tail), 0)
    end_offset = 3 if cut == "uncommitted" else 0
    assert follower.truncate_to_divergence(0, end_offset) == end_offset
    assert not cluster.controller.lost


async def test_a_log_that_is_compacted_no_more_is_still_read_copied_and_scrubbed(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, configs=COMPACT)
    await produce(cluster, 1, A, A, B, A)
    roll(cluster)
    await produce(cluster, 1, C)
    await clean(cluster.brokers[1])
    await cluster.start(2)
    replicas = PartitionRegistration((1, 2), (1,), 1, 1, 1)
    cluster.controller.set_partition(replicas, configs={"cleanup.policy": "delete"})
    cluster.brokers[1].data.publisher._reconfigure("t")
    cluster.brokers[1].data.publisher.apply_some()
    await until(lambda: cluster.brokers[2].table.find("t", 0))
    await until(lambda: cluster.partition(2).high_watermark == 5)
    for node_id in (1, 2):
        assert offsets_of(cluster, node_id) == [2, 3, 4]
        await cluster.brokers[node_id].data.scrubber.scrub_all()
    client = await cluster.client(1)
    assert (await client.fetch(0)).error_code == ErrorCode.NONE
    assert not cluster.controller.lost


async def test_a_coordinator_loads_only_what_is_live(cluster: DataCluster) -> None:
    await cluster.create(1, configs=COMPACT)
    await produce(cluster, 1, *[(b"k%d" % (number % 3), b"v%d" % number) for number in range(40)])
    roll(cluster)
    await produce(cluster, 1, (b"k0", None))
    await clean(cluster.brokers[1])
    log = cluster.brokers[1].coordinator_log()
    offset, loaded = 0, []
    while offset < 41:
        batches, offset = await log.read(0, offset)
        loaded += [span for batch in batches for span in iter_spans(batch.body, batch.record_count)]
    keys = [(span.key, span.is_tombstone) for span in loaded]
    assert keys == [(b"k1", False), (b"k2", False), (b"k0", False), (b"k0", True)]


async def test_a_batch_that_was_compacted_away_is_still_a_duplicate(cluster: DataCluster) -> None:
    await cluster.create(1, configs=COMPACT)
    client = await cluster.client(1)
    batches = [
        keyed(b"a", b"%d" % number, producer_id=9, producer_epoch=0, base_sequence=number)
        for number in range(4)
    ]
    for offset, batch in enumerate(batches):
        assert (await client.produce(batch)).base_offset == offset
    roll(cluster)
    await produce(cluster, 1, A)
    await clean(cluster.brokers[1])
    assert offsets_of(cluster, 1) == [3, 4]
    await cluster.brokers[1].stop(clean=False)
    for name in cluster.disk(1).list("/d1/t-0"):
        if name.endswith(".snapshot"):
            cluster.disk(1).remove(f"/d1/t-0/{name}")
    await cluster.reopen(1)
    client = await cluster.client(1)
    for offset, batch in enumerate(batches):
        assert (await client.produce(batch)).base_offset == offset
    assert cluster.partition(1).log.log_end_offset == 5


async def test_producers_that_were_forgotten_and_compacted_away_may_go_on(cluster: DataCluster) -> None:
    await cluster.create(1, configs=COMPACT)
    client = await cluster.client(1)
    first = keyed(b"a", b"1", producer_id=9, producer_epoch=0, base_sequence=0)
    await client.produce(first)
    roll(cluster)
    await produce(cluster, 1, A)
    roll(cluster)
    await produce(cluster, 1, B)
    broker = cluster.brokers[1]
    for now_ms in (0, 1000):
        broker.logs.producers.expire(("t", 0), now_ms, 10)
    await clean(broker)
    assert offsets_of(cluster, 1) == [1, 2]
    await broker.stop(clean=False)
    for name in cluster.disk(1).list("/d1/t-0"):
        if name.endswith(".snapshot"):
            cluster.disk(1).remove(f"/d1/t-0/{name}")
    await cluster.reopen(1)
    client = await cluster.client(1)
    second = keyed(b"a", b"2", producer_id=9, producer_epoch=0, base_sequence=1)
    assert (await client.produce(second)).error_code == ErrorCode.NONE


@pytest.mark.world(brokers=(1, 2))
async def test_damage_is_not_given_a_new_checksum(cluster: DataCluster) -> None:
    await cluster.create(1, 2, configs=COMPACT)
    await produce(cluster, 1, A, A, B)
    await until(lambda: cluster.partition(2).high_watermark == 3)
    roll(cluster)
    await produce(cluster, 1, C)
    await until(lambda: cluster.partition(2).high_watermark == 4)
    path = f"/d1/t-0/{0:020d}.log"
    cluster.disk(1).flip_bit(path, len(cluster.disk(1).read(path)) - 3, 1)
    await clean(cluster.brokers[1])
    await until(lambda: cluster.controller.lost == [(1, "t")])
    assert not any(
        name.endswith((".cleaned", ".swap")) for name in cluster.disk(1).list("/d1/t-0.00000000-damaged")
    )


def unreadable_records() -> bytes:
    """A batch with a right checksum over records that cannot be decoded."""
    batch = bytearray(keyed(b"a", b"1", base_offset=0, leader_epoch=0))
    batch[HEADER_BYTES] = 0xFF
    write_crc(batch, 0, len(batch))
    return bytes(batch)


async def test_a_log_that_cannot_be_compacted_costs_no_other(
    cluster: DataCluster, caplog: pytest.LogCaptureFixture
) -> None:
    for topic in ("t", "u"):
        await cluster.create(1, configs=COMPACT, topic=topic)
    bad = unreadable_records()
    cluster.partition(1, "t").log.append(bad, [read_header(bad)], now_ms=0)
    cluster.partition(1, "t")._recount()
    await produce(cluster, 1, A, A, topic="u")
    for topic in ("t", "u"):
        roll(cluster, topic)
        await produce(cluster, 1, A, topic=topic)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            await clean(cluster.brokers[1])
    assert offsets_of(cluster, 1, "u") == [1, 2]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "t-0 cannot be compacted and is left as it is"
    ]
    assert not cluster.brokers[1].logs.offline
    assert not any(name.endswith(".cleaned") for name in cluster.disk(1).list("/d1/t-0"))


async def test_a_full_disk_costs_the_round_only(cluster: DataCluster) -> None:
    await cluster.create(1, configs=COMPACT)
    await produce(cluster, 1, A, A)
    roll(cluster)
    await produce(cluster, 1, A)
    cluster.disk(1).inject("append", errno.ENOSPC, path_part=".cleaned")
    await clean(cluster.brokers[1])
    assert offsets_of(cluster, 1) == [0, 1, 2]
    assert not any(name.endswith(".cleaned") for name in cluster.disk(1).list("/d1/t-0"))


async def test_a_log_for_which_there_was_no_room_is_tried_again_later(cluster: DataCluster) -> None:
    await cluster.create(1, configs=COMPACT)
    await produce(cluster, 1, A, A)
    roll(cluster)
    await produce(cluster, 1, A)
    broker, clock = cluster.brokers[1], StandingClock()
    broker.data.cleaner._clock = clock
    cluster.disk(1).inject("append", errno.ENOSPC, path_part=".cleaned")
    assert not await broker.data.cleaner.clean_dirtiest()
    clock.slept_ms += PAUSE_MS - 1
    assert not await broker.data.cleaner.clean_dirtiest()
    assert offsets_of(cluster, 1) == [0, 1, 2]
    clock.slept_ms += 1
    assert await broker.data.cleaner.clean_dirtiest()
    assert offsets_of(cluster, 1) == [1, 2]
    assert broker.logs.dirs.online == ["/d1"]


class Steps(Workers):
    """Runs jobs of compaction when they were started; before each a test may do something."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[int, Callable[[], Coroutine[Any, Any, None]]] = {}
        self.count = 0

    async def run(self, job: Callable[[], T]) -> T:
        self.count += 1
        if self.count in self.before:
            await self.before.pop(self.count)()
        return job()


async def cleaner_of(broker: DataBroker, workers: Workers, config: CleanerConfig | None = None) -> LogCleaner:
    settings = config or CleanerConfig(io_buffer_bytes=1)
    return LogCleaner(
        broker.logs,
        broker.table.last_stable_offset,
        lambda: settings,
        SystemClock(),
        workers,
        broker.data.tasks,
    )


async def three_segments(cluster: DataCluster, configs: dict[str, str] = COMPACT) -> None:
    await cluster.create(1, configs=configs)
    for _ in range(3):
        await produce(cluster, 1, A, B, A)
        roll(cluster)
    await produce(cluster, 1, C)
    await cluster.brokers[1].logs.flush(("t", 0))


async def test_open_transaction_holds_back_the_cleaner(cluster: DataCluster) -> None:
    await cluster.create(1, configs=COMPACT)
    broker, replica = cluster.brokers[1], cluster.partition(1)
    await produce(cluster, 1, A, B, A)
    roll(cluster)
    data = memoryview(
        bytearray(keyed(*C, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    )
    replica.append_as_leader(data, read_header(data), 0, all_acks=True, guard=UNVERIFIED)
    await produce(cluster, 1, A, B)
    roll(cluster)
    await produce(cluster, 1, A)
    await clean(broker)
    assert replica.last_stable_offset == broker.logs.checkpoints.cleaned_offset(broker.logs.logs["t", 0]) == 3
    assert [key for _, key, _ in stored(cluster, 1)] == [b"b", b"a", b"c", b"a", b"b", b"a"]
    replica.end_transaction(EndOfTransaction(7, 0, Marker(ABORT, 0)), 0)
    roll(cluster)
    await clean(broker)
    kept = [(key, value) for _, key, value in stored(cluster, 1) if key in (b"a", b"b", b"c")]
    assert kept == [B, A]


@pytest.mark.parametrize("when", range(1, 40, 3))
async def test_a_topic_that_is_deleted_beside_a_round_leaves_nothing(cluster: DataCluster, when: int) -> None:
    await three_segments(cluster)
    broker, workers = cluster.brokers[1], Steps()

    async def delete() -> None:
        cluster.controller.delete_topic("t")
        await until(lambda: ("t", 0) not in broker.logs.logs)

    workers.before[when] = delete
    await (await cleaner_of(broker, workers)).clean_dirtiest()
    if when in workers.before:
        await delete()
    await until(lambda: not broker.disk.exists("/d1/t-0"))
    assert not broker.logs.offline


@pytest.mark.parametrize("when", range(1, 40, 3))
async def test_a_truncation_beside_a_round_ends_it(cluster: DataCluster, when: int) -> None:
    await three_segments(cluster)
    broker, workers, log = cluster.brokers[1], Steps(), cluster.partition(1).log

    async def truncate() -> None:
        log.truncate_to(4)

    workers.before[when] = truncate
    await (await cleaner_of(broker, workers)).clean_dirtiest()
    if when in workers.before:
        await truncate()
    files = checkpoint.read_offset_checkpoint(cluster.disk(1), "/d1/cleaner-offset-checkpoint")
    assert files.get(("t", 0), 0) <= log.log_end_offset <= 4
    assert [key for _, key, _ in stored(cluster, 1)][-1:] in ([b"a"], [])
    assert not any(name.endswith((".cleaned", ".swap")) for name in broker.disk.list("/d1/t-0"))
    assert not broker.logs.offline


@pytest.mark.parametrize("when", range(1, 40, 3))
async def test_retention_beside_a_round_ends_it(cluster: DataCluster, when: int) -> None:
    configs = {**COMPACT, "cleanup.policy": "compact,delete", "retention.ms": "1"}
    await three_segments(cluster, configs)
    broker, workers, log = cluster.brokers[1], Steps(), cluster.partition(1).log

    async def retain() -> None:
        await broker.data.maintenance.delete_old_segments()

    workers.before[when] = retain
    await (await cleaner_of(broker, workers)).clean_dirtiest()
    if when in workers.before:
        await retain()
    assert log.log_start_offset == log.log_end_offset == 10
    assert not any(name.endswith((".cleaned", ".swap")) for name in broker.disk.list("/d1/t-0"))
    assert not broker.logs.offline


async def test_scrub_and_readers_beside_a_replacement_see_no_damage(cluster: DataCluster) -> None:
    await three_segments(cluster, {**COMPACT, "file.delete.delay.ms": "60000"})
    broker, log = cluster.brokers[1], cluster.partition(1).log
    opened, scrubber = broker.logs.logs["t", 0], broker.data.scrubber
    piece = present(log.read(4, 1 << 20))
    as_before = piece.file.pread(piece.position, piece.size_bytes)
    walking = log.iter_headers(0)
    next(walking)
    rewrites = log.rewrite_count
    for segment in log._segments[:-1]:
        segment.release_files(is_urgent=True)
    await clean(broker)
    assert piece.file.pread(piece.position, piece.size_bytes) == as_before
    assert [header.base_offset for header in walking] == list(range(1, 10))

    def look() -> None:
        raise CorruptLogError(f"/d1/t-0/{0:020d}.log", 0, "this is another file now")

    assert not await scrubber._is_sound(opened, rewrites, look)
    assert not broker.logs.offline


async def test_the_throttle_counts_what_is_read_and_written(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await three_segments(cluster)
    clock = StandingClock()
    config = CleanerConfig(io_buffer_bytes=100, max_io_bytes_per_second=1000.0)
    cleaner = sleepless_cleaner(cluster.brokers[1], clock, lambda: config)
    size = sum(segment.size_bytes for segment in cluster.partition(1).log._segments[:-1])
    assert await cleaner.clean_dirtiest()
    assert 2 * size - 300 <= clock.slept_ms <= 4 * size


async def test_a_throttle_that_is_lifted_holds_nothing_back_any_more(cluster: DataCluster) -> None:
    await three_segments(cluster)
    clock = StandingClock()

    def config() -> CleanerConfig:
        is_slow = clock.slept_ms < 1000
        return CleanerConfig(max_io_bytes_per_second=0.0 if is_slow else 1e300)

    cleaner = sleepless_cleaner(cluster.brokers[1], clock, config)
    assert await cleaner.clean_dirtiest()
    assert 1000 <= clock.slept_ms < 1500


async def test_a_pause_between_two_looks_for_work_that_is_made_shorter_ends_sooner(
    cluster: DataCluster,
) -> None:
    clock = StandingClock()

    def config() -> CleanerConfig:
        is_long = clock.slept_ms < 60_000
        return CleanerConfig(backoff_ms=(1 << 63) - 1 if is_long else 90_000)

    await sleepless_cleaner(cluster.brokers[1], clock, config)._back_off()
    assert clock.slept_ms == 90_000


def sleepless_cleaner(
    broker: DataBroker, clock: "StandingClock", config: Callable[[], CleanerConfig]
) -> LogCleaner:
    """One whose pauses take no time."""

    class Sleepless(TaskSupervisor):
        async def sleep(self, duration_ms: int) -> None:
            clock.slept_ms += duration_ms

    tasks = Sleepless(unexpected)
    return LogCleaner(broker.logs, broker.table.last_stable_offset, config, clock, Steps(), tasks)


class StandingClock:
    """Stands still unless somebody sleeps."""

    def __init__(self) -> None:
        self.slept_ms = 0

    def wall_ms(self) -> int:
        return 1_700_000_100_000 + self.slept_ms

    def monotonic_ms(self) -> int:
        return 5 + self.slept_ms


async def test_an_idle_broker_looks_into_no_file(cluster: DataCluster) -> None:
    await three_segments(cluster)
    await cluster.create(1, topic="u")
    await produce(cluster, 1, A, A, topic="u")
    broker = cluster.brokers[1]
    await clean(broker)
    await until(lambda: not any(name.endswith(".deleted") for name in cluster.disk(1).list("/d1/t-0")))
    before = len(cluster.disk(1).calls)
    for _ in range(3):
        assert not await broker.data.cleaner.clean_dirtiest()
    assert len(cluster.disk(1).calls) == before


async def test_records_that_are_too_new_to_be_compacted_are_not_flushed_for_it(
    cluster: DataCluster,
) -> None:
    await three_segments(cluster)
    broker = cluster.brokers[1]
    await clean(broker)
    log = cluster.partition(1).log
    recovery_point = log.recovery_point
    await produce(cluster, 1, A, A)
    assert not await broker.data.cleaner.clean_dirtiest()
    assert log.recovery_point == recovery_point < log.log_end_offset
    roll(cluster)
    assert await broker.data.cleaner.clean_dirtiest()
    assert log.recovery_point == log.log_end_offset


async def test_settings_take_effect_while_brokers_run(cluster: DataCluster) -> None:
    await three_segments(cluster)
    broker = cluster.brokers[1]
    cluster.controller.set_configs(4, "", {"log.cleaner.threads": "0"})
    assert not await broker.data.cleaner.clean_dirtiest()
    cluster.controller.set_configs(4, "1", {"log.cleaner.threads": "2"})
    assert await broker.data.cleaner.clean_dirtiest()


async def test_a_log_that_is_being_moved_is_not_compacted(cluster: DataCluster) -> None:
    await three_segments(cluster)
    broker = cluster.brokers[1]
    futures = cast("dict[tuple[str, int], object]", broker.logs.futures)
    futures["t", 0] = object()
    assert not await broker.data.cleaner.clean_dirtiest()
    futures.clear()
    workers = Steps()

    async def move() -> None:
        futures["t", 0] = object()

    workers.before[4] = move
    assert not await (await cleaner_of(broker, workers)).clean_dirtiest()
    assert offsets_of(cluster, 1) == list(range(10))
    assert not any(name.endswith(".cleaned") for name in broker.disk.list("/d1/t-0"))
    futures.clear()


@pytest.mark.world(brokers=())
async def test_a_moved_log_is_as_clean_as_it_was(cluster: DataCluster) -> None:
    broker = await cluster.start(1, log_dirs=("/d1", "/e1"))
    await three_segments(cluster)
    await clean(broker)
    cleaned, offsets = (
        broker.logs.checkpoints.cleaned_offset(broker.logs.logs["t", 0]),
        offsets_of(cluster, 1),
    )
    assert cleaned and len(offsets) < 10
    broker.data.moves.move(("t", 0), "/e1")
    await until(lambda: broker.logs.logs["t", 0].log_dir == "/e1")
    await until(lambda: broker.logs.checkpoints.cleaned_offset(broker.logs.logs["t", 0]))
    assert broker.logs.checkpoints.cleaned_offset(broker.logs.logs["t", 0]) == cleaned
    assert cluster.partition(1).log.cleaned_end_offset == cleaned
    assert offsets_of(cluster, 1) == offsets
    assert not await broker.data.cleaner.clean_dirtiest()


async def test_a_round_is_stored_when_its_segments_are_durable(cluster: DataCluster) -> None:
    await three_segments(cluster)
    disk, logs = cluster.disk(1), cluster.brokers[1].logs
    opened = logs.logs["t", 0]
    await logs.flush_up_to(opened, opened.log.log_end_offset)
    await logs.producers.stop()  # no other flush comes between, not even that of a snapshot
    disk.calls.clear()
    await clean(cluster.brokers[1])
    calls = [(call.operation, call.target or call.path) for call in disk.calls]
    replaced = calls.index(("rename", f"/d1/t-0/{0:020d}.log"))
    stored_at = calls.index(("rename", "/d1/cleaner-offset-checkpoint"))
    assert ("flush_dir", "/d1/t-0") in calls[replaced:stored_at]


@pytest.mark.world(brokers=())
@pytest.mark.parametrize(
    ("operations", "part"),
    [
        (("write_atomic",), "/d1/cleaner-offset"),
        (("rename",), "/d1/cleaner-offset"),
        (("rename",), "/d1/t-0"),
        (("flush_dir",), "/d1/t-0"),
        (("append", "remove"), ".cleaned"),
    ],
)
async def test_a_directory_that_fails_in_a_round_costs_no_other(
    cluster: DataCluster, operations: tuple[str, ...], part: str
) -> None:
    broker = await cluster.start(1, log_dirs=("/d1", "/e1"))
    await three_segments(cluster)
    for operation in operations:
        cluster.disk(1).inject(operation, errno.EIO, path_part=part, times=100)
    await broker.data.cleaner.clean_dirtiest()
    assert broker.logs.dirs.offline.keys() == {"/d1"}
    assert broker.faults == []


async def test_the_transaction_index_of_a_deleted_segment_goes_with_it(cluster: DataCluster) -> None:
    await three_segments(cluster)
    disk, log = cluster.disk(1), cluster.partition(1).log
    disk.write_atomic(f"/d1/t-0/{3:020d}.txnindex", b"")
    log.truncate_to(1)
    await until(lambda: not any(name.startswith(f"{3:020d}") for name in disk.list("/d1/t-0")))


async def test_log_whose_producers_are_read_again_is_not_compacted(cluster: DataCluster) -> None:
    """It is not known then which batches their state rests on."""
    await three_segments(cluster)
    broker, before = cluster.brokers[1], stored(cluster, 1)
    due = await broker.data.cleaner._find_due()
    cluster.partition(1).producers.fall_behind()
    assert not await broker.data.cleaner.clean_dirtiest()
    for _, opened, cleanable in due:  # found before they were lost
        assert not await broker.data.cleaner._clean(opened, cleanable, CleanerConfig())
    assert due and stored(cluster, 1) == before
    await broker.logs.producers.rebuild(("t", 0), 10)
    assert await broker.data.cleaner.clean_dirtiest()
