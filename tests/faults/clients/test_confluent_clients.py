"""What librdkafka's messages and errors become, with a consumer that returns what a test tells it."""

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from pykraft.jepsen_like.faults.clients.confluent import ConfluentClients, ConfluentProducer, ConfluentReader
from pykraft.jepsen_like.faults.clients.interface import (
    MemberConfig,
    OperationError,
    Polled,
    PositionLostError,
    ProducerConfig,
    UnknownOutcomeError,
)
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from pykraft.testing.processes.waits import until

PLACE = TopicPartition("t", 0)
OFFSETS_REFUSED = KafkaError(
    KafkaError.NOT_COORDINATOR, 'Failed to fetch committed offsets for 0 partition(s) in group "g": Broker'
)


class Message:
    def __init__(self, offset: int, error: KafkaError | None = None, topic: str | None = "t") -> None:
        self._offset, self._error, self._topic = offset, error, topic

    def topic(self) -> str | None:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"v"

    def error(self) -> KafkaError | None:
        return self._error


class Consumer:
    """``polls``: what each poll returns, then nothing."""

    def __init__(self, *polls: list[Message]) -> None:
        self.polls = list(polls)
        self.closed = 0

    def __call__(self, settings: Mapping[str, Any]) -> "Consumer":
        return self

    def assign(self, partitions: object) -> None: ...

    def subscribe(self, topics: object, **callbacks: object) -> None: ...

    def close(self) -> None:
        self.closed += 1

    def consume(self, most: int, timeout_s: float) -> list[Message]:
        return self.polls.pop(0) if self.polls else []


class Producer:
    """It logs ``told`` when it is asked to serve callbacks."""

    def __init__(self, settings: Mapping[str, Any], logger: logging.Logger) -> None:
        self._logger = logger
        self.told = ["ProduceRequest failed due to skipped sequence numbers (PID{Id:1,Epoch:0})"]

    def poll(self, timeout_s: float) -> int:
        while self.told:
            self._logger.log(logging.DEBUG, self.told.pop())
        return 0

    def purge(self, **_: bool) -> None: ...


@pytest.mark.parametrize("has_skipped", [True, False])
async def test_producer_tells_that_it_has_skipped_a_sequence(
    monkeypatch: pytest.MonkeyPatch, has_skipped: bool
) -> None:
    made: list[Producer] = []

    def make(settings: Mapping[str, Any], logger: logging.Logger) -> Producer:
        made.append(Producer(settings, logger))
        if not has_skipped:
            made[0].told = ["All partitions drained, bumped epoch to PID{Id:1,Epoch:1}"]
        return made[0]

    monkeypatch.setattr(confluent_kafka, "Producer", make)
    with ThreadPoolExecutor(1) as threads:
        producer = ConfluentProducer({}, ProducerConfig("p"), threads)
        await until(lambda: not made[0].told)
        await producer.close()
    assert producer.has_skipped is has_skipped


def poll(monkeypatch: pytest.MonkeyPatch, *polls: list[Message]) -> list[Any]:
    """What each poll returns or raises, and one more."""
    monkeypatch.setattr(confluent_kafka, "Consumer", Consumer(*polls))
    found: list[Any] = []

    async def run() -> None:
        with ThreadPoolExecutor(1) as threads:
            reader = ConfluentReader({}, {PLACE: 0}, threads)
            for _ in range(len(polls) + 1):
                try:
                    found.append(await reader.poll(0.1))
                except OperationError as error:
                    found.append(error)

    asyncio.run(run())
    return found


def test_a_member_whose_offsets_librdkafka_does_not_ask_for_again_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = poll(monkeypatch, [Message(-1001, OFFSETS_REFUSED, None)])
    assert isinstance(first, UnknownOutcomeError) and "committed offsets" in str(first)
    assert second == {}


def test_a_member_with_a_fatal_error_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose instance id another member uses: librdkafka says it in a message."""
    fatal = KafkaError(KafkaError._FATAL, "Fatal error: Broker: The instance ID is still used")
    first, second = poll(monkeypatch, [Message(-1001, fatal, None)])
    assert isinstance(first, UnknownOutcomeError) and "instance ID" in str(first)
    assert second == {}


def test_an_error_that_comes_with_records_is_raised_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = KafkaError(KafkaError._AUTO_OFFSET_RESET)
    first, second = poll(monkeypatch, [Message(4), Message(9, lost)])
    assert first == {PLACE: Polled(((4, "v"),))}
    assert isinstance(second, PositionLostError) and (second.partition, second.offset) == (PLACE, 9)


def test_errors_that_cost_nothing_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = KafkaError(KafkaError._TRANSPORT)
    assert poll(monkeypatch, [Message(-1001, gone)]) == [{}, {}]


def test_an_abandoned_member_leaves_once_even_if_librdkafka_would_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for is_over_before in (False, True):
        consumer, clients, loop = Consumer(), ConfluentClients("localhost:1"), VirtualLoop()
        monkeypatch.setattr(confluent_kafka, "Consumer", consumer)

        async def run(clients: ConfluentClients = clients, is_over_before: bool = is_over_before) -> None:
            config = MemberConfig("m", "g", "consumer", ("t",), session_timeout_ms=6_000)
            await clients.member(config, None).abandon()  # type: ignore[arg-type]
            await asyncio.sleep(5.9)
            if is_over_before:
                clients.close()
            await asyncio.sleep(0.2)

        loop.run_until_complete(run())
        loop.close()
        clients.close()
        assert consumer.closed == 1
