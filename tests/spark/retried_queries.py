"""Streaming queries of which a task fails at its first attempt: ``retried_queries.py SERVERS TOPIC OUT``.

A program, since they need a Spark of their own: ``local[2]`` runs no task twice.

The sinks are topics ``TOPIC-exactly_once`` and ``TOPIC-at_least_once``, and ``OUT/parquet-rows``. Each
attempt writes the offsets that it has read to ``OUT/SINK/PARTITION-ATTEMPT``.
"""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.functions import udf
from pyspark.sql.types import BinaryType

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.spark.session import local_session
from pykraft.testing.processes.waits import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN_TIMEOUT_S = 60
ROWS_BEFORE = 130
"""Of 150 of 50 kB. Spark passes on the first 100 together, more than the sink collects before it writes."""


def passing(servers: str, sink: str | None, directory: str) -> Callable[[int, bytes], bytes]:
    """``sink``: a topic, into which the first attempt has written rows before it ends."""
    counts: Counter[str] = Counter()

    def has_written(topic: str) -> bool:
        with AdminClient(servers) as admin:
            return admin.list_offsets({TopicPartition(topic, 0): -1})[TopicPartition(topic, 0)].offset != 0

    def end_attempt() -> None:
        if sink is not None:
            wait_until("rows are written", lambda: has_written(sink), SHOWN_TIMEOUT_S)
        raise RuntimeError("the first attempt fails")

    def pass_on(offset: int, value: bytes) -> bytes:
        context = TaskContext.get()
        assert context is not None
        attempt = f"{context.partitionId()}-{context.attemptNumber()}"
        with (Path(directory) / attempt).open("a") as offsets:
            offsets.write(f"{offset}\n")
        counts[attempt] += 1
        if attempt == "0-0" and counts[attempt] == ROWS_BEFORE:
            end_attempt()
        return value

    return pass_on


def main(servers: str, topic: str, directory: str) -> None:
    session = local_session(
        "retries",
        "local[2,3]",
        spark__log__level="ERROR",
        spark__sql__execution__arrow__maxRecordsPerBatch="10",
    )
    reader = session.readStream.format("pykraft").option("kafka.bootstrap.servers", servers)
    records = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()

    def run(frame: "DataFrame", sink: str, **options: str) -> None:
        writer = frame.writeStream.option("checkpointLocation", f"{directory}/checkpoint-{sink}")
        where = "parquet" if sink == "parquet" else "pykraft"
        query = writer.format(where).options(**options).trigger(availableNow=True).start()
        query.awaitTermination()

    for sink in ("exactly_once", "at_least_once", "parquet"):
        (Path(directory) / sink).mkdir()
        to = None if sink == "parquet" else f"{topic}-{sink}"
        pass_on = udf(passing(servers, to, f"{directory}/{sink}"), BinaryType(), useArrow=False)
        passed = records.select(pass_on("offset", "value").alias("value"))
        if to is None:
            run(passed, sink, path=f"{directory}/parquet-rows")
        else:
            settings = {"kafka.bootstrap.servers": servers, "topic": to, "deliveryGuarantee": sink}
            run(passed.selectExpr("0 as partition", "value"), sink, **settings)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
