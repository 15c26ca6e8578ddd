"""Records that are gone before a running query has read them: an error that names the loss, or a query that
goes on with what is there."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_client.producer.blocking import BlockingProducer
from pykraft.kafka_client.results import NewTopic
from pykraft.testing.processes.waits import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.interop, pytest.mark.spark]

SHOWN_TIMEOUT_S = 60
COUNT = 10
"""Of records that are written at a time, and that a query waits for."""


def create(cluster: ProcessCluster, topic: str, *brokers: int) -> None:
    """One partition; any replica may lead it, also one that has missed records."""
    wanted = NewTopic(topic, configs={"unclean.leader.election.enable": "true"}, assignments={0: brokers})
    with AdminClient(cluster.bootstrap_servers) as admin:
        admin.create_topics([wanted])[0].check()


def produce(cluster: ProcessCluster, topic: str, count: int = COUNT) -> None:
    with BlockingProducer(ClientConfig(parse_bootstrap_servers(cluster.bootstrap_servers))) as producer:
        for sent in [producer.send(topic, 0, None, b"%d" % number) for number in range(count)]:
            sent.result(SHOWN_TIMEOUT_S)


def expire(cluster: ProcessCluster, topic: str) -> None:
    """Some that the query waits for more of."""
    produce(cluster, topic, 4)
    with AdminClient(cluster.bootstrap_servers) as admin:
        where = TopicPartition(topic, 0)
        assert admin.delete_records({where: COUNT + 3}) == {where: COUNT + 3}


def delete(cluster: ProcessCluster, topic: str) -> None:
    with AdminClient(cluster.bootstrap_servers) as admin:
        admin.delete_topics([topic])[0].check()


def recreate(cluster: ProcessCluster, topic: str) -> None:
    """With more records than the query has read: the offsets do not show it."""
    delete(cluster, topic)
    create(cluster, topic, 3)
    produce(cluster, topic, COUNT + 4)


def truncate(cluster: ProcessCluster, topic: str) -> None:
    """The only broker that has the records goes, and one that has missed them comes."""
    cluster.nodes[1].kill()
    cluster.nodes[2].start()
    produce(cluster, topic, 4)


def start(session: "SparkSession", cluster: ProcessCluster, topic: str, fails: str) -> "StreamingQuery":
    """``fails``: the option ``failOnDataLoss``. Reads a second topic, which loses nothing."""
    reader = session.readStream.format("pykraft").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    frame = (
        reader.option("subscribe", f"{topic},{topic}-beside")
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", fails)
        .option("minOffsetsPerTrigger", str(COUNT))
        .load()
    )
    return frame.writeStream.format("memory").queryName(f"{topic}_{fails}").start()


@pytest.mark.parametrize(
    ("lose", "named"),
    [
        (expire, r"offset 10 is outside the log, which holds 13 up to 14"),
        (delete, r"does not exist"),
        (recreate, r"was deleted and created again|does not exist"),  # it may be seen in between
        (truncate, r"the end of \S+-0 went back from offset 10 to \d"),
    ],
)
def test_loss_ends_a_query_or_is_left_behind(
    spark_session: "SparkSession",
    cluster: ProcessCluster,
    lose: Callable[[ProcessCluster, str], None],
    named: str,
) -> None:
    topic, beside = lose.__name__, f"{lose.__name__}-beside"
    create(cluster, beside, 3)
    if lose is truncate:
        create(cluster, topic, 1, 2)
        cluster.nodes[2].kill()
    else:
        create(cluster, topic, 3)
    for name in (topic, beside):
        produce(cluster, name)
    strict, lax = queries = [start(spark_session, cluster, topic, fails) for fails in ("true", "false")]

    def shows(query: "StreamingQuery", of_topic: str, count: int) -> bool:
        return spark_session.table(query.name).where(f"topic = '{of_topic}'").count() == count

    try:
        for query in queries:
            wait_until("all is read", partial(shows, query, topic, COUNT), SHOWN_TIMEOUT_S)
        lose(cluster, topic)
        produce(cluster, beside)
        with pytest.raises(Exception, match=named):
            strict.awaitTermination(SHOWN_TIMEOUT_S)
        wait_until("the query goes on", partial(shows, lax, beside, 2 * COUNT), SHOWN_TIMEOUT_S)
    finally:
        for query in queries:
            query.stop()
        cluster.heal()
