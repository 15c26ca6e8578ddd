"""Group members of kafka-python: python -m tests.interop.member_kafka_python (see member_program.py)."""

import threading
from collections.abc import Collection

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, UnknownBrokerIdError
from kafka.structs import OffsetAndMetadata

from pykraft.testing.processes.waits import PATIENCE_S
from tests.interop.member_program import Order, Report, serve_in_threads


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, report: Report) -> None:
        self.report = report

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.report.assigned(item.partition for item in assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.report.revoked(item.partition for item in revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self.report.revoked((item.partition for item in lost), "lost")


def open_consumer(order: Order, report: Report) -> KafkaConsumer:
    consumer = KafkaConsumer(
        bootstrap_servers=order.servers.split(","),
        bootstrap_timeout_ms=int(PATIENCE_S * 1000),
        client_id=order.name,
        group_id=order.group,
        group_instance_id=order.instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=order.session_ms,
        heartbeat_interval_ms=500,
        fetch_max_wait_ms=300,
    )
    consumer.subscribe([order.topic], listener=Listener(report))
    return consumer


def run(order: Order, report: Report, stopping: threading.Event) -> None:
    consumer = open_consumer(order, report)

    def commit(ends: dict[int, int]) -> dict[int, int]:
        wanted = {TopicPartition(order.topic, p): OffsetAndMetadata(end, "", -1) for p, end in ends.items()}
        try:
            consumer.commit(wanted, timeout_ms=2000)
        except KafkaError:
            return {}  # a later turn commits them
        return ends

    while not stopping.is_set():
        try:
            # A join that outlasts a poll is begun again by the next one, which may cost a rebalance.
            polled = consumer.poll(5000)
        except UnknownBrokerIdError:
            # It asked a broker that has just left the metadata, and after this error never asks it again.
            report.restarted()
            consumer.close()
            consumer = open_consumer(order, report)
            continue
        report.turn([(r.partition, r.offset) for batch in polled.values() for r in batch], commit)
    consumer.close()


if __name__ == "__main__":
    serve_in_threads(run)
