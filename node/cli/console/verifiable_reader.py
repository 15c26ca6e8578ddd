"""A member of a group that prints what happens to it, as JSON: the work of ``pykraft verifiable-consumer``."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Final

import click
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from pykraft.node.cli.console.librdkafka import Connection
from pykraft.node.cli.console.topic_subscription import Subscription
from pykraft.node.cli.console.verifiable_events import named_partitions, print_event
from pykraft.node.cli.shared.interrupts import StopRequest

_STEP_S: Final = 0.1
_MAX_POLL_RECORDS: Final = 500


class VerifiableReader:
    """``max_messages`` below 0: no limit; ``commits``: whether offsets are committed after each lot of records."""

    def __init__(
        self, consumer: Consumer, max_messages: int, stop: StopRequest, *, commits: bool, verbose: bool
    ) -> None:
        self._consumer = consumer
        self._max_messages = max_messages
        self._stop = stop
        self._commits = commits
        self._verbose = verbose
        self._consumed = 0

    def run(self, connection: Connection, topic: str) -> None:
        """Until there was enough, or it is stopped. :class:`click.ClickException` for what ends the reading."""
        print_event("startup_complete")
        subscription = Subscription(
            self._consumer,
            connection,
            topic,
            with_internal=True,
            refresh_s=0,
            on_assign=self._handle_assigned,
            on_revoke=self._handle_revoked,
        )
        try:
            while self._left() and self._stop.signal is None:
                subscription.maybe_refresh(time.monotonic())
                self._handle_records(self._poll(connection))
        finally:
            if self._stop.signal is not None:
                print_event("shutdown_requested")
            self._consumer.close()
            print_event("shutdown_complete")

    def _left(self) -> int:
        """How many records may still be read at once."""
        if self._max_messages < 0:
            return _MAX_POLL_RECORDS
        return min(_MAX_POLL_RECORDS, self._max_messages - self._consumed)

    def _poll(self, connection: Connection) -> list[Message]:
        first = connection.poll(self._consumer, _STEP_S)
        if first is None:
            return []
        others = self._left() - 1
        return [first, *(self._consumer.consume(others, 0) if others else ())]

    def _handle_records(self, messages: Sequence[Message]) -> None:
        good = list(itertools.takewhile(lambda message: message.error() is None, messages))
        if good:
            self._handle_good(good)
        for failure in filter(None, (message.error() for message in messages[len(good) :])):
            raise click.ClickException(failure.str())

    def _handle_good(self, messages: Sequence[Message]) -> None:
        read: dict[tuple[str, int], list[int]] = {}
        for message in messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None and partition is not None and offset is not None
            read.setdefault((topic, partition), []).append(offset)
            if self._verbose:
                _print_record(message)
        self._consumed += len(messages)
        summaries = [
            {
                "topic": topic,
                "partition": partition,
                "count": len(offsets),
                "minOffset": offsets[0],
                "maxOffset": offsets[-1],
            }
            for (topic, partition), offsets in read.items()
        ]
        print_event("records_consumed", count=len(messages), partitions=summaries)
        if self._commits:
            self._commit([TopicPartition(*where, offsets[-1] + 1) for where, offsets in read.items()])

    def _commit(self, offsets: list[TopicPartition]) -> None:
        failure: KafkaError | None = None
        try:
            committed = self._consumer.commit(offsets=offsets, asynchronous=False)
            failure = next((it.error for it in committed or () if it.error is not None), None)
        except KafkaException as error:
            failure = error.args[0]
        said = {} if failure is None else {"error": failure.str()}
        named = [{**it, "offset": one.offset} for one in offsets for it in named_partitions([one])]
        print_event("offsets_committed", offsets=named, **said, success=failure is None)
        if failure is not None and failure.code() == KafkaError.FENCED_INSTANCE_ID:
            raise click.ClickException(failure.str())

    def _handle_assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        print_event("partitions_assigned", partitions=named_partitions(partitions))

    def _handle_revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        print_event("partitions_revoked", partitions=named_partitions(partitions))


def _print_record(message: Message) -> None:
    key, value = message.key(), message.value()
    print_event(
        "record_data",
        key=None if key is None else key.decode("utf-8", "replace"),
        value=None if value is None else value.decode("utf-8", "replace"),
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
    )
