"""The writing part of the demo: every flight once, keyed by carrier, while nodes are killed.

One idempotent producer with ``acks=all``. At two positions in the stream it calls an action that injects a
fault; the caller chooses the actions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from confluent_kafka import KafkaError, Message, Producer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ROW_FIELD = "row"
FLUSH_TIMEOUT_S = 120.0
PLAIN_STEPS = 10

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
    """What was written: a checksum for every row, and the failures."""

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
    """Write every row. Before a row named in ``events`` its action is called, with writes in flight."""
    produced = Produced()
    start = time.monotonic()
    producer = Producer({"bootstrap.servers": bootstrap_servers, "error_cb": lambda _: None, **SETTINGS})

    def answered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            produced.acknowledged += 1
        else:
            produced.failures.append(error.str())

    with ProduceProgress(console, len(rows)) as progress:
        for number, row in enumerate(rows):
            if number in events:
                events[number]()
            value = encode_row(number, row)
            produced.checksums.append(crc32(value))
            while not _try_produce(producer, topic, str(row["carrier"]), value, answered):
                producer.poll(0.1)
                progress.show(produced.acknowledged)
            if number % 500 == 0:
                producer.poll(0)
                progress.show(produced.acknowledged)
        end = time.monotonic() + FLUSH_TIMEOUT_S
        while producer.flush(0.2) and time.monotonic() < end:
            progress.show(produced.acknowledged)
        progress.show(produced.acknowledged)
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


class ProduceProgress:
    """A progress bar on a terminal, otherwise a line after every tenth of the rows."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._steps = _thresholds(total, PLAIN_STEPS)
        columns = (TextColumn("producing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task("producing", total=total)

    def show(self, done: int) -> None:
        self._bar.update(self._task, completed=done)
        if not self._console.is_terminal and self._steps and done >= self._steps[0]:
            self._steps = [step for step in self._steps if step > done]
            self._console.print(f"  {done:,} of {self._total:,} records acknowledged", highlight=False)

    def __enter__(self) -> ProduceProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def _thresholds(total: int, steps: int) -> list[int]:
    return [total * (step + 1) // steps for step in range(steps)]


def carriers(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The carriers in the rows, sorted."""
    return sorted({str(row["carrier"]) for row in rows})
