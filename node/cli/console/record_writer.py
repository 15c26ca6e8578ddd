"""Sends records through librdkafka, so that each is delivered, or counted as not delivered."""

from __future__ import annotations

import time
from math import inf
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message

from pykraft.node.cli.console.librdkafka import Connection, OutageError, make_producer
from pykraft.node.cli.console.line_reader import LineRecord, RefusedLineError

_STEP_S: Final = 0.5


class RecordWriter:
    """``max_block_ms``: how long a record waits for room in the buffer; None: as long as brokers respond."""

    def __init__(self, connection: Connection, topic: str, max_block_ms: int | None) -> None:
        """Waits until a broker responds. :class:`click.UsageError` for settings that librdkafka refuses."""
        self._connection = connection
        self._topic = topic
        self._max_block_ms = max_block_ms
        self._producer = make_producer(connection)
        self._taken = 0
        self._delivered = 0
        self._reasons: dict[str, None] = {}
        self._gave_up = False
        connection.first_answer(self._producer, topic)

    @property
    def has_failed(self) -> bool:
        return bool(self._reasons)

    def write(self, number: int, record: LineRecord) -> None:
        """Queue a record. :class:`RefusedLineError` if it cannot be sent."""
        deadline_s = inf if self._max_block_ms is None else time.monotonic() + self._max_block_ms / 1000
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    on_delivery=self._handle_delivery,
                )
                break
            except BufferError:
                left_s = deadline_s - time.monotonic()
                if left_s > 0:
                    self._producer.poll(min(_STEP_S, left_s))
                if left_s <= 0 or not self._wait_for_brokers():
                    raise RefusedLineError(f"line {number} was not sent: the buffer is full") from None
            except KafkaException as error:
                reason = error.args[0].str()
                raise RefusedLineError(f"line {number} cannot be sent: {reason}") from None
        self._taken += 1
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until everything is delivered or refused, or no broker responds any more."""
        while self._producer.flush(_STEP_S) and self._wait_for_brokers():
            pass

    def finish(self) -> str:
        """Flush; returns a message about records that were not delivered, if there are any."""
        self.flush()
        missing = self._taken - self._delivered
        if not missing:
            return ""
        return f"{missing} of {self._taken} records were not delivered: {', '.join(self._reasons)}"

    def _wait_for_brokers(self) -> bool:
        """Whether a broker responds within a limited time."""
        if self._gave_up:
            return False
        try:
            self._connection.check(self._producer, self._topic)
        except OutageError as error:
            self._reasons[error.message] = None
            self._gave_up = True
        return not self._gave_up

    def _handle_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._delivered += 1
        else:
            self._reasons[error.str()] = None
