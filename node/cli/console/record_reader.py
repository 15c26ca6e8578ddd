"""Prints what a consumer reads. An offset is committed only when everything before it was written."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from typing import Final

import click
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from pykraft.node.cli.console.consumed_record import Formatter, UnprintableError, consumed_record
from pykraft.node.cli.console.librdkafka import Connection
from pykraft.node.cli.console.topic_subscription import Subscription

_STEP_S: Final = 0.2


class RecordReader:
    """Reads for a consumer that has a subscription, and does not store offsets by itself."""

    def __init__(self, consumer: Consumer, connection: Connection, subscription: Subscription) -> None:
        self._consumer = consumer
        self._connection = connection
        self._subscription = subscription
        self._unwritten: dict[tuple[str | None, int | None], Message] = {}
        self.count = 0
        """Records read so far."""

    def run(
        self, formatter: Formatter, max_messages: int | None, timeout_ms: int | None, *, skip_errors: bool
    ) -> None:
        """Print records until there were ``max_messages``, or none came for ``timeout_ms`` (None: no limit).

        ``skip_errors``: leave out what cannot be printed. Returns, too, when nobody reads standard output any
        more. :class:`click.ClickException` for what ends the reading otherwise.
        """
        try:
            try:
                for message in self._messages(max_messages, timeout_ms):
                    self._print(message, formatter, skip_errors)
            finally:
                self._flush()
        except BrokenPipeError:
            # What is still buffered must not fail again when the process ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def _print(self, message: Message, formatter: Formatter, skip_errors: bool) -> None:
        self.count += 1
        try:
            sys.stdout.buffer.write(formatter(consumed_record(message)))
        except UnprintableError as error:
            if not skip_errors:
                raise click.ClickException(str(error)) from None
            click.echo(f"warning: skipped: {error}", err=True)
        self._unwritten[message.topic(), message.partition()] = message

    def _messages(self, max_messages: int | None, timeout_ms: int | None) -> Iterator[Message]:
        timeout_s = inf if timeout_ms is None else timeout_ms / 1000
        last_s = time.monotonic()
        while max_messages is None or self.count < max_messages:
            self._subscription.maybe_refresh(time.monotonic())
            message = self._connection.poll(self._consumer, 0)
            if message is None:
                self._flush()
                left_s = max(0.0, last_s + timeout_s - time.monotonic())
                message = self._connection.poll(self._consumer, min(_STEP_S, left_s))
            if message is None:
                if time.monotonic() - last_s > timeout_s:
                    return
                self._connection.check(self._consumer, self._subscription.topic)
                continue
            failure = message.error()
            if failure is None:
                yield message
            elif (
                failure.code() != KafkaError._MAX_POLL_EXCEEDED
            ):  # a pager stood still; the next poll joins again
                raise click.ClickException(failure.str())
            last_s = time.monotonic()

    def _flush(self) -> None:
        sys.stdout.buffer.flush()
        for message in self._unwritten.values():
            with suppress(KafkaException):  # the partition is another member's by now
                self._consumer.store_offsets(message)
        self._unwritten.clear()
