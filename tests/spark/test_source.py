"""The data source end to end: Spark, its Python workers, real sockets."""

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.mock_cluster import MockCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def flights(mock_cluster: MockCluster) -> str:
    """A topic of four partitions; the last one is empty."""
    for partition in range(3):
        mock_cluster.produce_numbered(
            "flights", partition, 1000 + partition, timestamp=1_700_000_000_000 + partition
        )
    return mock_cluster.bootstrap_servers


def load(session: "SparkSession", servers: str, **options: str) -> "DataFrame":
    reader = session.read.format("pykraft").option("kafka.bootstrap.servers", servers)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def test_format_is_found_without_registration_and_reads_every_record_once(
    spark_session: "SparkSession", flights: str
) -> None:
    rows = load(spark_session, flights, subscribe="flights").select("partition", "offset", "value").collect()
    assert Counter(row.partition for row in rows) == {0: 1000, 1: 1001, 2: 1002}
    assert all(bytes(row.value) == b"%d-%d" % (row.partition, row.offset) for row in rows)
    assert len({(row.partition, row.offset) for row in rows}) == len(rows)


def test_columns_and_values_are_those_of_sparks_kafka_source(
    spark_session: "SparkSession", flights: str
) -> None:
    frame = load(spark_session, flights, subscribe="flights")
    assert [(field.name, field.dataType.simpleString(), field.nullable) for field in frame.schema] == [
        ("key", "binary", True),
        ("value", "binary", True),
        ("topic", "string", True),
        ("partition", "int", True),
        ("offset", "bigint", True),
        ("timestamp", "timestamp", True),
        ("timestampType", "int", True),
    ]
    (row,) = (
        frame.where("partition = 1 and offset = 4").selectExpr("*", "unix_millis(timestamp) as ms").collect()
    )
    assert (bytes(row.key), bytes(row.value), row.topic, row.timestampType) == (
        b"key-1",
        b"1-4",
        "flights",
        0,
    )
    assert datetime.fromtimestamp(row.ms / 1000, UTC) == datetime.fromtimestamp(1_700_000_000.001, UTC)


def test_headers_are_read_when_asked_for_and_null_where_there_are_none(
    spark_session: "SparkSession", mock_cluster: MockCluster
) -> None:
    mock_cluster.produce_numbered("headers", 0, 2)
    mock_cluster.produce_numbered("headers", 0, 1, headers=[("a", b"1"), ("b", None)])
    frame = load(spark_session, mock_cluster.bootstrap_servers, subscribe="headers", includeHeaders="true")
    rows = {row.offset: row.headers for row in frame.collect()}
    assert rows[0] is None
    assert [(header.key, header.value) for header in rows[2]] == [("a", bytearray(b"1")), ("b", None)]


def test_ranges_are_exact_and_split_into_tasks(spark_session: "SparkSession", flights: str) -> None:
    frame = load(
        spark_session,
        flights,
        assign='{"flights":[0,2]}',
        startingOffsets='{"flights":{"0":10,"2":-2}}',
        endingOffsets='{"flights":{"0":500,"2":7}}',
        minPartitions="9",
        maxRecordsPerPartition="200",
    )
    rows = frame.select("partition", "offset").collect()
    wanted = [(0, offset) for offset in range(10, 500)] + [(2, offset) for offset in range(7)]
    assert sorted((row.partition, row.offset) for row in rows) == wanted
    # Three of up to 200 records, each cut into three, and a small one.
    assert frame.rdd.getNumPartitions() == 10


def test_topics_are_subscribed_by_pattern(spark_session: "SparkSession", flights: str) -> None:
    frame = load(spark_session, flights, subscribePattern="fli.*")
    assert {row.topic for row in frame.select("topic").distinct().collect()} == {"flights"}


def test_pattern_that_matches_nothing_reads_nothing(spark_session: "SparkSession", flights: str) -> None:
    assert load(spark_session, flights, subscribePattern="nothing.*").count() == 0


def test_users_schema_prunes_columns(spark_session: "SparkSession", flights: str) -> None:
    reader = spark_session.read.format("pykraft").schema("offset bigint, value binary")
    frame = reader.option("kafka.bootstrap.servers", flights).option("subscribe", "flights").load()
    assert frame.columns == ["offset", "value"]
    assert frame.count() == 3003


def test_offsets_deleted_from_the_log_fail_the_read_unless_loss_is_allowed(
    spark_session: "SparkSession", flights: str
) -> None:
    beyond = {"assign": '{"flights":[0]}', "endingOffsets": '{"flights":{"0":5000}}'}
    with pytest.raises(Exception, match="'failOnDataLoss' to 'false'"):
        load(spark_session, flights, **beyond).count()
    assert load(spark_session, flights, **beyond, failOnDataLoss="false").count() == 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "flights", "startingOfsets": "earliest"}, "did you mean 'startingOffsets'"),
        ({"subscribe": "flights", "startingOffsets": "latest"}, "cannot be 'latest'"),
        ({"subscribe": "flights", "startingOffsets": '{"flights":{"0":1}}'}, "missing: flights-1"),
        ({"assign": '{"flights":[77]}'}, "there is no partition flights-77"),
    ],
    ids=["misspelt", "latest", "map not exact", "no such partition"],
)
def test_mistakes_are_reported_with_the_correct_form(
    spark_session: "SparkSession", flights: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        load(spark_session, flights, **options).count()
