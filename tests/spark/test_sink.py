"""Writing: every row at least once, and exactly once whatever becomes of tasks and queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pykraft.jepsen_like.awaiting import wait_until
from pykraft.kafka_client.admin import AdminClient
from pykraft.kafka_client.admin_results import NewTopic
from pykraft.kafka_client.errors import FencedError
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.spark.markers import OtherRowsError, Tally
from pykraft.spark.sink import abort, commit
from pykraft.spark.task_messages import Task, Written
from pykraft.spark.write_options import WriteOptions, parse_write_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install pykraft[spark]")

from pykraft.spark import encoded_rows  # noqa: E402
from pykraft.spark.task_writes import write_exactly_once  # noqa: E402

pytestmark = [pytest.mark.interop, pytest.mark.spark]

SHOWN_TIMEOUT_S = 60


def read(session: SparkSession, servers: str, topic: str) -> DataFrame:
    reader = session.read.format("pykraft").option("kafka.bootstrap.servers", servers)
    settings = {"subscribe": topic, "kafka.isolation.level": "read_committed", "includeHeaders": "true"}
    return reader.options(**settings).load()


def written(session: SparkSession, servers: str, topic: str) -> list[str]:
    """When what is decided can be read."""
    with AdminClient(servers) as admin:
        wait_until(
            "decided transactions have ended",
            lambda: not admin.list_transactions(states=["PrepareCommit", "PrepareAbort"]),
            SHOWN_TIMEOUT_S,
        )
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


def write(asked: WriteOptions, query: str, epoch: int, *values: str) -> Written:
    """The only task of a micro-batch, of which Spark says that it has succeeded."""
    done = write_exactly_once(rows(*values), asked, Task(query, 0, epoch))
    commit([done], asked)
    return done


def open_transactions(servers: str, query: str) -> list[str]:
    with AdminClient(servers) as admin:
        found = (one.transactional_id for one in admin.list_transactions(states=["Ongoing"]))
        return [one for one in found if one.startswith(f"{query}/")]


def test_zombie_task_is_fenced(
    spark_session: SparkSession, servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of a task takes over in the middle of its rows; the next micro-batch is not hindered."""
    monkeypatch.setattr(encoded_rows, "BLOCK_BYTES", 1)  # each row is sent when it comes
    asked = options(servers, topic)

    def overtaken() -> Iterator[Any]:
        yield from rows("a")
        assert write(asked, topic, 4, "a", "b").rows == 2
        yield from rows("b")

    with pytest.raises(KafkaError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
        write_exactly_once(overtaken(), asked, Task(topic, 0, 4))
    assert write(asked, topic, 4, "a", "b").is_repeated
    assert write(asked, topic, 5, "c").rows == 1
    assert written(spark_session, servers, topic) == ["a", "b", "c"]


def test_task_whose_rows_end_early_leaves_nothing(
    spark_session: SparkSession, servers: str, topic: str
) -> None:
    """An earlier step has failed: the task sees the end of its rows, and Spark runs it again."""
    asked = options(servers, topic)
    assert write_exactly_once(rows("a"), asked, Task(topic, 0, 0)).rows == 1
    assert written(spark_session, servers, topic) == []
    assert write(asked, topic, 0, "a", "b").rows == 2
    assert written(spark_session, servers, topic) == ["a", "b"]


def test_commit_of_a_task_that_was_overtaken_is_an_error(
    spark_session: SparkSession, servers: str, topic: str
) -> None:
    """The others are committed all the same; the micro-batch is run again."""
    asked = options(servers, topic)
    first, second = Task(topic, 0, 0), Task(topic, 1, 0)
    early = write_exactly_once(rows("a"), asked, first)
    late = write_exactly_once(rows("a"), asked, first)
    other = write_exactly_once(rows("b"), asked, second)
    with pytest.raises(FencedError):
        commit([early, other], asked)
    abort([late, other], asked)  # readers do not pass an open transaction of their partition
    assert written(spark_session, servers, topic) == ["b"]
    again = [write_exactly_once(rows("a"), asked, first), write_exactly_once(rows("b"), asked, second)]
    assert [one.is_repeated for one in again] == [False, True]
    commit(again, asked)
    assert written(spark_session, servers, topic) == ["a", "b"]


def test_task_that_fails_leaves_nothing(
    spark_session: SparkSession, servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded_rows, "BLOCK_BYTES", 1)

    def failing() -> Iterator[Any]:
        yield from rows("a")
        raise RuntimeError("the task fails")

    asked = options(servers, topic)
    with pytest.raises(RuntimeError, match="the task fails"):
        write_exactly_once(failing(), asked, Task(topic, 0, 0))
    assert open_transactions(servers, topic) == []  # readers would wait for 15 minutes
    assert written(spark_session, servers, topic) == []
    assert write(asked, topic, 0, "b").rows == 1
    assert written(spark_session, servers, topic) == ["b"]


def test_task_that_begins_late_does_not_hinder_the_next_micro_batch(
    spark_session: SparkSession, servers: str, topic: str
) -> None:
    """Stalled attempts of micro-batches 0 and 1 get their first row when the task of 2 has prepared."""
    asked = options(servers, topic)
    write(asked, topic, 0, "a")
    write(asked, topic, 1, "b")
    prepared = write_exactly_once(rows("c"), asked, Task(topic, 0, 2))

    def stalled() -> Iterator[Any]:
        yield from rows("a")
        raise AssertionError("the rows of a micro-batch that is long over are not read")

    assert write_exactly_once(stalled(), asked, Task(topic, 0, 0)).is_repeated
    assert write_exactly_once(rows("b"), asked, Task(topic, 0, 1)).is_repeated
    commit([prepared], asked)
    assert written(spark_session, servers, topic) == ["a", "b", "c"]


def test_other_rows_than_were_written_are_refused(
    spark_session: SparkSession, servers: str, topic: str
) -> None:
    """None, fewer, more, and longer ones."""
    asked = options(servers, topic)
    write(asked, topic, 3, "aa", "b")
    for again in ((), ("aa",), ("aa", "b", "c"), ("aa", "bb")):
        with pytest.raises(OtherRowsError, match=r"micro-batch 3 of .* not 2 rows of 3 bytes; run it with"):
            write(asked, topic, 3, *again)
    assert open_transactions(servers, topic) == []
    assert written(spark_session, servers, topic) == ["aa", "b"]


def test_other_number_of_tasks_than_before_is_refused(
    spark_session: SparkSession, servers: str, topic: str
) -> None:
    """The driver has died when it had committed the first task of two."""
    asked = options(servers, topic)
    one, two = (write_exactly_once(rows(value), asked, Task(topic, i, 0)) for i, value in enumerate("ab"))
    commit([one, None], asked)
    again = [write_exactly_once(rows(value), asked, Task(topic, i, 0)) for i, value in enumerate("abc")]
    assert [done.is_repeated for done in again] == [True, False, False]
    with pytest.raises(OtherRowsError, match=r"micro-batch 0 of .* has 3 tasks, and had 2 tasks when"):
        commit(again, asked)
    assert open_transactions(servers, topic) == []
    assert written(spark_session, servers, topic) == ["a"]
    assert two.prepared is not None
    commit([again[0], write_exactly_once(rows("b"), asked, Task(topic, 1, 0))], asked)
    assert write(asked, topic, 1, "c").rows == 1
    assert written(spark_session, servers, topic) == ["a", "b", "c"]


def test_late_driver_leaves_the_number_of_tasks_of_the_next_micro_batch(servers: str, topic: str) -> None:
    asked = options(servers, topic)
    early = write(asked, topic, 0, "a")
    late = [write_exactly_once(rows(value), asked, Task(topic, i, 1)) for i, value in enumerate("ab")]
    commit(late, asked)
    with pytest.raises(FencedError):
        commit([early], asked)
    with pytest.raises(OtherRowsError, match="has 1 tasks, and had 2 tasks"):
        write(asked, topic, 1, "a")


def test_task_without_rows_has_no_transaction(servers: str, topic: str) -> None:
    asked = options(servers, topic)
    assert write(asked, topic, 0) == Written(0, Task(topic, 0, 0))
    with AdminClient(servers) as admin:
        assert f"{topic}/0" not in {one.transactional_id for one in admin.list_transactions()}


def test_rows_that_name_topics_are_written_once_in_any_order(
    spark_session: SparkSession, servers: str, topic: str
) -> None:
    """The marker is one of the topic of the first row."""
    with AdminClient(servers) as admin:
        admin.create_topics([NewTopic(f"{topic}-2", 1, 1)])[0].check()
    asked = parse_write_options({"kafka.bootstrap.servers": servers, "deliveryGuarantee": "exactly_once"})
    task = Task(topic, 0, 0)
    for names in ([topic, f"{topic}-2"], [f"{topic}-2", topic]):
        columns = {"value": pa.array(["v", "v"]), "topic": pa.array(names)}
        done = write_exactly_once(iter([pa.record_batch(columns)]), asked, task)
        commit([done], asked)
    assert done.is_repeated
    assert written(spark_session, servers, topic) == written(spark_session, servers, f"{topic}-2") == ["v"]


def test_keys_and_values_count() -> None:
    tally = Tally()
    for keys in (["k", None], [None, None]):
        tally.add(pa.record_batch({"key": pa.array(keys, pa.string()), "value": pa.array([b"12", None])}))
    tally.add(pa.record_batch({"value": pa.array(["\u00e9"])}))
    assert tally == Tally(5, 7)


def test_micro_batch_with_other_shuffle_partitions_is_refused(
    spark_session: SparkSession, servers: str, topic: str, tmp_path: Path
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


def test_frame_without_a_topic_is_refused(spark_session: SparkSession, servers: str) -> None:
    frame = spark_session.sql("select 'v' as value")
    with pytest.raises(Exception, match="name the topic with option 'topic'"):
        frame.write.format("pykraft").option("kafka.bootstrap.servers", servers).mode("append").save()
