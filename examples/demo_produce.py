"""The writing part of the demo: every flight once, keyed by carrier, while nodes are killed.

One idempotent producer with ``acks=all``. At two positions in the stream it calls an action that injects a
fault; the caller chooses the actions.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from confluent_kafka import KafkaError, Message, Producer
from rich.console import Console

ROW_FIELD = "row"
FLUSH_TIMEOUT_S = 120.0
LINES = 10

SETTINGS: Mapping[str, Any] = {
    "enable.idempotence": True,
    # With more requests in flight librdkafka may take a new producer epoch after a leader change and write
    # records again that the old leader had replicated (its issue 4953); to any broker these are new records.
    "max.in.flight.requests.per.connection": 1,
    "acks": "all",
    "linger.ms": 20,
    "batch.size": 262_144,
    "message.timeout.ms": 180_000,
    "socket.timeout.ms": 10_000,
    "request.timeout.ms": 10_000,
    "reconnect.backoff.max.ms": 1_000,
    "queue.buffering.max.messages": 50_000,
    "topic.metadata.refresh.interval.ms": 2_000,
    "log_level": 0,
}


@dataclass(slots=True)
class Produced:
    """The rows written: a checksum for each, and the failures."""

    checksums: list[int] = field(default_factory=list)
    acknowledged: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0


def encode_row(number: int, row: Mapping[str, Any]) -> bytes:
    """One flight as compact JSON, with its number in the file."""
    return json.dumps({ROW_FIELD: number, **row}, separators=(",", ":")).encode()


def produce_rows(
    bootstrap_servers: str,
    topic: str,
    rows: Sequence[Mapping[str, Any]],
    events: Mapping[int, Callable[[], None]],
    console: Console,
) -> Produced:
    """Write every row, and print a line after every tenth of them. Before a row named in ``events`` its
    action is called, with writes in flight."""
    produced = Produced()
    step = max(1, len(rows) // LINES)
    start = time.monotonic()
    producer = Producer({"bootstrap.servers": bootstrap_servers, "error_cb": lambda _: None, **SETTINGS})

    def answered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            produced.acknowledged += 1
            if produced.acknowledged % step == 0:
                told = f"  {produced.acknowledged:,} of {len(rows):,} records acknowledged"
                console.print(told, highlight=False)
        else:
            produced.failures.append(error.str())

    for number, row in enumerate(rows):
        if number in events:
            events[number]()
        value = encode_row(number, row)
        produced.checksums.append(crc32(value))
        while not _try_produce(producer, topic, str(row["carrier"]), value, answered):
            producer.poll(0.1)
        if number % 500 == 0:
            producer.poll(0)
    end = time.monotonic() + FLUSH_TIMEOUT_S
    while producer.flush(0.2) and time.monotonic() < end:
        pass  # Ctrl-C is noticed in between
    if left := len(producer):
        produced.failures.append(f"{left} records without a response after {FLUSH_TIMEOUT_S:.0f} s")
    produced.seconds = time.monotonic() - start
    return produced


def _try_produce(
    producer: Producer,
    topic: str,
    key: str,
    value: bytes,
    answered: Callable[[KafkaError | None, Message], None],
) -> bool:
    try:
        producer.produce(topic, value, key, on_delivery=answered)
    except BufferError:
        return False
    return True
