"""What a log that was moved to another directory still knows, and what is told of it."""

from types import SimpleNamespace
from typing import Any

import pytest

from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.markers import ABORT, COMMIT, EndOfTransaction, Marker
from pykraft.kafka_protocol.records import iter_headers
from pykraft.log_store import checkpoint
from pykraft.log_store.indexes.transaction_index import AbortedTransaction
from pykraft.node.metrics.replicas import REPLICA_METRICS
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.damage import in_sync
from tests.broker.data_cluster import DataBroker, DataClient, DataCluster, directory_id, make_batch
from tests.broker.logs.producers.test_transactions import end, send
from tests.broker.logs.test_log_moves import (
    DIRS,
    alter,
    begin,
    described,
    directories_of,
    hold_back,
    is_moved,
)
from tests.waits import until

pytestmark = pytest.mark.world(brokers=())

READ_COMMITTED = 1
FIRST, SECOND, THIRD = 21, 22, 23
"""Producers."""


async def move(cluster: DataCluster, broker: DataBroker) -> None:
    assert await alter(broker, "/e1") is ErrorCode.NONE
    await until(lambda: is_moved(cluster, broker))
    await until(lambda: directories_of(cluster.disk(1)) == ["/e1/t-0"])


def stored(disk: MemoryDisk, log_dir: str, name: str) -> int | None:
    """What a checkpoint file of a directory says of the log."""
    path = f"{log_dir}/{name}"
    return checkpoint.read_offset_checkpoint(disk, path).get(("t", 0)) if disk.exists(path) else None


def metrics(partition: Partition) -> dict[str, Any]:
    """The metrics of single logs, by their names."""
    scrape: Any = SimpleNamespace(broker=object(), partitions=[partition])
    logs = [one for one in REPLICA_METRICS if one.name.startswith("kafka_log_log_")]
    return {one.name.removeprefix("kafka_log_log_"): list(one.read(scrape)) for one in logs}


async def read_committed(client: DataClient) -> tuple[list[int], int]:
    """The offsets of the batches that a reader keeps, and where it waits for the next."""
    kept, offset, aborted = [], 0, dict[int, int]()
    while (result := await client.fetch(offset, isolation_level=READ_COMMITTED)).records:
        begun = {one.producer_id: one.first_offset for one in result.aborted_transactions or ()}
        aborted = {**begun, **aborted}
        for _, header in iter_headers(result.records):
            if header.is_control:
                aborted.pop(header.producer_id, None)
            elif not aborted.get(header.producer_id, 1 << 60) <= header.base_offset:
                kept.append(header.base_offset)
            offset = header.next_offset
    assert result.last_stable_offset == offset
    return kept, offset


@pytest.mark.world(brokers=(2,))
async def test_moved_log_knows_its_epochs_and_how_far_it_is_committed_and_durable(
    cluster: DataCluster,
) -> None:
    broker, disk = await begin(cluster, 1, 2), cluster.disk(1)
    for count in (3, 4):
        cluster.controller.elect(1, (1, 2))
        client = await cluster.client(1)
        for _ in range(count):
            assert (await client.produce(make_batch(b"v"))).error_code == ErrorCode.NONE
    cluster.controller.elect(1, (1, 2))  # an epoch without a record
    partition = cluster.partition(1)
    await broker.logs.flush(("t", 0))
    await broker.data.maintenance._checkpoint()
    before, old = metrics(partition), partition.log
    epochs, high_watermark = old.epoch_cache.entries, partition.high_watermark
    assert (len(epochs), high_watermark, old.recovery_point) == (4, 19, 19)
    await move(cluster, broker)
    log = partition.log
    assert log is not old and log is broker.logs.logs["t", 0].log
    assert partition.high_watermark == high_watermark and log.recovery_point == 19
    assert log.epoch_cache.entries == epochs and log.latest_epoch == old.latest_epoch == 3
    for epoch in range(5):
        assert log.end_offset_for_epoch(epoch) == old.end_offset_for_epoch(epoch)
    assert stored(disk, "/e1", checkpoint.RECOVERY_POINT_CHECKPOINT) == 19
    for name in (
        checkpoint.RECOVERY_POINT_CHECKPOINT,
        checkpoint.REPLICATION_OFFSET_CHECKPOINT,
        checkpoint.LOG_START_OFFSET_CHECKPOINT,
    ):
        assert stored(disk, "/d1", name) is None
    await broker.data.maintenance._checkpoint()
    assert stored(disk, "/e1", checkpoint.REPLICATION_OFFSET_CHECKPOINT) == 19
    after = metrics(partition)
    assert after["logendoffset"] == before["logendoffset"] == [(("t", "0"), 19)]
    assert after["size"] == before["size"] == [(("t", "0"), log.size_bytes)]
    await broker.stop(clean=False)
    again = await cluster.reopen(1, log_dirs=DIRS)
    opened = again.logs.logs["t", 0]
    assert opened.high_watermark == 19 and opened.log.recovery_report.scanned_batches == 0
    assert opened.log.epoch_cache.entries == epochs


async def test_moved_log_is_measured_and_described_as_what_has_taken_the_place(
    cluster: DataCluster,
) -> None:
    broker = await begin(cluster)
    await move(cluster, broker)
    partition = cluster.partition(1)
    client = await cluster.client(1)
    assert (await client.produce(make_batch(b"more"))).base_offset == 12
    partition.delete_records(4)
    log = broker.logs.logs["t", 0].log
    row = ("t", "0")
    assert metrics(partition) == {
        "size": [(row, log.size_bytes)],
        "numlogsegments": [(row, len(log.segment_base_offsets))],
        "logstartoffset": [(row, 4)],
        "logendoffset": [(row, 13)],
    }
    seen = await described(broker)
    assert seen["/d1"] == []
    assert [(one.partition_size, one.offset_lag, one.is_future_key) for one in seen["/e1"]] == [
        (log.size_bytes, 0, False)
    ]
    assert cluster.controller.partition().directory(1) == directory_id("/e1")


@pytest.mark.parametrize("how", ["serving", "restarted", "killed"])
@pytest.mark.parametrize("kind", [COMMIT, ABORT])
async def test_transaction_that_is_open_while_its_log_is_moved_ends_as_it_is_decided(
    cluster: DataCluster, kind: int, how: str
) -> None:
    broker = await begin(cluster)
    partition = cluster.partition(1)
    assert [send(partition, FIRST, 0), send(partition, SECOND, 0)] == [12, 13]
    end(partition, SECOND, ABORT)
    assert (partition.last_stable_offset, partition.high_watermark) == (12, 15)
    await move(cluster, broker)
    client = await cluster.client(1)
    assert (partition.last_stable_offset, partition.high_watermark) == (12, 15)
    assert await read_committed(client) == ([*range(12)], 12)
    assert [send(partition, FIRST, 1), send(partition, THIRD, 0)] == [15, 16]
    assert partition.last_stable_offset == 12
    if how != "serving":
        await broker.logs.flush(("t", 0))
        await broker.stop(clean=how == "restarted")
        broker = await cluster.start(1, log_dirs=DIRS)
        await until(lambda: in_sync(cluster, 1, 17))
        partition = cluster.partition(1)
        await until(lambda: partition.high_watermark == 17)
        assert partition.last_stable_offset == 12
        client = await cluster.client(1)
    assert end(partition, FIRST, kind) == 17
    assert partition.last_stable_offset == 16, "of the third producer"
    assert end(partition, THIRD, COMMIT) == 18
    first = [12, 15] if kind == COMMIT else []
    assert await read_committed(client) == ([*range(12), *first, 16], 19)
    expected = [AbortedTransaction(SECOND, 13, 14, 12)]
    if kind == ABORT:
        expected.append(AbortedTransaction(FIRST, 12, 17, 16))
    assert list(partition.log.iter_aborted()) == expected


async def test_transaction_that_ends_between_the_copy_and_the_swap_is_known_to_be_aborted(
    cluster: DataCluster,
) -> None:
    broker = await begin(cluster)
    partition = cluster.partition(1)
    assert send(partition, FIRST, 0) == 12
    await hold_back(cluster, broker)
    assert end(partition, FIRST, ABORT) == 13 and send(partition, SECOND, 0) == 14
    del broker.logs.copies.promote
    await until(lambda: is_moved(cluster, broker))
    assert list(partition.log.iter_aborted()) == [AbortedTransaction(FIRST, 12, 13, 14)]
    client = await cluster.client(1)
    assert await read_committed(client) == ([*range(12)], 14)
    marker = EndOfTransaction(SECOND, 0, Marker(COMMIT, 0), 1)
    partition.end_transaction(marker, 500)
    assert await read_committed(client) == ([*range(12), 14], 16)
