"""Shared by the Spark examples: somewhere to run, topics that are gone afterwards, and records to read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from click import ClickException
from confluent_kafka import Producer

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import NewTopic
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.node.cli.shared.reach import check_reachable
from pykraft.spark.session import java_problem, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ACKNOWLEDGED_WITHIN_S = 30.0
Record = tuple[str, str, str]
"""Timestamp (ISO 8601), key and value."""


def run(example: Callable[[SparkSession, str], None], description: str | None) -> None:
    """Carry out an example on the cluster that the command line names, or on one of its own."""
    title, _, text = (description or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=title, epilog=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", help="by default a node of its own")
    given: str | None = parser.parse_args().bootstrap_server
    if problem := java_problem():
        sys.exit(problem)
    try:
        with (
            running_cluster(given) as servers,
            local_session("example", spark__log__level="ERROR") as session,
        ):
            example(session, servers)
    except (ClickException, KafkaError) as error:
        sys.exit(str(error))


@contextmanager
def running_cluster(bootstrap_servers: str | None) -> Iterator[str]:
    """The given servers, or those of one node that lives as long as the context."""
    if bootstrap_servers is not None:
        check_reachable(bootstrap_servers)
        yield bootstrap_servers
        return
    with (
        TemporaryDirectory(prefix="pykraft-example-") as directory,
        ProcessCluster(Path(directory), 1) as own,
    ):
        own.format()
        own.start()
        yield own.bootstrap_servers


@contextmanager
def new_topics(bootstrap_servers: str, *names: str) -> Iterator[None]:
    """Topics of two partitions, deleted afterwards; an error if one of them exists already.

    They keep records of any age: those of the examples have the timestamps that their output shows.
    """
    settings = {"retention.ms": "-1"}
    with AdminClient(bootstrap_servers) as admin:
        outcomes = admin.create_topics([NewTopic(name, 2, configs=settings) for name in names])
        try:
            for outcome in outcomes:
                outcome.check()
            yield
        finally:
            admin.delete_topics([outcome.name for outcome in outcomes if outcome.error is None])


def produce(bootstrap_servers: str, topic: str, records: Iterable[Record]) -> None:
    """Returns when all are acknowledged; :class:`RuntimeError` if they are not."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    for time, key, value in records:
        timestamp_ms = int(datetime.fromisoformat(time).timestamp() * 1000)
        producer.produce(topic, value, key, timestamp=timestamp_ms)
    if unacknowledged := producer.flush(ACKNOWLEDGED_WITHIN_S):
        raise RuntimeError(f"{unacknowledged} records of topic {topic} were not acknowledged")
