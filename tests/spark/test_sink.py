"""Writing: every row at least once, and exactly once whatever becomes of tasks and queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pykraft.kafka_protocol.errors import KafkaError
from pykraft.spark.sink import Written, write_exactly_once
from pykraft.spark.write_options import WriteOptions, parse_write_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install pykraft[spark]")

from pykraft.spark import encoded_rows  # noqa: E402

pytestmark = [pytest.mark.interop, pytest.mark.spark]

SHOWN_TIMEOUT_S = 60


def read(session: SparkSession, servers: str, topic: str) -> DataFrame:
    reader = session.read.format("pykraft").option("kafka.bootstrap.servers", servers)
    settings = {"subscribe": topic, "kafka.isolation.level": "read_committed", "includeHeaders": "true"}
    return reader.options(**settings).load()


def written(session: SparkSession, servers: str, topic: str) -> list[str]:
    return sorted(bytes(row.value).decode() for row in read(session, servers, topic).collect())


def options(servers: str, topic: str) -> WriteOptions:
    return parse_write_options(
        {"kafka.bootstrap.servers": servers, "topic": topic, "deliveryGuarantee": "exactly_once"}
    )


def rows(*values: str) -> Iterator[Any]:
    return (pa.record_batch({"value": pa.array([value])}) for value in values)


def test_every_column_is_written(spark_session: SparkSession, servers: str, topic: str) -> None:
    frame = spark_session.sql(
        f"select 'k' as key, cast('v' as binary) as value, '{topic}' as topic, 2 as partition,"
        " array(named_struct('key', 'h', 'value', cast('1' as binary))) as headers, 7 as other"
    )
    frame.write.format("pykraft").option("kafka.bootstrap.servers", servers).mode("append").save()
    found: list[Row] = read(spark_session, servers, topic).collect()
    assert [(bytes(row.key), bytes(row.value), row.partition) for row in found] == [(b"k", b"v", 2)]
    assert [(one.key, bytes(one.value)) for one in found[0].headers] == [("h", b"1")]


def test_job_that_is_run_again_writes_nothing(spark_session: SparkSession, servers: str, topic: str) -> None:
    frame = spark_session.range(100).selectExpr("cast(id as string) as value").coalesce(2)
    settings = {"topic": topic, "deliveryGuarantee": "exactly_once", "jobId": topic}
    for _ in range(2):
        writer = frame.write.format("pykraft").option("kafka.bootstrap.servers", servers)
        writer.options(**settings).mode("append").save()
    assert written(spark_session, servers, topic) == sorted(map(str, range(100)))
    recent = read(spark_session, servers, topic).where("timestamp > current_timestamp() - interval 1 hour")
    assert recent.count() == 100


def test_micro_batch_that_is_run_again_writes_nothing(
    spark_session: SparkSession, servers: str, topic: str, tmp_path: Path
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


def test_zombie_task_is_fenced(
    spark_session: SparkSession, servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of a task takes over in the middle of its rows; the next micro-batch is not hindered."""
    monkeypatch.setattr(encoded_rows, "BLOCK_BYTES", 1)  # each row is sent when it comes
    asked = options(servers, topic)

    def overtaken() -> Iterator[Any]:
        yield from rows("a")
        assert write_exactly_once(rows("a", "b"), asked, topic, 4) == Written(2)
        yield from rows("b")

    with pytest.raises(KafkaError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
        write_exactly_once(overtaken(), asked, topic, 4)
    assert write_exactly_once(rows("a", "b"), asked, topic, 4) == Written(0, is_repeated=True)
    assert write_exactly_once(rows("c"), asked, topic, 5) == Written(1)
    assert written(spark_session, servers, topic) == ["a", "b", "c"]


def test_task_that_fails_leaves_nothing(
    spark_session: SparkSession, servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded_rows, "BLOCK_BYTES", 1)

    def failing() -> Iterator[Any]:
        yield from rows("a")
        raise RuntimeError("the task fails")

    asked = options(servers, topic)
    with pytest.raises(RuntimeError, match="the task fails"):
        write_exactly_once(failing(), asked, topic, 0)
    assert written(spark_session, servers, topic) == []
    assert write_exactly_once(rows("b"), asked, topic, 0) == Written(1)
    assert written(spark_session, servers, topic) == ["b"]


def test_frame_without_a_topic_is_refused(spark_session: SparkSession, servers: str) -> None:
    frame = spark_session.sql("select 'v' as value")
    with pytest.raises(Exception, match="name the topic with option 'topic'"):
        frame.write.format("pykraft").option("kafka.bootstrap.servers", servers).mode("append").save()
