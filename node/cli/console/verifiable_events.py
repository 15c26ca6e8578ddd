"""The lines of the verifiable tools: one JSON object for each event, with Kafka's names."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Final

import click
from confluent_kafka import KafkaError as LibrdkafkaError
from confluent_kafka import TopicPartition

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.node.cli.shared.kafka_errors import exception_class

_PACKAGE: Final = "org.apache.kafka.common"
_CLASSES: Final = {
    LibrdkafkaError._MSG_TIMED_OUT: "errors.TimeoutException",
    LibrdkafkaError._TIMED_OUT: "errors.TimeoutException",
    LibrdkafkaError._TIMED_OUT_QUEUE: "errors.TimeoutException",
    LibrdkafkaError._TRANSPORT: "errors.NetworkException",
    LibrdkafkaError._UNKNOWN_TOPIC: "errors.UnknownTopicOrPartitionException",
    LibrdkafkaError.INVALID_MSG: "errors.CorruptRecordException",
    LibrdkafkaError.MSG_SIZE_TOO_LARGE: "errors.RecordTooLargeException",
    LibrdkafkaError.RECORD_LIST_TOO_LARGE: "errors.RecordBatchTooLargeException",
    LibrdkafkaError.TOPIC_EXCEPTION: "errors.InvalidTopicException",
}
"""Those that are not named like the protocol's code."""


def print_event(name: str, **fields: object) -> None:
    """At once: who reads the lines follows what the tool does."""
    event = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
    click.echo(json.dumps(event, ensure_ascii=False, separators=(",", ":")))


def named_partitions(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    ordered = sorted(partitions, key=lambda it: (it.topic, it.partition))
    return [{"topic": it.topic, "partition": it.partition} for it in ordered]


def java_exception(error: LibrdkafkaError) -> str:
    """Name the error's class as Java would: ``class org.apache.kafka.common.errors.TimeoutException``."""
    code = error.code()
    if code in _CLASSES:
        return f"class {_PACKAGE}.{_CLASSES[code]}"
    if code <= 0 or code not in list(ErrorCode):
        return f"class {_PACKAGE}.KafkaException"
    return f"class {exception_class(ErrorCode(code))}"
