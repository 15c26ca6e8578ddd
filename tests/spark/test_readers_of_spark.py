"""What Spark calls of the data source, and what that asks the cluster for; without Spark."""

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.cluster import Cluster as Client
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_client.producer.blocking import BlockingProducer
from pykraft.kafka_client.producer.transaction import TransactionConfig
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.spark import progress
from pykraft.spark.discovery import ClusterLogs, partitions_of
from pykraft.spark.offsets import PlanError
from pykraft.spark.option_values import OptionError
from pykraft.spark.options import parse_batch_options
from pykraft.spark.positions import LATEST
from pykraft.spark.stream_planner import StreamDataLossError
from pykraft.spark.writing.written_rows import WriteError
from pykraft.testing import Cluster, Record

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install pykraft[spark]")
pytest.importorskip("pyspark", reason="pyspark is not installed: pip install pykraft[spark]")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows  # noqa: E402
from pyspark.sql.types import (  # noqa: E402
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pykraft.spark.source import PykraftDataSource, PykraftReader  # noqa: E402
from pykraft.spark.stream import PykraftStreamReader  # noqa: E402

OFFSETS = StructType([StructField("partition", IntegerType()), StructField("offset", LongType())])
VALUES = StructType([StructField("value", BinaryType())])


@pytest.fixture
def topic(kraft: Cluster, request: pytest.FixtureRequest) -> str:
    """Of two partitions, with offsets 0 to 4 and 0 to 1."""
    name = kraft.create_topic(request.node.originalname, partitions=2)
    fill(kraft, name, 0, 5)
    fill(kraft, name, 1, 2)
    return name


def fill(kraft: Cluster, topic: str, partition: int, count: int) -> None:
    kraft.produce(topic, *(f"{partition}-{n}" for n in range(count)), partition=partition)


def source(kraft: Cluster, **options: str) -> PykraftDataSource:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return PykraftDataSource({"kafka.bootstrap.servers": kraft.bootstrap_servers, **named})


def offsets_of(reader: PykraftReader | PykraftStreamReader, partitions: Any) -> list[tuple[int, int]]:
    """As executors read them."""
    pairs: list[tuple[int, int]] = []
    for one in partitions:
        for batch in pickle.loads(pickle.dumps(reader)).read(pickle.loads(pickle.dumps(one))):
            pairs += zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    return pairs


def batch(kraft: Cluster, **options: str) -> list[tuple[int, int]]:
    reader = source(kraft, **options).reader(OFFSETS)
    return offsets_of(reader, reader.partitions())


@pytest.fixture
def readers() -> Iterator[list[PykraftStreamReader]]:
    """All are stopped."""
    made: list[PykraftStreamReader] = []
    yield made
    for one in made:
        one.stop()


class Stream:
    """What Spark does for a query: start offsets of each micro-batch are the end of the last."""

    def __init__(self, made: list[PykraftStreamReader], kraft: Cluster, **options: str) -> None:
        self._on_executors = source(kraft, **options).streamReader(OFFSETS)
        self.reader = source(kraft, **options).streamReader(OFFSETS)
        made.append(self.reader)
        self.start = self.reader.initialOffset()

    def read(self, limit: Any = None) -> list[tuple[int, int]]:
        limit = self.reader.getDefaultReadLimit() if limit is None else limit
        end = self.reader.latestOffset(self.start, limit)
        found = offsets_of(self._on_executors, self.reader.partitions(self.start, end))
        self.reader.commit(end)
        self.start = end
        return found


ALL = [(0, n) for n in range(5)] + [(1, n) for n in range(2)]

# -- batches -------------------------------------------------------------------------------------------


def test_batch_reads_every_offset_that_is_asked_for(kraft: Cluster, topic: str) -> None:
    assert batch(kraft, subscribe=topic) == ALL
    assert batch(kraft, subscribe=topic, maxRecordsPerPartition="2") == ALL
    assert batch(kraft, assign=f'{{"{topic}":[1]}}') == ALL[5:]
    between = {
        "startingOffsets": f'{{"{topic}":{{"0":2,"1":-2}}}}',
        "endingOffsets": f'{{"{topic}":{{"0":4,"1":-1}}}}',
    }
    assert batch(kraft, subscribe=topic, **between) == [(0, 2), (0, 3), (1, 0), (1, 1)]


def test_schema_is_that_of_the_options_and_users_choose_columns_of_it(kraft: Cluster, topic: str) -> None:
    assert source(kraft, subscribe=topic).schema() == (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
        " timestampType int"
    )
    assert (
        source(kraft, subscribe=topic, includeHeaders="TRUE")
        .schema()
        .endswith(", timestampType int, headers array<struct<key:string,value:binary>>")
    )
    reader = source(kraft, assign=f'{{"{topic}":[1]}}').reader(VALUES)
    (one,) = reader.partitions()
    (read,) = reader.read(one)
    assert read.to_pydict() == {"value": [b"1-0", b"1-1"]}
    with pytest.raises(ValueError, match="no column 'price'"):
        source(kraft, subscribe=topic).reader(StructType([StructField("price", LongType())]))
    with pytest.raises(ValueError, match="column 'value' is of type binary, not string"):
        source(kraft, subscribe=topic).streamReader(StructType([StructField("value", StringType())]))
    assert PykraftDataSource.name() == "pykraft"


def test_batch_of_nothing_has_no_tasks(kraft: Cluster) -> None:
    empty = kraft.create_topic("empty")
    reader = source(kraft, subscribe=empty).reader(OFFSETS)
    assert list(reader.partitions()) == []
    assert list(reader.read(None)) == [], "Spark adds a partition where there is none"  # type: ignore[arg-type]


def test_reader_keeps_no_connection(kraft: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[object] = []
    close = Client.close

    def counted(self: Client) -> None:
        ended.append(self)
        close(self)

    monkeypatch.setattr(Client, "close", counted)
    reader = source(kraft, subscribe=topic).reader(OFFSETS)
    partitions = reader.partitions()
    assert len(ended) == 1
    assert len(list(reader.read(partitions[0]))) == 1
    assert len(ended) == 2
    with pytest.raises(KafkaError):
        source(kraft, subscribe="missing").reader(OFFSETS).partitions()
    assert len(ended) == 3


# -- writes --------------------------------------------------------------------------------------------


def test_writes_append_and_those_that_are_exactly_once_have_a_name(kraft: Cluster) -> None:
    once = {"topic": "t", "deliveryGuarantee": "exactly_once"}
    with pytest.raises(WriteError, match="only be appended"):
        source(kraft, topic="t").writer(VALUES, overwrite=True)
    with pytest.raises(OptionError, match="set option 'jobId'"):
        source(kraft, **once).writer(VALUES, overwrite=False)
    source(kraft, **once, jobId="j").writer(VALUES, overwrite=False)
    source(kraft, topic="t").writer(VALUES, overwrite=False)
    source(kraft, **once).streamWriter(VALUES, overwrite=True)
    for writer in (source(kraft).writer, source(kraft).streamWriter):
        with pytest.raises(WriteError, match="name the topic with option 'topic'"):
            writer(VALUES, False)
    with pytest.raises(WriteError, match="no column 'value'"):
        source(kraft, topic="t").writer(OFFSETS, overwrite=False)


# -- streams -------------------------------------------------------------------------------------------


def test_stream_reads_each_offset_once(
    kraft: Cluster, topic: str, readers: list[PykraftStreamReader]
) -> None:
    query = Stream(readers, kraft, subscribe=topic, startingOffsets="earliest")
    assert query.start == {} and query.reader.reportLatestOffset() is None
    assert [query.read(), query.read(), query.read()] == [[], ALL, []]
    assert query.reader.reportLatestOffset() == query.start == {topic: {"0": 5, "1": 2}}
    fill(kraft, topic, 1, 1)
    assert query.read() == [(1, 2)]


def test_stream_begins_at_the_end_by_default(
    kraft: Cluster, topic: str, readers: list[PykraftStreamReader]
) -> None:
    query = Stream(readers, kraft, subscribe=topic)
    assert [query.read(), query.read()] == [[], []]
    fill(kraft, topic, 0, 1)
    assert query.read() == [(0, 5)]


def test_limit_of_a_stream_is_told_to_spark_and_holds_unless_spark_asks_for_all(
    kraft: Cluster, topic: str, readers: list[PykraftStreamReader]
) -> None:
    base = {"subscribe": topic, "startingOffsets": "earliest"}
    for options, limit in (
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "3"}, ReadMaxRows(3)),
        ({"minOffsetsPerTrigger": "2"}, ReadMinRows(2)),
        ({"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "3"}, ReadMaxRows(3)),
    ):
        assert Stream(readers, kraft, **base, **options).reader.getDefaultReadLimit() == limit
    query = Stream(readers, kraft, **base, maxOffsetsPerTrigger="3")
    assert [query.read(), query.read()] == [[], [(0, 0), (0, 1), (1, 0)]]
    assert query.reader.reportLatestOffset() == {topic: {"0": 5, "1": 2}}
    assert query.read(ReadAllAvailable()) == [(0, 2), (0, 3), (0, 4), (1, 1)]


def test_stream_of_what_is_there_ends_with_it(
    kraft: Cluster, topic: str, readers: list[PykraftStreamReader]
) -> None:
    query = Stream(readers, kraft, subscribe=topic, startingOffsets="earliest")
    query.reader.prepareForTriggerAvailableNow()
    fill(kraft, topic, 0, 3)
    assert [query.read(), query.read(), query.read()] == [[], ALL, []]


def test_group_shows_what_is_processed(
    kraft: Cluster, topic: str, readers: list[PykraftStreamReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[dict[TopicPartition, int]] = []

    async def counted(cluster: Client, group_id: str, offsets: dict[TopicPartition, int]) -> None:
        published.append(offsets)
        await progress.publish(cluster, group_id, offsets)

    monkeypatch.setattr("pykraft.spark.stream.publish", counted)
    options = {"subscribe": topic, "startingOffsets": "earliest", "publishOffsetsToGroup": "shown"}
    query = Stream(readers, kraft, **options)

    def shown() -> dict[TopicPartition, int]:
        with kraft.admin() as admin:
            return {place: one.offset for place, one in admin.group_offsets("shown").items()}

    query.read()
    assert published == [], "nothing is processed before the first micro-batch"
    query.read()
    assert shown() == {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0}
    query.read()
    assert shown() == {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 2}
    query.read()
    assert len(published) == 2, "what has not changed is not published again"
    silent = Stream(readers, kraft, subscribe=topic, startingOffsets="earliest")
    assert [silent.read(), silent.read(), silent.read()] == [[], ALL, []]
    assert len(published) == 2


def test_query_goes_on_when_its_group_cannot_be_written(
    kraft: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ClientConfig(parse_bootstrap_servers(kraft.bootstrap_servers))
    cluster = Client(BlockingNetwork(), config)
    try:
        place = TopicPartition("no-such-topic", 0)
        run(progress.publish(cluster, "refused", {place: 1}))
        assert "the offset of no-such-topic-0 is not published to group refused" in caplog.text

        async def fails(*given: Any) -> Any:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody is there")

        monkeypatch.setattr(progress, "alter_group_offsets", fails)
        run(progress.publish(cluster, "g", {place: 1}))
        assert "not published to group g: COORDINATOR_NOT_AVAILABLE: nobody is there" in caplog.text
    finally:
        cluster.close()


def test_lag_is_over_partitions_that_are_read() -> None:
    latest = {"t": {"0": 10, "1": 4, "2": 9}}
    progress_of = {"endOffset": {"t": {"0": 7, "1": 5}}, "latestOffset": latest}
    assert progress.offsets_behind_latest(progress_of) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "3",
        "avgOffsetsBehindLatest": "1.5",
    }
    for nothing in ({}, {"endOffset": {}, "latestOffset": latest}, {"endOffset": {"u": {"0": 1}}}):
        assert progress.offsets_behind_latest(nothing) == {}
    assert progress.offsets_behind_latest({"endOffset": {"u": {"0": 1}}, "latestOffset": latest}) == {}


def test_log_that_fell_back_is_a_loss(kraft: Cluster, topic: str, readers: list[PykraftStreamReader]) -> None:
    query = Stream(readers, kraft, subscribe=topic, startingOffsets="earliest")
    for ahead in ({"0": 6, "1": 2}, {"0": 5, "1": 3}):
        with pytest.raises(StreamDataLossError, match=r"went back from offset \d to \d"):
            query.reader.partitions(
                {topic: ahead}, query.reader.latestOffset({topic: ahead}, ReadAllAvailable())
            )


# -- topics and positions ------------------------------------------------------------------------------


@pytest.fixture
def logs(kraft: Cluster) -> Iterator[Any]:
    """Makes :class:`ClusterLogs` from options."""
    made: list[Client] = []

    def make(**options: str) -> tuple[ClusterLogs, Any]:
        named = {name.replace("__", "."): value for name, value in options.items()}
        checked = parse_batch_options({"kafka.bootstrap.servers": kraft.bootstrap_servers, **named})
        made.append(Client(BlockingNetwork(), checked.client))
        return ClusterLogs(made[-1], checked), checked

    yield make
    for one in made:
        one.close()


def test_topics_are_found_as_they_are_named(kraft: Cluster, topic: str, logs: Any) -> None:
    other = kraft.create_topic(f"{topic}-2", partitions=3)
    with kraft.admin() as admin:  # an internal topic is there
        admin.alter_group_offsets("g", {TopicPartition(topic, 0): OffsetAndMetadata(1)})

    def found(lax: bool = False, **options: str) -> list[str]:
        known, checked = logs(**options)
        topics = run(known.find_topics(skips_missing=lax))
        assert len({one.topic_id for one in topics}) == len(topics)
        return [str(one) for one in partitions_of(topics, checked, skips_missing=lax)]

    both = [*(f"{topic}-{n}" for n in range(2)), *(f"{other}-{n}" for n in range(3))]
    assert found(subscribe=f"{other},{topic}") == both
    assert found(subscribe=topic) == both[:2]
    assert found(subscribePattern=f"{topic}.*") == both
    assert found(subscribePattern=topic) == both[:2], "the whole name matches"
    assert found(subscribePattern=f"{topic[1:]}.*") == []
    assert not any(one.startswith("__") for one in found(subscribePattern=".*"))
    assert found(assign=f'{{"{other}":[2,0]}}') == [both[2], both[4]]
    with pytest.raises(PlanError, match=f"option 'assign': there is no partition {topic}-2"):
        found(assign=f'{{"{topic}":[1,2]}}')
    assert found(lax=True, assign=f'{{"{topic}":[1,2],"nowhere":[0]}}') == [both[1]]
    assert found(lax=True, subscribe=f"{topic},nowhere") == both[:2]
    with pytest.raises(KafkaError):
        found(subscribe=f"{topic},nowhere")


def test_ends_are_those_of_what_is_read(kraft: Cluster, topic: str, logs: Any) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    client = ClientConfig(parse_bootstrap_servers(kraft.bootstrap_servers))
    with kraft.admin() as admin:
        admin.delete_records({first: 3})
    with BlockingProducer(client, transaction=TransactionConfig(topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, 0, None, b"open").result()
        everything, _ = logs(subscribe=topic)
        committed, _ = logs(subscribe=topic, kafka__isolation__level="read_committed")
        assert run(everything.starts([first, second])) == {first: 3, second: 0}
        assert run(everything.ends([first, second])) == {first: 6, second: 2}
        assert run(committed.ends([first, second])) == {first: 5, second: 2}
        producer.abort_transaction()


def test_positions_by_timestamp(kraft: Cluster, logs: Any) -> None:
    dated = kraft.create_topic("dated", partitions=2)
    for partition, times in enumerate(([1000, 2000, 3000], [1500])):
        kraft.produce(dated, *(Record(b"v", timestamp_ms=one) for one in times), partition=partition)
    both = [TopicPartition(dated, 0), TopicPartition(dated, 1)]

    def found(starting: bool = True, /, **options: str) -> list[int]:
        known, checked = logs(subscribe=dated, **options)
        spec, which = (checked.starting, "starting") if starting else (checked.ending, "ending")
        positions = run(known.positions(spec, both, which))
        return [positions[one] for one in both]

    assert found(startingTimestamp="1001") == [1, 0]
    assert found(startingTimestamp="1500") == [1, 0]
    assert found(startingOffsetsByTimestamp=f'{{"{dated}":{{"0":3000,"1":0}}}}') == [2, 0]
    with pytest.raises(PlanError, match=r"no record of dated-1 is as new as the starting timestamp 1501"):
        found(startingTimestamp="1501")
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert found(startingTimestamp="1501", **latest) == [1, LATEST]
    assert found(False, endingTimestamp="2001") == [2, LATEST]
    for option, starting in (("startingOffsetsByTimestamp", True), ("endingOffsetsByTimestamp", False)):
        with pytest.raises(PlanError, match=f"{option}.*missing: dated-1"):
            found(starting, **{option: f'{{"{dated}":{{"0":1}}}}'})
    with pytest.raises(PlanError, match=r"startingOffsets.*missing: dated-0"):
        found(startingOffsets=f'{{"{dated}":{{"1":1}}}}')
    assert batch(kraft, subscribe=dated, startingTimestamp="1001", endingTimestamp="2001") == [(0, 1), (1, 0)]
