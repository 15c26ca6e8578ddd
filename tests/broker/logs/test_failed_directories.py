"""A log directory that fails costs its replicas; the broker and its other directories continue."""

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from pykraft.broker.apis.cluster import describe_log_dirs
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.cluster import DescribeLogDirsRequest
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.log_store import checkpoint
from pykraft.metadata_log.image import PartitionRegistration
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.answers import as_read
from tests.broker.damage import fill, in_sync, read_all, values
from tests.broker.data_cluster import DataBroker, DataCluster, directory_id, make_batch
from tests.narrowing import present
from tests.waits import until

pytestmark = pytest.mark.world(brokers=())

DIRS = ("/d1", "/e1")


async def start_two_dirs(cluster: DataCluster) -> DataBroker:
    """Broker 1, with two directories: ``t`` is in the first, ``u`` in the second."""
    return await cluster.start(1, log_dirs=DIRS)


async def create_both(cluster: DataCluster, *replicas: int) -> None:
    for topic in ("t", "u"):
        await cluster.create(*replicas, topic=topic)
    await until(
        lambda: (
            [cluster.controller.partition(topic).directory(1) for topic in ("t", "u")]
            == [directory_id("/d1"), directory_id("/e1")]
        )
    )


async def produce(cluster: DataCluster, topic: str, value: bytes) -> ErrorCode:
    """Produce with acks=all at the leader that the controller names; the error."""
    client = await cluster.client(cluster.controller.partition(topic).leader)
    result = await client.produce(make_batch(value), topic=topic, timeout_ms=500)
    client.close()
    return ErrorCode(result.error_code)


async def test_a_new_replica_goes_to_the_directory_with_the_fewest_and_is_found_there(
    cluster: DataCluster,
) -> None:
    broker = await start_two_dirs(cluster)
    for number in range(5):
        await cluster.create(1, topic=f"x{number}")
    where = {key[0]: opened.log_dir for key, opened in broker.logs.logs.items()}
    assert [where[f"x{number}"] for number in range(5)] == ["/d1", "/e1", "/d1", "/e1", "/d1"]
    await broker.stop()
    again = await start_two_dirs(cluster)
    await until(lambda: again.replicas.is_reconciled)
    assert {key[0]: opened.log_dir for key, opened in again.logs.logs.items()} == where


BREAKS: dict[str, Callable[[MemoryDisk], None]] = {
    "everything": lambda disk: disk.break_directory("/d1"),
    "flush of a log": lambda disk: disk.inject("flush", errno.EIO, path_part="/d1/t-0"),
    "append to a log": lambda disk: disk.inject("append", errno.EIO, path_part="/d1/t-0"),
    "no space": lambda disk: disk.inject("append", errno.ENOSPC, path_part="/d1/t-0"),
    "checkpoint": lambda disk: disk.inject("write_atomic", errno.EIO, path_part="/d1/re"),
    "creation of a log": lambda disk: disk.inject("make_dirs", errno.EIO, path_part="/d1/"),
}


@pytest.mark.world(brokers=(2, 3))
@pytest.mark.parametrize("case", BREAKS)
async def test_a_failed_directory_under_load_leaves_the_other_serving_and_loses_nothing_acknowledged(
    cluster: DataCluster, case: str
) -> None:
    broker = await start_two_dirs(cluster)
    await create_both(cluster, 1, 2, 3)
    acknowledged: dict[str, list[bytes]] = {"t": [], "u": []}
    errors: dict[str, set[ErrorCode]] = {"t": set(), "u": set()}
    stop = asyncio.Event()

    async def write(topic: str) -> None:
        while not stop.is_set():
            value = b"%s-%d" % (topic.encode(), len(acknowledged[topic]))
            error = await produce(cluster, topic, value)
            if error is ErrorCode.NONE:
                acknowledged[topic].append(value)
            else:
                errors[topic].add(error)

    async with asyncio.TaskGroup() as writers:
        for topic in ("t", "u"):
            writers.create_task(write(topic))
        await until(lambda: min(map(len, acknowledged.values())) >= 20)
        BREAKS[case](cluster.disk(1))
        if case == "creation of a log":
            await cluster.create(1, topic="v")
            assert broker.logs.logs["v", 0].log_dir == "/e1", "where creation works"
        await broker.logs.flush(("t", 0))
        await broker.data.maintenance._checkpoint()
        await until(lambda: cluster.controller.partition("t").leader == 2)
        counts = {topic: len(found) for topic, found in acknowledged.items()}
        await until(lambda: all(len(acknowledged[topic]) >= counts[topic] + 20 for topic in counts))
        stop.set()
    assert broker.faults == [] and errors["u"] == set(), "nothing but t has noticed"
    assert cluster.controller.partition("u").leader == 1
    assert await read_all(cluster, 1, "u") == acknowledged["u"]
    assert set(await read_all(cluster, 2, "t")) >= set(acknowledged["t"])
    assert broker.logs.dirs.offline.keys() == {"/d1"}
    assert broker.table.find("t", 0) is None
    client = await cluster.client(1)
    refused = await client.fetch(0, topic="t")
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await broker.data.maintenance._checkpoint()
    assert ("u", 0) in checkpoint.read_offset_checkpoint(
        cluster.disk(1), f"/e1/{checkpoint.RECOVERY_POINT_CHECKPOINT}"
    )
    assert broker.faults == []


@pytest.mark.world(brokers=(2,))
async def test_replicas_of_a_failed_directory_are_created_nowhere_else_and_follow_when_it_is_back(
    cluster: DataCluster,
) -> None:
    broker = await start_two_dirs(cluster)
    await create_both(cluster, 1, 2)
    await fill(cluster, 1, 12)
    cluster.disk(1).break_directory("/d1")
    await broker.logs.flush(("t", 0))
    await until(lambda: cluster.controller.partition("t").isr == (2,))
    await until(lambda: broker.replicas.is_reconciled)
    assert not cluster.disk(1).exists("/e1/t-0")
    await broker.stop()
    # Still broken at the next start, which cannot even read its id.
    broker = await start_two_dirs(cluster)
    await until(lambda: broker.replicas.is_reconciled)
    assert broker.table.find("t", 0) is None and broker.table.find("u", 0) is not None
    assert cluster.controller.lost == [] and not cluster.disk(1).exists("/e1/t-0")
    assert broker.logs.previous_broker_epoch is None, "it does not know that all was flushed"
    await cluster.create(1, topic="new")
    assert broker.logs.logs["new", 0].log_dir == "/e1"
    await broker.stop()
    cluster.disk(1).mend_directory("/d1")
    broker = await start_two_dirs(cluster)
    await until(lambda: in_sync(cluster, 1, 12))
    assert broker.logs.logs["t", 0].log_dir == "/d1"
    cluster.controller.elect(1, (1, 2))
    await until(lambda: cluster.partition(1).high_watermark == 12)
    assert await read_all(cluster, 1) == values(12)


@pytest.mark.world(brokers=(2,))
@pytest.mark.parametrize("known", ["replaced", "emptied"])
async def test_a_replica_whose_directory_is_gone_for_good_starts_over_once_the_controller_knows(
    cluster: DataCluster, known: str
) -> None:
    broker = await start_two_dirs(cluster)
    await create_both(cluster, 1, 2)
    await fill(cluster, 1, 12)
    await broker.stop(clean=False)
    disk = cluster.disk(1)
    if known == "replaced":
        disk.remove_tree("/d1")
        broker = await cluster.start(1, log_dirs=("/f1", "/e1"))
    else:  # without its checkpoint files, so that only the controller knows of the log
        disk.remove_tree("/d1")
        disk.make_dirs("/d1")
        broker = await start_two_dirs(cluster)
    await until(lambda: in_sync(cluster, 1, 12))
    assert cluster.controller.lost == [(1, "t")], "it did not come back with an empty log as if whole"
    there = directory_id(broker.logs.logs["t", 0].log_dir)
    await until(lambda: cluster.controller.partition().directory(1) == there)
    assert ("u", 0) in broker.logs.logs


@pytest.mark.parametrize("path_part", ["/d1/", "/e1/"])
async def test_the_last_directory_ends_the_broker(cluster: DataCluster, path_part: str) -> None:
    broker = await start_two_dirs(cluster)
    await create_both(cluster, 1)
    disk, seen = cluster.disk(1), broker.faults
    disk.inject("flush", errno.EIO, path_part=path_part, times=100)
    for topic in ("t", "u"):
        assert await produce(cluster, topic, b"v") is ErrorCode.NONE
        await broker.logs.flush((topic, 0))
    assert seen == []
    disk.break_directory("/d1")
    disk.break_directory("/e1")
    with pytest.raises(OSError, match="injected"):
        await broker.logs.checkpoints.write({})
    assert len(seen) >= 1 and "injected" in seen[0]
    seen.clear()
    disk.mend_directory("/d1")
    disk.mend_directory("/e1")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_what_the_process_lacks_is_not_taken_for_a_failed_directory(
    cluster: DataCluster, number: int
) -> None:
    broker = await start_two_dirs(cluster)
    await create_both(cluster, 1)
    cluster.disk(1).inject("write_atomic", number, path_part="/d1/re")
    await broker.data.maintenance._checkpoint()
    assert broker.logs.work.failures == {"checkpoint": 1}
    await broker.data.maintenance._checkpoint()
    assert broker.logs.work.failures == {"checkpoint": 1}
    assert broker.logs.dirs.offline == {} and not broker.faults


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.ENFILE])
async def test_a_write_that_fails_for_what_the_process_lacks_ends_the_node_and_no_directory(
    cluster: DataCluster, number: int
) -> None:
    broker = await start_two_dirs(cluster)
    await create_both(cluster, 1)
    cluster.disk(1).inject("append", number, path_part="/d1/t-0")
    assert await produce(cluster, "t", b"v") is not ErrorCode.NONE
    assert len(broker.faults) == 1 and broker.logs.dirs.offline == {}
    broker.faults.clear()


async def test_describe_log_dirs_names_the_failed_directory(cluster: DataCluster) -> None:
    broker = await start_two_dirs(cluster)
    await create_both(cluster, 1)
    cluster.disk(1).break_directory("/d1")
    await broker.logs.flush(("t", 0))
    await broker.logs.checkpoints.write({})
    request = DescribeLogDirsRequest(topics=None)
    response = as_read(await describe_log_dirs.handle(broker.services, RequestContext(), request, 4), 4)
    first, second = response.results
    assert (first.error_code, first.log_dir, first.topics) == (
        ErrorCode.KAFKA_STORAGE_ERROR,
        "/d1",
        [],
    )
    assert (second.error_code, [topic.name for topic in second.topics]) == (ErrorCode.NONE, ["u"])
    assert second.total_bytes > 0


@pytest.mark.world(brokers=(2,))
async def test_a_replica_that_fails_before_its_directory_is_known_is_reported_with_it(
    cluster: DataCluster,
) -> None:
    broker = await start_two_dirs(cluster)
    cluster.controller.silent = True
    for topic in ("t", "u"):
        await cluster.create(1, 2, topic=topic)
    cluster.disk(1).break_directory("/d1")
    await broker.logs.checkpoints.write({})
    await until(lambda: broker.table.find("t", 0) is None)
    assert cluster.controller.partition("t").leader == 1
    cluster.controller.silent = False
    await until(lambda: cluster.controller.partition("t").leader == 2)
    assert cluster.controller.partition("t").directory(1) == directory_id("/d1")
    assert cluster.controller.partition("u").leader == 1


@pytest.mark.world(brokers=(2,))
async def test_a_damaged_log_that_is_still_in_its_place_goes_with_its_directory(
    cluster: DataCluster,
) -> None:
    """The next start finds the damage again; until then the replica is as the others of the directory."""
    broker = await start_two_dirs(cluster)
    await create_both(cluster, 1, 2)
    logs = broker.logs
    logs.uses.flushing.add(("t", 0))  # it cannot be set aside yet
    present(broker.table.find("t", 0)).storage_failed(FileNotFoundError("planted"))
    assert ("t", 0) in logs.offline and ("t", 0) not in logs.logs
    cluster.disk(1).break_directory("/d1")
    await logs.checkpoints.write({})
    try:
        await until(lambda: ("t", 0) in logs.unavailable, 5)
    finally:
        logs.uses.flushing.discard(("t", 0))
        logs.uses._released.set()
    assert ("t", 0) not in logs.offline
    assert logs.unavailable["t", 0][1] == "/d1" and ("u", 0) in logs.logs
    await until(lambda: cluster.controller.partition("t").leader == 2)
    assert cluster.controller.lost == [], "it is not a replica that starts over"
    assert cluster.controller.partition("u").leader == 1


@pytest.mark.world(brokers=(1,))
async def test_a_broker_with_one_directory_reports_none(cluster: DataCluster) -> None:
    sent: list[Any] = []
    broker = cluster.brokers[1]
    assignments = broker.data.reconciler._assignments

    async def record(replicas: Any) -> list[ErrorCode]:
        sent.append(replicas)
        return [ErrorCode.NONE] * len(replicas)

    assignments._controller = cluster.controller  # type: ignore[assignment]
    cluster.controller.assign_replicas_to_dirs = record  # type: ignore[attr-defined]
    await cluster.create(1)
    assert not assignments._is_reporting and sent == []
    # It had several before: the image names one that is gone.
    old = cluster.controller.partition()
    moved = PartitionRegistration(
        *(old.replicas, old.isr, old.leader, old.leader_epoch, old.partition_epoch + 1),
        directories=(directory_id("/gone"),),
    )
    cluster.controller.set_partition(moved)
    await until(lambda: sent)
    assert [one.directory for one in sent[0]] == [directory_id("/d1")]
    cluster.controller.set_partition(old)
