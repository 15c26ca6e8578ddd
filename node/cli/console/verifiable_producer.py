"""``pykraft verifiable-producer``, with the flags and the lines of kafka-verifiable-producer. Sends through librdkafka."""

from __future__ import annotations

import itertools
import time
from functools import partial
from typing import Final

import click
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pykraft.lazy_dataclass import dataclass
from pykraft.node.cli.console.librdkafka import Connection, make_producer
from pykraft.node.cli.console.verifiable_events import java_exception, print_event
from pykraft.node.cli.perf.load import pause_ms
from pykraft.node.cli.shared.common import bootstrap_option
from pykraft.node.cli.shared.interrupts import StopRequest, stop_request
from pykraft.node.cli.shared.kafka_command import KafkaCommand
from pykraft.node.cli.shared.property_options import GivenProperties, property_options

_STEP_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class _Work:
    """``throughput`` below 0: as fast as possible; 0: nothing after the first record. ``create_time_ms``: of the
    first record, None for the time at which each is sent.
    """

    topic: str
    max_messages: int
    throughput: int
    value_prefix: int | None
    repeating_keys: int | None
    create_time_ms: int | None


@click.command(cls=KafkaCommand)
@bootstrap_option
@click.option("--topic", required=True, help="The topic to write to.")
@click.option("--max-messages", type=int, default=-1, show_default=True, help="-1: until it is stopped.")
@click.option(
    "--throughput", type=int, default=-1, show_default=True, help="At most this many records/s; -1: no limit."
)
@click.option("--acks", type=click.Choice(["0", "1", "-1"]), default="-1", show_default=True)
@click.option(
    "--message-create-time", type=int, default=-1, metavar="MS", help="The timestamp of the first record."
)
@click.option("--value-prefix", type=int, metavar="N", help="Write values as N.0, N.1 and so on.")
@click.option(
    "--repeating-keys", type=click.IntRange(min=1), metavar="N", help="Write keys from 0 to N - 1 in turn."
)
@property_options("of_client", (), ("--command-config", "--producer.config"),
                  "Kafka's producer or of librdkafka")  # fmt: skip
def command(
    bootstrap_server: str,
    topic: str,
    max_messages: int,
    throughput: int,
    acks: str,
    message_create_time: int,
    value_prefix: int | None,
    repeating_keys: int | None,
    of_client: GivenProperties,
) -> None:
    """Write the numbers from 0 on, and print what becomes of each, as JSON.

    A record is not sent again, unless the file says so. What is still on its way is waited for at the end.
    """
    ours = {"acks": acks, "retries": "0", "partitioner": "murmur2_random", "delivery.timeout.ms": "120000"}
    producer = make_producer(Connection(bootstrap_server, ours | of_client.values))
    create_time_ms = None if message_create_time == -1 else message_create_time
    work = _Work(topic, max_messages, throughput, value_prefix, repeating_keys, create_time_ms)
    with stop_request() as stop:
        _VerifiableProducer(producer, work, stop).run()
    click.get_current_context().exit(stop.exit_status)


class _VerifiableProducer:
    def __init__(self, producer: Producer, work: _Work, stop: StopRequest) -> None:
        self._producer = producer
        self._work = work
        self._stop = stop
        self._sent = 0
        self._acked = 0

    def run(self) -> None:
        """Send everything, unless it is stopped before, and wait for the outcomes."""
        work, start_s = self._work, time.monotonic()
        print_event("startup_complete")
        for number in itertools.count() if work.max_messages < 0 else range(work.max_messages):
            self._pause(number, start_s)
            if self._stop.signal is not None:
                break
            self._send(number, round((time.monotonic() - start_s) * 1000))
        while self._producer.flush(_STEP_S):
            pass
        print_event("shutdown_complete")
        print_event(
            "tool_data",
            sent=self._sent,
            acked=self._acked,
            target_throughput=work.throughput,
            avg_throughput=self._acked / max(time.monotonic() - start_s, 1e-3),
        )

    def _pause(self, number: int, start_s: float) -> None:
        """Wait until the next record is due, or the tool is stopped."""
        throughput = self._work.throughput
        while self._stop.signal is None:
            elapsed_ms = (time.monotonic() - start_s) * 1000
            # Nothing is due where the first record was all: wait for the signal.
            due_in_s = (
                pause_ms(number, elapsed_ms, throughput) / 1000 if throughput else _STEP_S * min(number, 1)
            )
            self._producer.poll(min(due_in_s, _STEP_S))
            if due_in_s <= 0:
                return

    def _send(self, number: int, elapsed_ms: int) -> None:
        work = self._work
        key = None if work.repeating_keys is None else str(number % work.repeating_keys)
        value = str(number) if work.value_prefix is None else f"{work.value_prefix}.{number}"
        # librdkafka takes 0 for the time at which it is called.
        timestamp_ms = 0 if work.create_time_ms is None else work.create_time_ms + elapsed_ms
        self._sent += 1
        while True:
            try:
                handle = partial(self._handle_delivery, key, value)
                self._producer.produce(work.topic, value, key, on_delivery=handle, timestamp=timestamp_ms)
                return
            except BufferError:
                self._producer.poll(_STEP_S)
            except KafkaException as error:
                self._print_error(key, value, error.args[0])
                return

    def _handle_delivery(
        self, key: str | None, value: str, error: KafkaError | None, message: Message
    ) -> None:
        if error is not None:
            self._print_error(key, value, error)
            return
        self._acked += 1
        where = {"offset": message.offset(), "topic": message.topic(), "partition": message.partition()}
        print_event("producer_send_success", key=key, value=value, **where)

    def _print_error(self, key: str | None, value: str, error: KafkaError) -> None:
        print_event(
            "producer_send_error",
            topic=self._work.topic,
            key=key,
            value=value,
            exception=java_exception(error),
            message=error.str(),
        )
