"""Produce requests that take longer than a turn of the loop: in slices, in order, without blocking others."""

import asyncio
import gc
import mmap
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Self

import pytest

from pykraft.broker.apis.records import produce
from pykraft.broker.apis.records.produce import ProduceHandler, Production
from pykraft.broker.replicas.leading.validation_turns import Walkable
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.connection import Connection
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages import records
from pykraft.kafka_protocol.records import crc_is_valid, read_header
from tests.broker.data_cluster import DataCluster, PausedWorkers, make_batch, values_in
from tests.broker.long_batches import LONG, Gate, damaged, long_batch, overwritten, walking
from tests.narrowing import as_type, present
from tests.waits import until

pytestmark = [pytest.mark.usefixtures("walked_in_python"), pytest.mark.world(topics="t")]


def large_batch(size_bytes: int) -> bytes:
    """A long one, the last record of which has so many bytes."""
    return make_batch(*(bytes(1 + n % 2) for n in range(LONG)), bytes(size_bytes))


async def test_long_batch_is_appended_before_later_requests_of_its_connection(cluster: DataCluster) -> None:
    other = await cluster.client(1)
    gate, busy = await walking(cluster, long_batch(), make_batch(b"after"), acks=1)
    assert (await other.produce(make_batch(b"other"), acks=1)).base_offset == 0
    assert cluster.partition(1).log.log_end_offset == 1
    gate.is_open.set()
    offsets = [(await busy.produced()).base_offset for _ in range(2)]
    assert offsets == [1, 1 + LONG]


async def test_connection_continues_after_a_long_batch_with_all_requests_sent_meanwhile(
    cluster: DataCluster,
) -> None:
    client = await cluster.client(1)
    for _ in range(3):
        client.send_produce(long_batch(), acks=1)
        for _ in range(200):
            client.send_produce(make_batch(b"small"), acks=1)
    offsets = [(await client.produced()).base_offset for _ in range(603)]
    expected, end = [], 0
    for n in range(603):
        expected.append(end)
        end += 1 if n % 201 else LONG
    assert offsets == expected


async def test_idempotent_producer_with_a_long_batch_in_flight_stays_in_sequence(
    cluster: DataCluster,
) -> None:
    client = await cluster.client(1)
    client.send_produce(long_batch(base_sequence=0, producer_id=9, producer_epoch=0))
    client.send_produce(make_batch(b"x", base_sequence=LONG, producer_id=9, producer_epoch=0))
    client.send_produce(long_batch(base_sequence=0, producer_id=9, producer_epoch=0))
    results = [await client.produced() for _ in range(3)]
    assert [(r.error_code, r.base_offset) for r in results] == [(0, 0), (0, LONG), (0, 0)]


def end_lease(cluster: DataCluster) -> None:
    cluster.brokers[1].lease.valid = False


@pytest.mark.parametrize(
    ("change", "acks"),
    [
        pytest.param(lambda cluster: cluster.controller.elect(2), -1, id="leadership lost"),
        pytest.param(end_lease, 1, id="lease that ends"),
    ],
)
@pytest.mark.world(brokers=(1, 2), topics="t")
async def test_change_while_a_batch_is_walked_refuses_it(
    cluster: DataCluster, change: Callable[[DataCluster], None], acks: int
) -> None:
    gate, client = await walking(cluster, long_batch(), acks=acks)
    change(cluster)
    gate.is_open.set()
    assert (await client.produced()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.partition(1).log.log_end_offset == 0


@pytest.mark.world(brokers=(1, 2), topics="t")
async def test_client_that_disconnects_while_its_batch_is_walked_leaves_nothing_behind(
    cluster: DataCluster,
) -> None:
    await cluster.brokers[2].data.fetchers.stop()
    gate, _ = await walking(cluster, long_batch(), timeout_ms=2**31 - 1)
    listener = cluster.brokers[1].listener
    for connection in list(listener._server._connections):
        connection.close()  # as it is when an earlier answer can no longer be sent
    await until(lambda: not listener.connection_count)
    gate.is_open.set()
    partition = cluster.partition(1)
    await until(lambda: partition.log.log_end_offset == LONG)
    assert partition.high_watermark == 0, "the batch still waits for its replicas"
    assert not len(cluster.brokers[1].data.wakeups.deadlines), "but no client waits for the answer"


async def test_damage_at_the_end_of_a_long_batch_appends_nothing(cluster: DataCluster) -> None:
    client = await cluster.client(1)
    assert (await client.produce(damaged(long_batch()))).error_code == ErrorCode.INVALID_RECORD
    assert (await client.produce(make_batch(b"x"))).base_offset == 0


async def test_long_batch_without_acks_is_appended_without_an_answer(cluster: DataCluster) -> None:
    client = await cluster.client(1)
    client.send_produce(long_batch(), acks=0)
    client._asked.pop()
    assert (await client.produce(make_batch(b"x"), acks=1)).base_offset == LONG


async def test_broker_stops_while_long_batches_are_walked(cluster: DataCluster) -> None:
    gate = Gate(cluster)
    for _ in range(3):
        client = await cluster.client(1)
        client.send_produce(long_batch())
    await until(lambda: gate.waiting == 3)


async def test_compressed_batch_that_grows_much_is_decompressed_and_appended_unchanged(
    cluster: DataCluster,
) -> None:
    clients = [await cluster.client(1) for _ in range(4)]
    batches = [
        make_batch(bytes(3 << 20), b"%d" % n, compression=codec)
        for n, codec in enumerate(codec for codec in Compression if codec)
    ]
    results = await asyncio.gather(
        *(client.produce(batch, acks=1) for client, batch in zip(clients, batches, strict=True))
    )
    assert sorted(result.base_offset for result in results) == [0, 2, 4, 6]
    assert as_type(cluster.brokers[1]._hot[0], ProduceHandler).validation.memory._value == 2


async def test_so_many_large_batches_are_decompressed_at_once(cluster: DataCluster) -> None:
    gate = Gate(cluster)
    unfolding: list[int] = []
    may_end = asyncio.Event()

    async def hold(job: Callable[[], object]) -> None:
        if getattr(job, "__name__", "") == "unfold":
            unfolding.append(1 + (unfolding[-1] if unfolding else 0))
            await may_end.wait()
            unfolding.append(unfolding[-1] - 1)

    as_type(cluster.brokers[1].data.workers, PausedWorkers).before = hold
    clients = [await cluster.client(1) for _ in range(4)]
    for n, client in enumerate(clients):
        client.send_produce(make_batch(bytes(3 << 20), b"%d" % n, compression=Compression.GZIP))
    await until(lambda: gate.waiting == 4)
    gate.is_open.set()
    await until(lambda: len(unfolding) >= 2)
    await asyncio.sleep(0)
    assert unfolding == [1, 2]
    may_end.set()
    answers = [await client.produced() for client in clients]
    assert sorted(answer.base_offset for answer in answers) == [0, 2, 4, 6]
    assert max(unfolding) == 2


async def test_failure_in_the_middle_of_a_walk_costs_its_own_connection_only(cluster: DataCluster) -> None:
    other = await cluster.client(1)
    gate, client = await walking(cluster, long_batch())
    gate.error = MemoryError()
    gate.is_open.set()
    assert await asyncio.wait_for(client.reader.read(), 10) == b""
    assert (await other.produce(make_batch(b"x"))).base_offset == 0


@pytest.mark.world(topics="t", configs={"compression.type": "zstd"})
async def test_long_batch_is_stored_in_the_codec_of_its_topic(cluster: DataCluster) -> None:
    client = await cluster.client(1)
    assert (await client.produce(long_batch())).base_offset == 0
    stored = bytes(present((await client.fetch(0)).records))
    header = read_header(stored)
    assert header.compression is Compression.ZSTD
    assert crc_is_valid(stored, 0, header)
    assert len(values_in(stored)) == LONG


@pytest.mark.world(topics="t", configs={"cleanup.policy": "compact"})
async def test_answer_names_the_records_that_were_refused(cluster: DataCluster) -> None:
    client = await cluster.client(1)
    for version in (8, 9, 12):
        result = await client.produce(make_batch(b"a", b"b"), version=version)
        assert result.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in result.record_errors] == [0, 1]
        assert "key" in present(result.record_errors[0].batch_index_error_message)
    assert not (await client.produce(make_batch(b"a"), version=7)).record_errors


async def test_header_with_a_wrong_timestamp_is_stored_corrected(cluster: DataCluster) -> None:
    client = await cluster.client(1)
    data = overwritten(make_batch(b"v", timestamp_ms=1_000_000), 35, (1 << 40).to_bytes(8, "big"))
    assert (await client.produce(data)).error_code == 0
    stored = bytes(present((await client.fetch(0)).records))
    header = read_header(stored)
    assert header.max_timestamp == 1_000_000
    assert crc_is_valid(stored, 0, header)


@pytest.mark.world(topics="t", configs={"max.message.bytes": str(2 * 16 << 20)})
async def test_long_request_is_kept_without_a_copy_of_its_batches(cluster: DataCluster) -> None:
    size_bytes = 16 << 20
    gate = Gate(cluster)
    gate.is_open.set()
    client = await cluster.client(1)
    await client.produce(make_batch(bytes(size_bytes)), acks=1)
    batch = large_batch(size_bytes)
    gate.is_open.clear()
    tracemalloc.start()
    try:
        client.send_produce(batch, acks=1)
        await until(lambda: gate.waiting)
        client.send_produce(make_batch(b"after"), acks=1)
        await until(lambda: not client.writer.transport.get_write_buffer_size())
        taken = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    gate.is_open.set()
    offsets = [(await client.produced()).base_offset for _ in range(2)]
    assert offsets == [1, 2 + LONG]
    places = [tracemalloc.Filter(True, f"*/{name}/*") for name in ("runtime", "broker/apis")]
    copied = sum(found.size for found in taken.filter_traces(places).statistics("filename"))
    assert copied < size_bytes // 8


@pytest.mark.parametrize("is_damaged", [False, True])
@pytest.mark.world(topics="t", configs={"max.message.bytes": str(8 << 20)})
async def test_memory_of_a_long_request_is_free_once_it_is_answered(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    """By reference counting: garbage that only a full collection finds may be a gigabyte by then."""
    buffers: list[weakref.ref[mmap.mmap]] = []

    class Watched(mmap.mmap):
        def __new__(cls, fileno: int, length: int, flags: int) -> Self:
            buffer = super().__new__(cls, fileno, length, flags=flags)
            buffers.append(weakref.ref(buffer))
            return buffer

    monkeypatch.setattr("mmap.mmap", Watched)
    client, data = await cluster.client(1), large_batch(4 << 20)
    gc.disable()
    try:
        result = await client.produce(damaged(data) if is_damaged else data, acks=1)
        assert result.error_code == (ErrorCode.INVALID_RECORD if is_damaged else ErrorCode.NONE)
        await client.produce(make_batch(b"after"), acks=1)
        assert buffers and not [buffer for buffer in buffers if buffer() is not None]
    finally:
        gc.enable()


@pytest.mark.world(topics=("t", "other"), configs={"max.message.bytes": str(4 << 20)})
async def test_batch_that_is_refused_before_its_walk_goes_on_is_not_appended_in_place_of_the_next(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease ends when the first batch has begun, and is renewed before the second does."""
    lease = cluster.brokers[1].lease

    class ExpiringGate(Gate):
        def walk_now(self, batch: Walkable, *, is_first: bool = False) -> bool:
            is_walked = super().walk_now(batch, is_first=is_first)
            lease.valid = is_walked
            return is_walked

    def refuse_once(now_ms: int) -> bool:
        was_valid, lease.valid = lease.valid, True
        return was_valid

    ExpiringGate(cluster).is_open.set()
    monkeypatch.setattr(lease, "lease_valid", refuse_once)
    long = large_batch(1 << 20)
    assert len(long) > produce._COPIED_BYTES, "the request is so large that its buffer is kept"
    topics = [
        records.TopicProduceData(
            name=name, partition_data=[records.PartitionProduceData(index=0, records=batch)]
        )
        for name, batch in (("t", long), ("other", make_batch(b"other")))
    ]
    client = await cluster.client(1)
    client.send(records.ProduceRequest(acks=1, topic_data=topics), 9)
    got = [one.partition_responses[0].error_code for one in (await client.receive()).responses]
    assert got == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]
    assert cluster.partition(1).log.log_end_offset == 0
    assert cluster.partition(1, "other").log.log_end_offset == 1


@pytest.mark.world(brokers=(1, 2), topics="t")
async def test_request_that_waits_for_its_replicas_keeps_no_records(cluster: DataCluster) -> None:
    await cluster.brokers[2].data.fetchers.stop()
    gate, client = Gate(cluster), await cluster.client(1)
    gate.is_open.set()
    for batch in (make_batch(b"short"), long_batch()):
        client.send_produce(batch, timeout_ms=60_000)
    await until(lambda: len(cluster.partition(1).committed_waiters) == 2)
    waiting = [one for one in gc.get_objects() if isinstance(one, Production)]
    assert len(waiting) == 2
    assert not any(one._rows or one._begun or one._verified or one._transaction for one in waiting)


async def test_stopping_broker_starts_no_long_batch_and_nothing_after_one(cluster: DataCluster) -> None:
    """Its listeners stop last, when its logs are already closed."""
    late = await cluster.client(1)
    gate, _ = await walking(cluster, long_batch(), make_batch(b"after"), long_batch(), acks=1)
    data, server = cluster.brokers[1].data, cluster.brokers[1].listener._server
    await data.stop()
    await until(lambda: server.connection_count == 1)
    assert cluster.partition(1).log.log_end_offset == 0, "no request overtakes the one that was aborted"
    late.send_produce(make_batch(b"small"), acks=1)
    late.send_produce(long_batch(), acks=1)
    await late.receive()
    await until(lambda: all(as_type(link.session, Connection)._is_held for link in server._connections))
    await until(lambda: not len(data.tasks))
    assert gate.waiting == 1
