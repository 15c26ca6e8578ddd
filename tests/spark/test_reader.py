"""An executor's work: one range of one partition, without Spark."""

import pickle
import subprocess
import sys

import pytest

from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.errors import (
    ClientTimeoutError,
    OffsetOutOfRangeError,
    TopicDeletedError,
    TopicRecreatedError,
)
from pykraft.kafka_client.fetcher import FetchedBatches, PartitionFetcher
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.spark.discovery import ClusterLogs
from pykraft.spark.offsets import OffsetRange
from pykraft.spark.options import BatchReadOptions, parse_batch_options
from pykraft.spark.planner import ReadTask, plan_batch
from pykraft.spark.reader import read_task
from tests.mock_cluster import MockCluster


def options(servers: str, **changes: str) -> BatchReadOptions:
    base = {"kafka.bootstrap.servers": servers, "subscribe": "t", "kafka.fetch.max.wait.ms": "20"}
    return parse_batch_options(base | {name.replace("__", "."): value for name, value in changes.items()})


def plan(servers: str, columns: tuple[str, ...] = ("offset",), **changes: str) -> list[ReadTask]:
    checked = options(servers, **changes)
    cluster = Cluster(BlockingNetwork(), checked.client)
    try:
        return run(plan_batch(ClusterLogs(cluster, checked), checked, columns))
    finally:
        cluster.close()


def offsets(task: ReadTask) -> list[int]:
    return [offset for batch in read_task(task) for offset in batch.column(0).to_pylist()]


@pytest.fixture(scope="module")
def aged(mock_cluster: MockCluster) -> tuple[str, int, int]:
    """A partition whose oldest records have expired: the mock keeps 5 MiB. (servers, log start, log end)"""
    for index in range(80):
        mock_cluster.producer.produce("aged", b"x" * 100_000, partition=0, key=b"%d" % index)
        mock_cluster.producer.flush(20)
    (task,) = plan(mock_cluster.bootstrap_servers, subscribe="aged")
    assert task.offsets.start > 0
    return mock_cluster.bootstrap_servers, task.offsets.start, task.offsets.end


def test_task_survives_pickling_and_reads_its_range(mock_cluster: MockCluster) -> None:
    mock_cluster.produce_numbered("ranges", 0, 500)
    tasks = plan(mock_cluster.bootstrap_servers, subscribe="ranges", maxRecordsPerPartition="120")
    assert [offsets(pickle.loads(pickle.dumps(task))) for task in tasks] == [
        list(range(low, low + 100)) for low in range(0, 500, 100)
    ]


def test_records_produced_after_planning_are_not_read(mock_cluster: MockCluster) -> None:
    mock_cluster.produce_numbered("later", 0, 10)
    (task,) = plan(mock_cluster.bootstrap_servers, subscribe="later")
    mock_cluster.produce_numbered("later", 0, 10)
    assert offsets(task) == list(range(10))


def test_expired_range_fails(aged: tuple[str, int, int]) -> None:
    servers, _, end = aged
    task = ReadTask(OffsetRange("aged", 0, 0, end), ZERO_UUID, ("offset",), options(servers))
    with pytest.raises(OffsetOutOfRangeError):
        offsets(task)


def test_existing_part_of_an_expired_range_is_read_if_loss_is_allowed(
    aged: tuple[str, int, int], caplog: pytest.LogCaptureFixture
) -> None:
    servers, start, end = aged
    allowed = options(servers, failOnDataLoss="false")
    assert offsets(ReadTask(OffsetRange("aged", 0, 0, end), ZERO_UUID, ("offset",), allowed)) == list(
        range(start, end)
    )
    assert f"some records may be missed: offsets 0 up to {start} of aged-0 are skipped" in caplog.text
    caplog.clear()
    assert offsets(ReadTask(OffsetRange("aged", 0, 0, start), ZERO_UUID, ("offset",), allowed)) == []
    assert f"offsets 0 up to {start} of aged-0 are skipped" in caplog.text


def test_end_that_is_never_reached_is_a_timeout_that_names_the_end_of_the_log(
    mock_cluster: MockCluster,
) -> None:
    mock_cluster.produce_numbered("short", 0, 10)
    impatient = options(mock_cluster.bootstrap_servers, **{"kafkaConsumer.pollTimeoutMs": "2000"})
    task = ReadTask(OffsetRange("short", 0, 0, 99), ZERO_UUID, ("offset",), impatient)
    with pytest.raises(ClientTimeoutError, match="the read ends at 99; the log now ends at 10"):
        offsets(task)


def test_end_that_is_never_reached_is_reported_even_if_the_last_answer_is_late(
    mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mock_cluster.produce_numbered("late", 0, 10)
    task = ReadTask(
        OffsetRange("late", 0, 0, 99), ZERO_UUID, ("offset",), options(mock_cluster.bootstrap_servers)
    )
    fetch = PartitionFetcher.fetch
    empty: list[FetchedBatches] = []

    async def late(
        self: PartitionFetcher,
        deadline_ms: int,
        *,
        read_ahead_until: int | None = None,
        max_wait_ms: int | None = None,
    ) -> FetchedBatches:
        if empty:
            raise ClientTimeoutError("the answer did not come in time")
        fetched = await fetch(self, deadline_ms, read_ahead_until=read_ahead_until, max_wait_ms=max_wait_ms)
        if not fetched.headers:
            empty.append(fetched)
        return fetched

    monkeypatch.setattr(PartitionFetcher, "fetch", late)
    with pytest.raises(ClientTimeoutError, match="the read ends at 99; the log now ends at 10"):
        offsets(task)


def test_topic_recreated_since_planning_fails(mock_cluster: MockCluster) -> None:
    mock_cluster.produce_numbered("reborn", 0, 10)
    (task,) = plan(mock_cluster.bootstrap_servers, subscribe="reborn")
    stale = ReadTask(task.offsets, Uuid(b"the id of before"), ("offset",), task.options)
    with pytest.raises(TopicRecreatedError):
        offsets(stale)


def test_topic_deleted_since_planning_fails(mock_cluster: MockCluster) -> None:
    task = ReadTask(
        OffsetRange("never-there", 70, 0, 9), ZERO_UUID, ("offset",), options(mock_cluster.bootstrap_servers)
    )
    with pytest.raises(TopicDeletedError):
        offsets(task)


def test_executors_import_neither_grpc_nor_the_server() -> None:
    code = """
import sys, pykraft.spark.source, pykraft.spark.decode
ours = {name.split(".")[1] for name in sys.modules if name.startswith("pykraft.")}
print(sorted(ours | (sys.modules.keys() & {"grpc", "google.protobuf", "confluent_kafka"})))
"""
    notified = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        notified.stdout.strip()
        == "['compiled', 'kafka_client', 'kafka_protocol', 'lazy_dataclass', 'runtime', 'spark']"
    )
