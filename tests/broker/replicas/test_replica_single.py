"""One broker's Produce and Fetch over a real socket."""

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages import records
from pykraft.kafka_protocol.records import read_header
from pykraft.metadata_log.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from pykraft.metadata_log.image import PartitionRegistration
from pykraft.runtime.disk import Disk
from tests.broker.answers import refused
from tests.broker.data_cluster import DataCluster, make_batch, running_cluster, values_in
from tests.narrowing import present
from tests.stand_ins import interpreted_only
from tests.waits import until

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


@LOOPS
@pytest.mark.parametrize("version", [3, 5, 8, 9, 10, 12, 13])
async def test_what_was_produced_is_fetched(
    cluster: DataCluster, new_loop: Callable[[], asyncio.AbstractEventLoop], version: int
) -> None:
    await cluster.create(1)
    client = await cluster.client(1)
    for i in range(3):
        result = await client.produce(make_batch(b"a%d" % i, b"b%d" % i), version=version)
        assert (result.error_code, result.base_offset) == (0, 2 * i)
    for fetch_version in (4, 6, 11, 12, 13, 17, 18):
        got = await client.fetch(0, version=fetch_version)
        assert got.high_watermark == 6
        assert values_in(got.records) == [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2"]
    assert values_in((await client.fetch(3)).records)[-2:] == [b"a2", b"b2"]


@LOOPS
async def test_large_batches_are_returned_unchanged(
    cluster: DataCluster, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    await cluster.create(1, configs={"max.message.bytes": "10000000"})
    client = await cluster.client(1)
    values = [bytes([i]) * (700_000 + i) for i in range(5)]
    for value in values:
        client.send_produce(make_batch(value), acks=1)
    for _ in values:
        assert (await client.produced()).error_code == 0
    got = await client.fetch(0, max_bytes=50_000_000)
    assert values_in(got.records) == values
    assert values_in((await client.fetch(2, max_bytes=1)).records) == values[2:3]


@LOOPS
@pytest.mark.parametrize("way", ["copy", "sendfile", pytest.param("transport", marks=interpreted_only)])
async def test_real_files_are_sent_in_every_way(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    way: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pykraft.runtime.network.sinks import TransportSink
    from pykraft.runtime.network.tcp import StreamConnection
    from pykraft.runtime.os_disk import OsDisk

    if way == "transport":
        monkeypatch.setattr(StreamConnection, "_make_sink", lambda self: TransportSink(self._transport))
    disks: dict[int, Disk] = {1: OsDisk()}
    async with running_cluster(disks=disks, log_dirs=(str(tmp_path),)) as cluster:
        cluster.brokers[1].runtime.sendfile = way == "sendfile"
        await cluster.create(1, configs={"max.message.bytes": "10000000"})
        client = await cluster.client(1)
        values = [bytes([i]) * 900_000 for i in range(12)]
        for value in values:
            await client.produce(make_batch(value))
        for _ in range(3):
            client.send_fetch(0, max_bytes=50_000_000)
        await until(lambda: cluster.brokers[1].received[ApiKey.FETCH] == 3)
        for _ in range(3):
            assert values_in((await client.fetched()).records) == values


async def test_fetch_waits_for_data_and_for_min_bytes(cluster: DataCluster) -> None:
    await cluster.create(1)
    producer, consumer = await cluster.client(1), await cluster.client(1)
    consumer.send_fetch(0, max_wait_ms=500)
    await until(lambda: cluster.partition(1).consumer_waiters)
    assert not (await consumer.fetched()).records
    consumer.send_fetch(0, max_wait_ms=10_000)
    await until(lambda: cluster.partition(1).consumer_waiters)
    await producer.produce(make_batch(b"x"))
    assert values_in((await consumer.fetched()).records) == [b"x"]
    consumer.send_fetch(1, max_wait_ms=10_000, min_bytes=250)
    for _ in range(4):
        await producer.produce(make_batch(b"y"))
    assert len(values_in((await consumer.fetched()).records)) == 4
    assert not cluster.partition(1).consumer_waiters
    consumer.send_fetch(5, max_wait_ms=600_000)
    await until(lambda: cluster.partition(1).consumer_waiters)
    consumer.close()
    await until(lambda: not cluster.partition(1).consumer_waiters)
    assert len(cluster.brokers[1].data.wakeups.deadlines) == 0


async def test_bad_batches_get_the_right_error(cluster: DataCluster) -> None:
    good: bytes = make_batch(b"v")

    def patched(position: int, value: bytes) -> bytes:
        return good[:position] + value + good[position + len(value) :]

    cases: list[tuple[bytes | None, ErrorCode]] = [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (good[:30], ErrorCode.CORRUPT_MESSAGE),
        (good[:-1], ErrorCode.CORRUPT_MESSAGE),
        (good + good, ErrorCode.INVALID_RECORD),
        (patched(16, b"\x01"), ErrorCode.INVALID_RECORD),
        (patched(17, b"\0\0\0\0"), ErrorCode.CORRUPT_MESSAGE),
        (patched(62, b"\xff"), ErrorCode.CORRUPT_MESSAGE),
        (patched(8, struct.pack(">i", -5)), ErrorCode.CORRUPT_MESSAGE),
        (make_batch(b"v", is_control=True), ErrorCode.INVALID_RECORD),
        (
            make_batch(b"v", is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (make_batch(b"v", timestamp_ms=10**15), ErrorCode.INVALID_TIMESTAMP),
        (make_batch(b"v" * 2000), ErrorCode.MESSAGE_TOO_LARGE),
    ]
    await cluster.create(1, configs={"max.message.bytes": "1000"})
    client = await cluster.client(1)
    for batch, expected in cases:
        result = await client.produce(batch)
        assert ErrorCode(result.error_code) is expected
        assert result.error_message
    assert (await client.produce(good)).base_offset == 0
    for acks in (2, -2):
        assert (await client.produce(good, acks=acks)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert (await client.produce(good, topic="absent")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_log_append_time_is_stamped_and_returned(cluster: DataCluster) -> None:
    await cluster.create(1, configs={"message.timestamp.type": "LogAppendTime"})
    client = await cluster.client(1)
    result = await client.produce(make_batch(b"v", timestamp_ms=5))
    header = read_header(bytes(present((await client.fetch(0)).records)))
    assert header.is_log_append_time and header.max_timestamp == result.log_append_time_ms > 10**12


async def test_acks_zero_is_not_answered_and_a_failure_closes_the_connection(cluster: DataCluster) -> None:
    await cluster.create(1)
    client = await cluster.client(1)
    client.send_produce(make_batch(b"v"), acks=0)
    client._asked.pop()
    assert (await client.produce(make_batch(b"w"), acks=1)).base_offset == 1
    client.send_produce(b"rubbish", acks=0)
    assert await client.reader.read() == b""


async def test_idempotent_duplicates_get_the_original_offset(cluster: DataCluster) -> None:
    await cluster.create(1)
    client = await cluster.client(1)

    async def send(sequence: int, epoch: int = 0) -> records.PartitionProduceResponse:
        batch = make_batch(b"a", b"b", producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        return await client.produce(batch)

    assert (await send(2)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [(await send(s)).base_offset for s in (0, 2, 2, 0, 4)] == [0, 2, 2, 0, 4]
    assert (await send(8)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await send(3, epoch=1)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await send(0, epoch=1)).base_offset == 6
    assert (await send(6, epoch=0)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert cluster.partition(1).log.log_end_offset == 8


async def test_offsets_and_epochs_outside_are_refused(cluster: DataCluster) -> None:
    await cluster.create(1)
    cluster.controller.elect(1)
    client = await cluster.client(1)
    await client.produce(make_batch(b"v"))
    assert (await client.fetch(2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await client.fetch(0, epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (await client.fetch(0, epoch=2)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await client.fetch(0, epoch=1)).error_code == 0
    request = records.FetchRequest(session_id=9, session_epoch=4)
    client.send(request, 12)
    assert (await client.receive()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_lease_and_fencing_decide_who_is_served(cluster: DataCluster) -> None:
    await cluster.create(1)
    client = await cluster.client(1)
    lease = cluster.brokers[1].lease
    lease.valid = False
    assert (await client.produce(make_batch(b"v"), acks=1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await client.produce(make_batch(b"v"), acks=-1)).error_code == 0
    assert values_in((await client.fetch(0)).records) == [b"v"]
    lease.is_fenced = True
    assert (await client.produce(make_batch(b"v"))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await client.fetch(0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_restart_keeps_records_producers_and_high_watermark() -> None:
    disks: dict[int, Disk] = {}
    batch = make_batch(b"once", producer_id=3, producer_epoch=0, base_sequence=0)
    for clean in (True, False):
        async with running_cluster(disks=disks) as cluster:
            await cluster.create(1)
            client = await cluster.client(1)
            assert (await client.produce(batch)).base_offset == 0
            assert values_in((await client.fetch(0)).records) == [b"once"]
            assert cluster.partition(1).log.log_end_offset == 1
            await cluster.brokers[1].stop(clean=clean)


async def test_clients_do_not_write_to_internal_topics(cluster: DataCluster) -> None:
    await cluster.create(1, topic="__consumer_offsets")
    client = await cluster.client(1)
    for version in (8, 13):
        result = await client.produce(make_batch(b"forged"), topic="__consumer_offsets", version=version)
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (await client.fetch(0, topic="__consumer_offsets")).high_watermark == 0


async def test_broker_wide_values_change_while_it_runs_and_a_topics_own_take_precedence(
    cluster: DataCluster,
) -> None:
    batch = make_batch(b"v" * 2000)
    await cluster.create(1)
    client = await cluster.client(1)
    assert (await client.produce(batch)).error_code == 0
    cluster.controller.set_configs(BROKER, "", {"message.max.bytes": "1000"})
    await until(lambda: cluster.partition(1).log.config.max_message_bytes == 1000)
    assert ErrorCode((await client.produce(batch)).error_code) is ErrorCode.MESSAGE_TOO_LARGE
    cluster.controller.set_configs(BROKER, "1", {"message.max.bytes": "5000"})
    cluster.controller.set_configs(BROKER, "2", {"message.max.bytes": "1"})
    await until(lambda: cluster.partition(1).log.config.max_message_bytes == 5000)
    assert (await client.produce(batch)).error_code == 0
    cluster.controller.set_configs(TOPIC, "t", {"max.message.bytes": "1500"})
    assert ErrorCode((await client.produce(batch)).error_code) is ErrorCode.MESSAGE_TOO_LARGE
    cluster.controller.set_configs(TOPIC, "t", {})
    cluster.controller.set_configs(BROKER, "1", {})
    alone = PartitionRegistration((1, 2), (1,), 1, 0, 1)
    cluster.controller.set_partition(alone)
    cluster.controller.set_configs(BROKER, "", {"min.insync.replicas": "2"})
    await until(lambda: cluster.partition(1).min_isr == 2)
    assert ErrorCode((await client.produce(batch)).error_code) is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_with_eligible_replicas_a_new_log_commits_nothing_below_the_minimum(
    cluster: DataCluster,
) -> None:
    controller = cluster.controller
    controller._change(features=controller.image.features.set(ELIGIBLE_LEADER_REPLICAS_VERSION, 1))
    alone = PartitionRegistration((1, 2), (1,), 1, 0, 0)
    controller.set_partition(alone, configs={"min.insync.replicas": "2"})
    client = await cluster.client(1)
    assert (await client.produce(make_batch(b"v"), acks=1)).error_code == 0
    assert (await client.fetch(0)).high_watermark == 0
    assert cluster.partition(1).log.log_end_offset == 1


async def test_replica_of_a_deleted_topic_no_longer_leads(cluster: DataCluster) -> None:
    await cluster.create(1)
    partition = cluster.partition(1)
    cluster.controller.delete_topic("t")
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        partition.require_leader()
