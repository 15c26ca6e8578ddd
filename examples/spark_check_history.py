"""A history of what clients did and saw, checked in Spark for what a log must never do.

    python examples/spark_check_history.py

starts a node. Two producers write to a topic, then everything is read. Every send, its answer and the last
read are events of a history, one a line. A second history is the same, but for one record that the last read
has not seen. It prints:

    100 sends, 100 acknowledged, 100 read
    as-recorded.jsonl: no anomalies
    with-a-loss.jsonl: 2 anomalies
      lost-write: 1 on visits-1: ada-3 was acknowledged at offset 1, never read, but is not in the last read
      int-poll-skip: 1 on visits-1: reader went from offset 0 to 2, over 1 records

jepsen_like/faults/history.py says what a history is. Fault runs (``make jepsen``) record longer ones, while
nodes are killed; ``pykraft spark check-history FILE...`` checks them by the same function.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message, Producer
from msgspec.structs import replace
from spark_example import ACKNOWLEDGED_WITHIN_S, new_topics, run

from pykraft.jepsen_like.faults.history import Event, HistoryWriter, read_history, write_history
from pykraft.jepsen_like.faults.runs.spark_check import check_histories

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "visits"
SENDS = 50
"""Of each producer."""


def main(session: SparkSession, servers: str) -> None:
    with new_topics(servers, TOPIC), TemporaryDirectory() as directory:
        recorded, edited = Path(directory, "as-recorded.jsonl"), Path(directory, "with-a-loss.jsonl")
        with HistoryWriter(recorded) as history:
            for name in ("ada", "bob"):
                send_all(history, servers, name)
            read_all(history, session, servers)
        events = list(read_history(recorded))
        print(summary(events))
        write_history(edited, without_one_read(events))
        reports = check_histories(session, [recorded, edited])
        for path, report in zip((recorded, edited), reports, strict=True):
            print(f"{path.name}: {len(report.findings) or 'no'} anomalies")
            for finding in report.findings:
                print(f"  {finding}")


def send_all(history: HistoryWriter, servers: str, name: str) -> None:
    """Record a send before it is made, and its answer when it is there."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def answered(log: str, value: str, error: KafkaError | None, message: Message) -> None:
        if error is None:
            history.record("ok", name, "send", key=log, value=value, offset=message.offset())
        else:  # the record may have been written nevertheless
            history.record("info", name, "send", key=log, value=value, error=str(error))

    for number in range(SENDS):
        partition = number % 2
        log, value = f"{TOPIC}-{partition}", f"{name}-{number}"
        history.record("invoke", name, "send", key=log, value=value)
        producer.produce(TOPIC, value, partition=partition, on_delivery=partial(answered, log, value))
    producer.flush(ACKNOWLEDGED_WITHIN_S)


def read_all(history: HistoryWriter, session: SparkSession, servers: str) -> None:
    """The last read, of each partition from its beginning to its end."""
    records = (
        session.read.format("pykraft")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .load()
    )
    values = records.selectExpr("partition", "offset", "cast(value AS string) AS value")
    rows = values.orderBy("partition", "offset").collect()
    for partition, group in groupby(rows, lambda row: row.partition):
        read = [(row.offset, row.value) for row in group]
        log = f"{TOPIC}-{partition}"
        history.record("ok", "reader", "final", key=log, records=read)
        history.record("ok", "reader", "final-end", key=log, offset=read[-1][0] + 1)


def summary(events: list[Event]) -> str:
    sends = [event.type for event in events if event.op == "send"]
    read = sum(len(event.records or ()) for event in events if event.op == "final")
    return f"{sends.count('invoke')} sends, {sends.count('ok')} acknowledged, {read} read"


def without_one_read(events: list[Event]) -> Iterator[Event]:
    for event in events:
        if event.op == "final" and event.key == f"{TOPIC}-1" and event.records is not None:
            yield replace(event, records=[one for one in event.records if one[1] != "ada-3"])
        else:
            yield event


if __name__ == "__main__":
    run(main, __doc__)
