"""Several tasks and one transactional producer: a record is in the transaction it was sent in, or in none."""

import asyncio

import pytest

from pykraft.kafka_client.errors import AbortableError, ClientTimeoutError, FatalTransactionError
from pykraft.kafka_client.producer.batch import ProducerConfig
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.transaction_coordinator.transaction import TransactionVersion
from tests.kafka_client.scripted import when_asked
from tests.kafka_client.transaction_world import Lost, TransactionWorld

by_both_rules = pytest.mark.parametrize(
    "rules", [TransactionVersion.TV_0, TransactionVersion.TV_2], ids=lambda rules: rules.name
)
CONFIG = ProducerConfig(linger_ms=0, delivery_timeout_ms=8_000)


@by_both_rules
async def test_a_record_beside_a_commit_is_refused_and_not_left_to_the_next_transaction(
    world: TransactionWorld,
) -> None:
    producer = world.producer(config=CONFIG)
    await producer.init_transactions()
    await producer.begin_transaction()
    producer.append("t", 0, None, b"1")
    refused: list[bool] = []

    def append(_: object) -> None:
        with pytest.raises(RuntimeError, match="is being written, to be committed"):
            producer.append("t", 1, None, b"late")
        refused.append(True)

    when_asked(world.cluster, ApiKey.PRODUCE, append)
    await producer.commit_transaction()
    assert refused
    await producer.begin_transaction()
    await producer.send("t", 1, None, b"2")
    await producer.commit_transaction()
    await producer.close()
    await world.settled()
    assert (world.committed("t", 0), world.committed("t", 1)) == (["1"], ["2"])


@by_both_rules
@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_commit_that_has_not_written_all_leaves_the_transaction_open(
    world: TransactionWorld, is_cancelled: bool
) -> None:
    producer = world.producer(config=CONFIG)
    await producer.init_transactions()
    await producer.begin_transaction()
    world.fault = lambda api, request: Lost(is_silent=True) if api == ApiKey.PRODUCE else None
    producer.append("t", 0, None, b"1")
    if is_cancelled:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.commit_transaction(), 0.3)
    else:
        with pytest.raises(ClientTimeoutError):
            await producer.commit_transaction(300)
    world.fault = lambda api, request: None
    producer.append("t", 1, None, b"1")
    await producer.commit_transaction()
    await producer.close()
    await world.settled()
    assert (world.committed("t", 0), world.committed("t", 1)) == (["1"], ["1"])


@by_both_rules
async def test_a_transaction_that_lost_a_record_while_it_is_written_is_not_committed(
    world: TransactionWorld,
) -> None:
    producer = world.producer(config=CONFIG)
    await producer.init_transactions()
    await producer.begin_transaction()
    producer.append("t", 0, None, b"1")
    lost = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "lost before it came here")
    when_asked(world.cluster, ApiKey.PRODUCE, lambda _: producer.fail_transaction(lost))
    with pytest.raises(AbortableError, match="lost before"):
        await producer.commit_transaction()
    await producer.abort_transaction()
    await producer.close()
    await world.settled()
    assert world.committed("t", 0) == []


@by_both_rules
@pytest.mark.parametrize("begins_another", [False, True])
async def test_a_record_that_waits_for_partitions_is_not_in_a_later_transaction(
    world: TransactionWorld, begins_another: bool
) -> None:
    producer = world.producer(config=CONFIG)
    await producer.init_transactions()
    await producer.begin_transaction()
    await producer.send("t", 0, None, b"1")
    waiting = asyncio.ensure_future(producer.send("new", None, None, b"late"))
    await asyncio.sleep(0.1)
    await producer.commit_transaction()
    if begins_another:
        await producer.begin_transaction()
    world.cluster.add_topic("new", {0: (1, 0)})
    with pytest.raises(RuntimeError, match="has ended" if begins_another else "no transaction is open"):
        await waiting
    if begins_another:
        await producer.send("t", 0, None, b"2")
        await producer.commit_transaction()
    await producer.close()
    await world.settled()
    assert world.committed("new") == []


@by_both_rules
@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE])
async def test_a_commit_is_not_told_to_have_succeeded_when_close_gave_its_records_up(
    world: TransactionWorld, rules: TransactionVersion, api: ApiKey
) -> None:
    """Also if the coordinator has not heard of the transaction yet, so that there is nothing to end."""
    producer = world.producer(config=CONFIG)
    await producer.init_transactions()
    await producer.begin_transaction()
    future = producer.append("t", 0, None, b"1")
    closing: list[asyncio.Future[None]] = []
    when_asked(world.cluster, api, lambda _: closing.append(asyncio.ensure_future(producer.close())))
    try:
        await producer.commit_transaction()
    except FatalTransactionError as error:
        assert closing and "closed" in error.message
    else:
        assert not closing and (rules, api) == (TransactionVersion.TV_2, ApiKey.ADD_PARTITIONS_TO_TXN)
        await producer.close()
    await asyncio.gather(future, *closing, return_exceptions=True)
