"""Group members of confluent-kafka: python -m tests.interop.member_confluent (see member_program.py)."""

import threading

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.interop.member_program import Order, Report, serve_in_threads


def run(order: Order, report: Report, stopping: threading.Event) -> None:
    settings = {
        "bootstrap.servers": order.servers,
        "client.id": order.name,
        "group.id": order.group,
        "group.protocol": order.protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 300,
        "log_level": 0,
    }
    if order.protocol == "classic":
        settings |= {"session.timeout.ms": order.session_ms, "heartbeat.interval.ms": 500}
        settings["partition.assignment.strategy"] = order.assignor or "range"
    if order.instance is not None:
        settings["group.instance.id"] = order.instance

    def numbers(partitions: list[TopicPartition]) -> list[int]:
        return [item.partition for item in partitions]

    def commit(ends: dict[int, int]) -> dict[int, int]:
        offsets = [TopicPartition(order.topic, partition, end) for partition, end in ends.items()]
        try:
            done = consumer.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            return {}
        return {item.partition: item.offset for item in done if item.error is None}

    consumer = Consumer(settings)
    consumer.subscribe(
        [order.topic],
        on_assign=lambda _, partitions: report.assigned(numbers(partitions)),
        on_revoke=lambda _, partitions: report.revoked(numbers(partitions)),
        on_lost=lambda _, partitions: report.revoked(numbers(partitions), "lost"),
    )
    while not stopping.is_set():
        got = []
        for message in consumer.consume(500, 0.1):
            error = message.error()
            if error is None:
                got.append((int(message.partition() or 0), int(message.offset() or 0)))
            elif error.fatal():
                raise KafkaException(error)
        report.turn(got, commit)
    consumer.close()


if __name__ == "__main__":
    serve_in_threads(run)
