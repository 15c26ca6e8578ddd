"""The producer, with something happening at each of its await points.

Whatever it is, a partition's records are in the log in order, each at most once, and with the outcome that
its sender was told.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.errors import MaybeWrittenError, NotWrittenError
from pykraft.kafka_client.network import Future
from pykraft.kafka_client.producer.batch import RecordMetadata
from pykraft.kafka_client.producer.producer import Producer, ProducerConfig
from pykraft.kafka_protocol.errors import ErrorCode
from tests.kafka_client.await_points import Places, named, plans
from tests.kafka_client.producer.test_producer import APPENDED, Leaders, append
from tests.kafka_client.scripted import ScriptedCluster
from tests.kafka_client.virtual_cluster import SILENCE, VirtualNetwork, network_of, run_virtual

Sent = tuple[str, int, Future[RecordMetadata]]


class Scenario:
    """Twelve records for two partitions of one leader and one of another, one a request."""

    def __init__(self) -> None:
        self.scripted = ScriptedCluster()
        self.scripted.add_topic("t", {0: (1, 0), 1: (2, 0), 2: (1, 0)})
        self.leaders = Leaders(self.scripted)
        self.network: VirtualNetwork = network_of(self.scripted)
        self.network.write_ms = 1
        self.sent: list[Sent] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.producer: Producer | None = None

    async def play(self, places: Places) -> None:
        self.network.at_await = places.reached
        addresses = tuple(broker.address for broker in self.scripted.brokers.values())
        self.producer = producer = Producer(
            self.network,
            ClientConfig(addresses, request_timeout_ms=300),
            ProducerConfig(linger_ms=0, delivery_timeout_ms=2_000),
        )
        for n in range(12):
            self.send(f"{n:02}", n % 3)
            await producer.flush(0)  # closes the batch
            await asyncio.sleep(0.0007)
        await asyncio.gather(*(future for *_, future in self.sent), *self.tasks, return_exceptions=True)
        self.network.at_await = lambda: None
        await producer.close(2_000)
        await asyncio.sleep(5)  # what is still under way arrives

    def send(self, value: str, partition: int) -> None:
        assert self.producer is not None
        try:
            (future,) = append(self.producer, [value], partition)
        except NotWrittenError as error:
            assert self.is_closed, error
        else:
            self.sent.append((value, partition, future))

    @property
    def is_closed(self) -> bool:
        return bool(self.tasks)

    def start(self, work: Any) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def close(self) -> None:
        assert self.producer is not None
        self.start(self.producer.close())

    def move(self) -> None:
        """The leader of the first partition is the third broker."""
        epoch = self.scripted.leaders["t"][0][1]
        self.scripted.leaders["t"][0] = (3, epoch + 1)

    async def check(self) -> None:
        for index in range(3):
            values = self.leaders.values(index)
            assert values == sorted(set(values)), (
                f"partition {index} is out of order or has one twice: {values}"
            )
        for value, partition, future in self.sent:
            log = self.leaders.values(partition)
            (fate,) = await asyncio.gather(future, return_exceptions=True)
            if isinstance(fate, NotWrittenError):
                assert value not in log, f"{value} was told not to be written"
            elif not isinstance(fate, MaybeWrittenError):
                assert isinstance(fate, RecordMetadata), fate
                assert value in log if fate.offset is None else log[fate.offset] == value
        assert self.network.connections == 0, "a connection is left open"


EVENTS: dict[str, Callable[[Scenario], object]] = {
    "cut, and requests arrive": lambda scenario: scenario.network.cut(arrives=True),
    "cut, and requests are lost": lambda scenario: scenario.network.cut(arrives=False),
    "the leader moves": Scenario.move,
    "a request is refused": lambda scenario: scenario.leaders.plan.append(ErrorCode.MESSAGE_TOO_LARGE),
    "the broker forgets": lambda scenario: scenario.leaders.plan.append(ErrorCode.UNKNOWN_PRODUCER_ID),
    "the epoch is fenced": lambda scenario: scenario.leaders.plan.append(ErrorCode.INVALID_PRODUCER_EPOCH),
    "an answer is lost": lambda scenario: scenario.leaders.plan.append((APPENDED, SILENCE)),
    "a request is lost": lambda scenario: scenario.leaders.plan.append(SILENCE),
    "it is unknown": lambda scenario: scenario.leaders.plan.append((APPENDED, ErrorCode.REQUEST_TIMED_OUT)),
    "closed": Scenario.close,
}


def play(plan: dict[int, str]) -> int:
    async def main() -> int:
        scenario = Scenario()
        places = Places({place: partial(EVENTS[name], scenario) for place, name in plan.items()})
        await scenario.play(places)
        await scenario.check()
        return places.count

    with named(plan):
        return run_virtual(main())


@pytest.mark.parametrize("event", EVENTS)
def test_whatever_happens_at_an_await_records_are_written_once_in_order_and_as_told(event: str) -> None:
    count = play({})
    assert count > 100
    for plan in plans(event, list(EVENTS), count, stride=4):
        play(plan)
