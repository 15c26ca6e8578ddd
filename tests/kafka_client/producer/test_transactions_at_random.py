"""Transactional producers under random faults: what is read is what was committed, as a whole and in order.

Two instances share a transactional id and fence each other, while requests are refused, lost, carried out
without an answer or long after their senders gave them up, and the coordinator moves.
"""

import asyncio
import random

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
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.transaction_coordinator.transaction import TransactionVersion
from tests.kafka_client.transaction_stories import JOURNAL, PLACES, SOURCE, Place, Story, check
from tests.kafka_client.transaction_world import GROUP, Fault, Lost, TransactionWorld
from tests.seeds import seeds

END_S = 40.0
ERRORS = {
    ApiKey.PRODUCE: (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ),
}
ERRORS_OF_COORDINATORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class Faults:
    """``share``: of the requests that meet a fault."""

    def __init__(self, rng: random.Random, share: float) -> None:
        self.rng = rng
        self.share = share

    def __call__(self, api: int, request: Message) -> Fault:
        rng = self.rng
        if rng.random() >= self.share:
            return None
        if rng.random() < 0.4:
            return rng.choice(ERRORS.get(ApiKey(api), ERRORS_OF_COORDINATORS))
        after_ms = rng.choice([None, 0, 0, rng.randrange(3_000), rng.randrange(12_000)])
        return Lost(after_ms, is_silent=rng.random() < 0.3, is_begun=rng.random() < 0.5)


class Programs:
    def __init__(self, world: TransactionWorld, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.stories: list[Story] = []

    async def instance(self, name: str) -> None:
        """Producers of the shared id, one after another, each until something fatal."""
        await asyncio.sleep(self.rng.random() * 3)
        loop = asyncio.get_running_loop()
        while loop.time() < END_S:
            producer = self.world.producer(
                transaction_timeout_ms=self.rng.choice([2_000, 60_000]),
                config=ProducerConfig(
                    linger_ms=self.rng.choice([0, 20]), delivery_timeout_ms=3_000, batch_size_bytes=120
                ),
                request_timeout_ms=400,
            )
            try:
                await producer.init_transactions(20_000)
                while loop.time() < END_S and self.rng.random() < 0.9:
                    await producer.begin_transaction()
                    await self.transaction(name, producer)
            except (FatalTransactionError, ClientTimeoutError, OutcomeUnknownError):
                pass
            finally:
                await producer.close(self.rng.choice([0, 50]))
            await asyncio.sleep(self.rng.random() * 6)

    async def transaction(self, name: str, producer: TransactionalProducer) -> None:
        rng = self.rng
        story = Story(len(self.stories), name)
        self.stories.append(story)
        try:
            self.append(producer, story, JOURNAL)
            for _ in range(rng.randrange(8)):
                await self.step(producer, story)
            if rng.random() < 0.25:
                await self.abort(producer)
                return
        except (AbortableError, ProduceError):
            await self.abort(producer)
            return
        await self.commit(producer, story)

    async def step(self, producer: TransactionalProducer, story: Story) -> None:
        rng = self.rng
        what = rng.random()
        if what < 0.6:
            future = self.append(producer, story, rng.choice(PLACES))
            if rng.random() < 0.3:
                await future
        elif what < 0.75:
            story.offset = len(self.stories) * 100 + rng.randrange(100)
            offsets = {TopicPartition(*SOURCE): OffsetAndMetadata(story.offset)}
            await producer.send_offsets_to_transaction(offsets, GROUP, timeout_ms=5_000)
        elif what < 0.85:
            await producer.flush(1_000)
        else:
            await asyncio.sleep(rng.random() * rng.choice([0.1, 3]))

    def append(self, producer: TransactionalProducer, story: Story, place: Place) -> asyncio.Future[object]:
        future = producer.append(*place, None, story.next_value(place).encode())
        story.keep(place)
        return asyncio.ensure_future(_outcome(future))

    async def commit(self, producer: TransactionalProducer, story: Story) -> None:
        tries = self.rng.choice([1, 3, 10])
        while True:
            try:
                await producer.commit_transaction(self.rng.choice([300, 3_000, 30_000]))
                story.outcome = "committed"
                return
            except OutcomeUnknownError:
                story.outcome = "unknown"
                tries -= 1
                if not tries or producer.error is not None:
                    raise
            except (AbortableError, ClientTimeoutError):
                story.outcome = "aborted"
                await self.abort(producer)
                return
            except FatalTransactionError:
                story.outcome = "aborted"
                raise

    async def abort(self, producer: TransactionalProducer) -> None:
        for last in (False, False, False, True):
            try:
                await producer.abort_transaction(self.rng.choice([300, 5_000, 30_000]))
                return
            except (OutcomeUnknownError, ClientTimeoutError):
                if last:
                    raise


async def _outcome(future: object) -> object:
    try:
        return await future  # type: ignore[misc]
    except ProduceError as error:
        return error


def play(seed: int) -> tuple[TransactionWorld, list[Story], int]:
    rng = random.Random(seed)
    world = TransactionWorld(rng.choice([TransactionVersion.TV_0, TransactionVersion.TV_2]))
    world.fault = Faults(rng, rng.choice([0.02, 0.1, 0.25]))
    world.marker_delay_ms = lambda: rng.choice([1, 5, 50, 800])
    programs = Programs(world, rng)

    async def moves() -> None:
        while True:
            await asyncio.sleep(rng.random() * 15)
            world.move_coordinator()

    async def body() -> None:
        moving = asyncio.ensure_future(moves())
        await asyncio.gather(programs.instance("a"), programs.instance("b"))
        moving.cancel()
        world.fault = lambda api, request: None
        await asyncio.sleep(80)  # transactions that were left open have timed out, late requests have arrived
        await world.settled()

    world.run(body)
    return world, programs.stories, check(world, programs.stories)


@pytest.mark.parametrize("seed", seeds(120, checked=40))
def test_what_is_read_is_what_was_committed(seed: int) -> None:
    _, stories, _ = play(seed)
    assert stories


def test_schedules_have_every_outcome() -> None:
    """So that the others are not true of nothing."""
    outcomes = [story.outcome for seed in range(20) for story in play(seed)[1]]
    assert {"committed", "aborted", "unknown"} == set(outcomes)
    assert outcomes.count("committed") > len(outcomes) // 4
