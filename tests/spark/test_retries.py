"""A task that Spark runs again because it has failed."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_client.producer.blocking import BlockingProducer
from pykraft.kafka_client.results import NewTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.spark]

PROGRAM = Path(__file__).with_name("retried_queries.py")
PARTITIONS, ROWS, ROW_BYTES = 2, 150, 50_000


def fill(servers: str, topic: str) -> Counter[str]:
    """How often each name is in the source."""
    names = [f"{partition}:{number}" for partition in range(PARTITIONS) for number in range(ROWS)]
    with AdminClient(servers) as admin:
        wanted = [NewTopic(topic, PARTITIONS, 1)]
        wanted += [NewTopic(f"{topic}-{sink}", 1, 1) for sink in ("exactly_once", "at_least_once")]
        for created in admin.create_topics(wanted):
            created.check()
    with BlockingProducer(ClientConfig(parse_bootstrap_servers(servers))) as producer:
        for name in names:
            value = name.encode().ljust(ROW_BYTES)
            producer.send(topic, int(name[0]), None, value)
    return Counter(names)


def run(servers: str, topic: str, directory: Path) -> None:
    command = [sys.executable, str(PROGRAM), servers, topic, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def in_topic(session: "SparkSession", servers: str, topic: str) -> Counter[str]:
    reader = session.read.format("pykraft").option("kafka.bootstrap.servers", servers)
    frame = reader.option("subscribe", topic).option("kafka.isolation.level", "read_committed").load()
    return Counter(bytes(row.value).decode().strip() for row in frame.select("value").collect())


def attempts(directory: Path) -> dict[str, list[int]]:
    """Offsets by PARTITION-ATTEMPT."""
    return {file.name: list(map(int, file.read_text().split())) for file in directory.iterdir()}


def test_task_that_fails_is_run_again_with_the_same_rows(
    spark_session: "SparkSession", servers: str, tmp_path: Path
) -> None:
    wanted = fill(servers, "failing")
    run(servers, "failing", tmp_path)
    for sink in ("exactly_once", "at_least_once", "parquet"):
        read = attempts(tmp_path / sink)
        assert read.keys() == {"0-0", "0-1", "1-0"}
        assert len(read["0-0"]) < ROWS and read["0-1"] == list(range(ROWS))
        assert read["0-0"] == read["0-1"][: len(read["0-0"])]
    assert in_topic(spark_session, servers, "failing-exactly_once") == wanted
    repeated = in_topic(spark_session, servers, "failing-at_least_once")
    assert repeated > wanted
    rows = spark_session.read.parquet(f"{tmp_path}/parquet-rows").select("value").collect()
    assert Counter(bytes(row.value).decode().strip() for row in rows) == wanted
