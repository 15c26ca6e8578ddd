"""Writing: every row at least once, and exactly once whatever becomes of tasks and queries."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.testing.processes.waits import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install pykraft[spark]")


pytestmark = [pytest.mark.interop, pytest.mark.spark]

SHOWN_TIMEOUT_S = 60


def read(session: "SparkSession", servers: str, topic: str) -> "DataFrame":
    reader = session.read.format("pykraft").option("kafka.bootstrap.servers", servers)
    settings = {"subscribe": topic, "kafka.isolation.level": "read_committed", "includeHeaders": "true"}
    return reader.options(**settings).load()


def written(session: "SparkSession", servers: str, topic: str) -> list[str]:
    """When what is decided can be read."""
    with AdminClient(servers) as admin:
        wait_until(
            "decided transactions have ended",
            lambda: not admin.list_transactions(states=["PrepareCommit", "PrepareAbort"]),
            SHOWN_TIMEOUT_S,
        )
    return sorted(bytes(row.value).decode() for row in read(session, servers, topic).collect())


def test_every_column_is_written(spark_session: "SparkSession", servers: str, topic: str) -> None:
    frame = spark_session.sql(
        f"select 'k' as key, cast('v' as binary) as value, '{topic}' as topic, 2 as partition,"
        " array(named_struct('key', 'h', 'value', cast('1' as binary))) as headers, 7 as other"
    )
    frame.write.format("pykraft").option("kafka.bootstrap.servers", servers).mode("append").save()
    found: list[Row] = read(spark_session, servers, topic).collect()
    assert [(bytes(row.key), bytes(row.value), row.partition) for row in found] == [(b"k", b"v", 2)]
    assert [(one.key, bytes(one.value)) for one in found[0].headers] == [("h", b"1")]


def test_job_that_is_run_again_writes_nothing(
    spark_session: "SparkSession", servers: str, topic: str
) -> None:
    frame = spark_session.range(100).selectExpr("cast(id as string) as value").coalesce(2)
    settings = {"topic": topic, "deliveryGuarantee": "exactly_once", "jobId": topic}
    for _ in range(2):
        writer = frame.write.format("pykraft").option("kafka.bootstrap.servers", servers)
        writer.options(**settings).mode("append").save()
    assert written(spark_session, servers, topic) == sorted(map(str, range(100)))
    recent = read(spark_session, servers, topic).where("timestamp > current_timestamp() - interval 1 hour")
    assert recent.count() == 100


def test_micro_batch_that_is_run_again_writes_nothing(
    spark_session: "SparkSession", servers: str, topic: str, tmp_path: Path
) -> None:
    """Its end was not stored: Spark cannot know whether it was over."""
    spark_session.range(100).selectExpr("cast(id as string) as value").write.parquet(f"{tmp_path}/in")
    settings = {
        "topic": topic,
        "deliveryGuarantee": "exactly_once",
        "checkpointLocation": f"{tmp_path}/checkpoint",
    }
    for attempt in range(2):
        frame = spark_session.readStream.schema("value string").parquet(f"{tmp_path}/in")
        writer = frame.writeStream.format("pykraft").option("kafka.bootstrap.servers", servers)
        query = writer.options(**settings).trigger(availableNow=True).start()
        assert query.awaitTermination(SHOWN_TIMEOUT_S)
        assert [progress["numInputRows"] for progress in query.recentProgress] == [100], attempt
        for stored in Path(f"{tmp_path}/checkpoint/commits").iterdir():
            stored.unlink()
    assert written(spark_session, servers, topic) == sorted(map(str, range(100)))


def test_micro_batch_with_other_shuffle_partitions_is_refused(
    spark_session: "SparkSession", servers: str, topic: str, tmp_path: Path
) -> None:
    """The checkpoint keeps their number only for queries with state. The end of the first was not stored."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.txt").write_text("0\n1\n2\n3\n")
    settings = {"topic": topic, "deliveryGuarantee": "exactly_once", "kafka.bootstrap.servers": servers}

    before = str(spark_session.conf.get("spark.sql.shuffle.partitions"))

    def run(partitions: str) -> None:
        spark_session.conf.set("spark.sql.shuffle.partitions", partitions)
        frame = spark_session.readStream.text(f"{tmp_path}/in").repartition("value")
        writer = frame.writeStream.format("pykraft").option("checkpointLocation", f"{tmp_path}/checkpoint")
        assert writer.options(**settings).trigger(availableNow=True).start().awaitTermination(SHOWN_TIMEOUT_S)

    try:
        run("1")
        for stored in Path(f"{tmp_path}/checkpoint/commits").iterdir():
            stored.unlink()
        with pytest.raises(Exception, match=r"task 0 of micro-batch 0 of .* has other rows than when"):
            run("4")
        run("1")
    finally:
        spark_session.conf.set("spark.sql.shuffle.partitions", before)
    assert written(spark_session, servers, topic) == ["0", "1", "2", "3"]


def test_frame_without_a_topic_is_refused(spark_session: "SparkSession", servers: str) -> None:
    frame = spark_session.sql("select 'v' as value")
    with pytest.raises(Exception, match="name the topic with option 'topic'"):
        frame.write.format("pykraft").option("kafka.bootstrap.servers", servers).mode("append").save()
