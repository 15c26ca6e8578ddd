"""The transactional producer, with something happening at each of its await points.

Whatever it is, what is read is what its program was told to be committed, as a whole, and nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import pytest

from pykraft.kafka_client.errors import (
    AbortableError,
    ClientTimeoutError,
    FatalTransactionError,
    OutcomeUnknownError,
    ProduceError,
)
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.producer.batch import ProducerConfig
from pykraft.kafka_client.producer.transactional import TransactionalProducer
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.transaction_coordinator.transaction import TransactionVersion
from tests.kafka_client.await_points import Places, named, plans
from tests.kafka_client.transaction_stories import JOURNAL, SOURCE, Place, Story, check
from tests.kafka_client.transaction_world import GROUP, Fault, Lost, TransactionWorld
from tests.kafka_client.virtual_cluster import VirtualNetwork, network_of

T = TypeVar("T")
TV_0, TV_2 = TransactionVersion.TV_0, TransactionVersion.TV_2
TOO_EARLY = ErrorCode.CONCURRENT_TRANSACTIONS
SLOW = 3
"""The leader of the journal."""
ENDED = (FatalTransactionError, ClientTimeoutError, OutcomeUnknownError)
FAILED = (AbortableError, ProduceError)


class Scenario:
    """A program that commits, aborts, and commits with offsets, again and again, as long as it can."""

    def __init__(self, rules: TransactionVersion) -> None:
        self.world = TransactionWorld(rules)
        self.world.fault = self._fault
        self.world.marker_delay_ms = lambda: 3
        self.faults: list[Fault] = []
        self.faults_of_ends: list[Fault] = []
        self.stories: list[Story] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.networks: list[VirtualNetwork] = []
        self.call: asyncio.Task[Any] | None = None
        self.producer: TransactionalProducer

    def _fault(self, api: int, request: Any) -> Fault:
        if api == ApiKey.END_TXN and self.faults_of_ends:
            return self.faults_of_ends.pop()
        return self.faults.pop() if self.faults else None

    def new_producer(self) -> TransactionalProducer:
        network = network_of(self.world.cluster)
        network.write_ms, network.slow = 1, {SLOW: 7}
        self.networks.append(network)
        config = ProducerConfig(linger_ms=0, delivery_timeout_ms=2_000)
        return self.world.producer(config=config, network=network, request_timeout_ms=400)

    # -- the program ---------------------------------------------------------------------------------------

    async def play(self, places: Places) -> None:
        self.producer = self.new_producer()
        self.networks[0].at_await = places.reached
        try:
            await self._called(self.producer.init_transactions)
            for number in range(4):
                await self._called(self.producer.begin_transaction)
                await self._transaction(has_offsets=number == 0, commits=number != 1)
        except (*ENDED, RuntimeError) as error:
            assert not isinstance(error, RuntimeError) or "closed" in str(error), error
        self.networks[0].at_await = lambda: None
        self.faults.clear()
        await asyncio.gather(*self.tasks)
        await self.producer.close()
        await asyncio.sleep(80)  # what was left open has timed out, late requests have arrived
        await self.world.settled()

    async def _called(self, call: Callable[[], Awaitable[T]]) -> T:
        """Again after it was cancelled."""
        while True:
            self.call = task = asyncio.ensure_future(call())
            try:
                return await task
            except asyncio.CancelledError:
                assert task.cancelled()
            finally:
                self.call = None

    async def _transaction(self, *, has_offsets: bool, commits: bool) -> None:
        producer = self.producer
        story = Story(len(self.stories), "a")
        self.stories.append(story)
        try:
            self.append(JOURNAL)
            self.append(("t", 0))
            await asyncio.sleep(0.004)
            self.append(("t", 0))
            self.append(("t", 1))
            if not commits:
                await asyncio.sleep(4)  # so that what is late comes in between
            if has_offsets:
                story.offset = story.number
                offsets = {TopicPartition(*SOURCE): OffsetAndMetadata(story.offset)}
                await self._called(lambda: producer.send_offsets_to_transaction(offsets, GROUP))
            if commits:
                await self._commit(story)
            else:
                await self._called(producer.abort_transaction)
        except FAILED:
            await self._called(producer.abort_transaction)

    async def _commit(self, story: Story) -> None:
        story.outcome = "unknown"
        while True:
            try:
                await self._called(lambda: self.producer.commit_transaction(1_500))
                story.outcome = "committed"
                return
            except OutcomeUnknownError:
                if self.producer.error is not None:
                    raise
            except (AbortableError, ClientTimeoutError):
                story.outcome = "aborted"
                await self._called(self.producer.abort_transaction)
                return
            except FatalTransactionError:
                story.outcome = "aborted"
                raise

    # -- what happens --------------------------------------------------------------------------------------

    def append(self, place: Place) -> None:
        """A record of the transaction that the program is in."""
        story = self.stories[-1]
        future = self.producer.append(*place, None, story.next_value(place).encode())
        story.keep(place)
        self.start(self._outcome(future))

    def append_beside(self) -> None:
        """By another task, whose record may come too early or too late."""
        try:
            self.append(JOURNAL)
        except (IndexError, RuntimeError, *ENDED, *FAILED):
            return

    async def _outcome(self, future: Any) -> None:
        await asyncio.gather(future, return_exceptions=True)

    def start(self, work: Any) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def cancel(self) -> None:
        if self.call is not None:
            asyncio.get_running_loop().call_soon(self.call.cancel)

    def take_over(self) -> None:
        async def other() -> None:
            producer = self.new_producer()
            try:
                await producer.init_transactions(20_000)
            finally:
                await producer.close()

        self.start(other())

    def close(self) -> None:
        self.start(self.producer.close(5))

    # -- what must hold ------------------------------------------------------------------------------------

    def check(self) -> None:
        committed = check(self.world, self.stories)
        assert committed <= len(self.stories)
        assert not any(network.connections for network in self.networks), "a connection is left open"


def fault(*faults: Fault) -> Callable[[Scenario], object]:
    """What the next requests meet."""
    return lambda scenario: scenario.faults.extend(reversed(faults))


def fault_of_ends(*faults: Fault) -> Callable[[Scenario], object]:
    """What the next requests to commit or abort meet."""
    return lambda scenario: scenario.faults_of_ends.extend(reversed(faults))


EVENTS: dict[str, Callable[[Scenario], object]] = {
    "cut, and requests arrive": lambda scenario: scenario.networks[0].cut(arrives=True),
    "cut, and requests are lost": lambda scenario: scenario.networks[0].cut(arrives=False),
    "the coordinator moves": lambda scenario: scenario.world.move_coordinator(),
    "the call is cancelled": Scenario.cancel,
    "another producer takes over": Scenario.take_over,
    "a record is appended": Scenario.append_beside,
    "closed": Scenario.close,
    "the rules change": lambda scenario: scenario.world.set_rules(TV_2),
    "it is too early": fault(*[TOO_EARLY] * 3),
    "a request is late": fault(Lost(900, is_silent=True)),
    "an answer is lost": fault(Lost(0)),
    "an end is late": fault_of_ends(Lost(2_500, is_silent=True)),
    "an end is late, then it is too early": fault_of_ends(Lost(3_500, is_silent=True), *[TOO_EARLY] * 9),
}


def play(rules: TransactionVersion, plan: dict[int, str]) -> tuple[int, list[Story]]:
    scenario = Scenario(rules)
    places = Places({place: partial(EVENTS[name], scenario) for place, name in plan.items()})
    with named(plan):
        scenario.world.run(lambda: scenario.play(places))
        scenario.check()
    return places.count, scenario.stories


@pytest.mark.parametrize("event", EVENTS)
def test_whatever_happens_at_an_await_what_is_read_is_what_was_committed(event: str) -> None:
    counts = {}
    for rules in (TV_0, TV_2):
        counts[rules], stories = play(rules, {})
        assert [story.outcome for story in stories] == ["committed", "aborted", "committed", "committed"]
    for turn, plan in enumerate(plans(event, list(EVENTS), min(counts.values()), stride=17)):
        play(TV_2 if turn & 2 else TV_0, plan)
