"""By the old rules a request without an answer may be carried out in a later transaction.

So the epoch changes before the next one. Nothing that happens after such a request takes the doubt back.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pykraft.kafka_client.errors import (
    AbortableError,
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
from tests.kafka_client.transaction_world import GROUP, Fault, Lost, TransactionWorld

TV_0 = TransactionVersion.TV_0
SOURCE = TopicPartition("source", 0)
CERTAIN = ErrorCode.CONCURRENT_TRANSACTIONS
SILENT = Lost(is_silent=True)
FAILED = (AbortableError, ProduceError)


class Faults:
    """What the next requests of each API meet."""

    def __init__(self, world: TransactionWorld) -> None:
        self.of: dict[ApiKey, list[Fault]] = {}
        world.fault = self

    def __call__(self, api: int, request: object) -> Fault:
        waiting = self.of.get(ApiKey(api))
        return waiting.pop(0) if waiting else None


Step = Callable[[TransactionalProducer, Faults], Awaitable[None]]


async def offsets(producer: TransactionalProducer) -> None:
    await producer.send_offsets_to_transaction({SOURCE: OffsetAndMetadata(1)}, GROUP, timeout_ms=1_000)


async def unanswered_partitions(producer: TransactionalProducer, faults: Faults) -> None:
    faults.of[ApiKey.ADD_PARTITIONS_TO_TXN] = [SILENT]
    await producer.send("t", 1, None, b"1")


async def unanswered_offsets(producer: TransactionalProducer, faults: Faults) -> None:
    faults.of[ApiKey.ADD_OFFSETS_TO_TXN] = [SILENT]
    await offsets(producer)


async def offsets_given_up(producer: TransactionalProducer, faults: Faults) -> None:
    faults.of[ApiKey.ADD_OFFSETS_TO_TXN] = [SILENT] * 50
    with pytest.raises(AbortableError):
        await offsets(producer)
    faults.of.clear()


async def unanswered_commit_of_offsets(producer: TransactionalProducer, faults: Faults) -> None:
    faults.of[ApiKey.TXN_OFFSET_COMMIT] = [SILENT]
    await offsets(producer)


async def record_given_up(producer: TransactionalProducer, faults: Faults) -> None:
    faults.of[ApiKey.PRODUCE] = [SILENT] * 50
    with pytest.raises(ProduceError):
        await producer.send("t", 0, None, b"1")
    faults.of.clear()


async def unanswered_end(producer: TransactionalProducer, faults: Faults) -> None:
    faults.of[ApiKey.END_TXN] = [SILENT]


async def end_without_answer(producer: TransactionalProducer, faults: Faults) -> None:
    faults.of[ApiKey.END_TXN] = [SILENT] * 50
    call = producer.abort_transaction if producer.error else producer.commit_transaction
    with pytest.raises(OutcomeUnknownError):
        await call(900)
    faults.of.clear()


async def nothing(producer: TransactionalProducer, faults: Faults) -> None:
    pass


async def refused_offsets(producer: TransactionalProducer, faults: Faults) -> None:
    faults.of[ApiKey.TXN_OFFSET_COMMIT] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    with pytest.raises(AbortableError):
        await offsets(producer)


async def certain_end(producer: TransactionalProducer, faults: Faults) -> None:
    faults.of.setdefault(ApiKey.END_TXN, []).extend([CERTAIN, CERTAIN])


async def certainly_not_ended(producer: TransactionalProducer, faults: Faults) -> None:
    """A call that ends without an outcome, though the coordinator has answered each time."""
    faults.of.setdefault(ApiKey.END_TXN, []).extend([CERTAIN] * 50)
    call = producer.abort_transaction if producer.error else producer.commit_transaction
    with pytest.raises(OutcomeUnknownError):
        await call(900)
    faults.of.clear()


async def more_records(producer: TransactionalProducer, faults: Faults) -> None:
    if producer.error is None:
        await producer.send("u", 0, None, b"1")


DOUBTS: dict[str, Step] = {
    "partitions": unanswered_partitions,
    "offsets": unanswered_offsets,
    "offsets given up": offsets_given_up,
    "commit of offsets": unanswered_commit_of_offsets,
    "record given up": record_given_up,
    "end": unanswered_end,
    "end without answer": end_without_answer,
}
LATER: dict[str, Step] = {
    "nothing": nothing,
    "refused offsets": refused_offsets,
    "an end that is too early": certain_end,
    "an end that is too early until it is given up": certainly_not_ended,
    "more records": more_records,
}
CASES = [
    pytest.param(doubt, later, id=f"{doubt}, then {later}")
    for doubt in DOUBTS
    for later in LATER
    if not (doubt.startswith("end") and later in ("refused offsets", "more records"))
    and not (
        later == "refused offsets" and doubt in ("commit of offsets", "record given up", "offsets given up")
    )
]


async def end(producer: TransactionalProducer) -> None:
    """Commit, or abort what can only be aborted."""
    while True:
        try:
            if producer.error is None:
                await producer.commit_transaction(2_000)
            else:
                await producer.abort_transaction(2_000)
            return
        except (OutcomeUnknownError, *FAILED):
            continue


def epoch_changes(first: Step, then: Step) -> bool:
    """Whether the next transaction has another epoch than the one in which these happen."""
    world = TransactionWorld(TV_0)
    faults = Faults(world)

    async def body() -> bool:
        config = ProducerConfig(linger_ms=0, delivery_timeout_ms=1_500)
        producer = world.producer(config=config, request_timeout_ms=400)
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("t", 0, None, b"0")
        before = producer.identity
        await first(producer, faults)
        await then(producer, faults)
        await asyncio.wait_for(end(producer), 30)
        await producer.begin_transaction()
        changed = producer.identity != before
        await producer.send("t", 0, None, b"2")
        await producer.commit_transaction()
        await producer.close()
        await world.settled()
        return changed

    return world.run(body)


@pytest.mark.parametrize(("doubt", "later"), CASES)
def test_a_request_without_an_answer_changes_the_epoch_whatever_comes_later(doubt: str, later: str) -> None:
    assert epoch_changes(DOUBTS[doubt], LATER[later])


@pytest.mark.parametrize("later", LATER)
def test_the_epoch_stays_where_every_request_was_answered_for_certain(later: str) -> None:
    assert not epoch_changes(nothing, LATER[later])


@pytest.mark.parametrize("rules", [TransactionVersion.TV_0, TransactionVersion.TV_2])
async def test_an_abort_that_the_coordinator_knows_nothing_of_is_fatal_without_a_doubt(
    world: TransactionWorld,
) -> None:
    """What should be aborted may be committed, by whomever."""
    faults = Faults(world)
    producer = world.producer()
    await producer.init_transactions()
    await producer.begin_transaction()
    await producer.send("t", 0, None, b"0")
    faults.of[ApiKey.END_TXN] = [ErrorCode.INVALID_TXN_STATE]
    with pytest.raises(FatalTransactionError):
        await producer.abort_transaction()
    with pytest.raises(FatalTransactionError):
        await producer.begin_transaction()
    await producer.close()
