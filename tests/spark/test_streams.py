"""Streaming queries end to end: Spark, its checkpoints and its Python workers."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.spark.progress import offsets_behind_latest
from pykraft.testing.processes.waits import wait_until
from tests.mock_cluster import MockCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

SHOWN_TIMEOUT_S = 60


def stream(session: "SparkSession", cluster: MockCluster, topic: str, **options: str) -> "DataFrame":
    reader = session.readStream.format("pykraft").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    return reader.options(subscribe=topic, **options).load()


def copy(frame: "DataFrame", directory: Path) -> list[dict[str, Any]]:
    """What is there goes to Parquet files; returns the progress of each micro-batch."""
    writer = frame.writeStream.format("parquet").option("path", f"{directory}/copy")
    query = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
    assert query.awaitTermination(SHOWN_TIMEOUT_S)
    return [json.loads(progress.json) for progress in query.recentProgress]


def test_query_continues_from_its_checkpoint(
    spark_session: "SparkSession", mock_cluster: MockCluster, tmp_path: Path
) -> None:
    for partition in range(2):
        mock_cluster.produce_numbered("stream", partition, 100)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "120", "maxRecordsPerPartition": "40"}
    progress = copy(stream(spark_session, mock_cluster, "stream", **options), tmp_path)
    assert [one["numInputRows"] for one in progress] == [0, 120, 80]
    (source,) = progress[1]["sources"]
    assert source["endOffset"] == {"stream": {"0": 60, "1": 60, "2": 0, "3": 0}}
    assert source["latestOffset"] == {"stream": {"0": 100, "1": 100, "2": 0, "3": 0}}
    mock_cluster.produce_numbered("stream", 2, 50)
    progress = copy(stream(spark_session, mock_cluster, "stream", **options), tmp_path)
    assert sum(one["numInputRows"] for one in progress) == 50
    copied = spark_session.read.parquet(f"{tmp_path}/copy")
    assert (copied.count(), copied.select("partition", "offset").distinct().count()) == (250, 250)


def test_stream_begins_at_the_end_unless_told_otherwise(
    spark_session: "SparkSession", mock_cluster: MockCluster
) -> None:
    mock_cluster.produce_numbered("appended-later", 0, 100)
    frame = stream(spark_session, mock_cluster, "appended-later").selectExpr(
        "offset", "cast(value as string) as value"
    )
    query: StreamingQuery = frame.writeStream.format("memory").queryName("late_records").start()
    try:
        wait_until("the query begins", lambda: bool(query.recentProgress), SHOWN_TIMEOUT_S)
        mock_cluster.produce("appended-later", 0, [b"new"])
        shown = spark_session.table("late_records")
        wait_until("the record is read", lambda: shown.count() > 0, SHOWN_TIMEOUT_S)
        assert [(row.offset, row.value) for row in shown.collect()] == [(100, "new")]
    finally:
        query.stop()


def test_group_shows_how_far_the_query_is(
    spark_session: "SparkSession", mock_cluster: MockCluster, tmp_path: Path
) -> None:
    mock_cluster.produce_numbered("shown", 1, 100)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "40", "publishOffsetsToGroup": "copies"}
    progress = copy(stream(spark_session, mock_cluster, "shown", **options), tmp_path)
    behind = [offsets_behind_latest(one["sources"][0]) for one in progress]
    assert [one["maxOffsetsBehindLatest"] for one in behind] == ["100", "60", "20", "0"]
    assert [float(one["avgOffsetsBehindLatest"]) for one in behind] == [25, 15, 5, 0]
    with AdminClient(mock_cluster.bootstrap_servers) as client:
        committed = client.group_offsets("copies", [TopicPartition("shown", 1)])
    assert committed[TopicPartition("shown", 1)].offset == 100


def test_error_of_planning_reaches_the_user(spark_session: "SparkSession", mock_cluster: MockCluster) -> None:
    frame = stream(spark_session, mock_cluster, "appended-later", endingOffsets="latest")
    query = frame.writeStream.format("memory").queryName("refused").start()
    with pytest.raises(Exception, match="option 'endingoffsets' applies to batch reads only"):
        query.awaitTermination(SHOWN_TIMEOUT_S)
