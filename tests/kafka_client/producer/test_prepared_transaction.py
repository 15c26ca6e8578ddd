"""Transactions that one client has written, and another one ends."""

import asyncio
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.errors import (
    AbortableError,
    ClientTimeoutError,
    FencedError,
    NotWrittenError,
    OutcomeUnknownError,
)
from pykraft.kafka_client.producer.prepared_transaction import (
    PreparedTransaction,
    end_all_prepared,
    end_prepared,
)
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.transaction_coordinator.transaction import TransactionVersion
from tests.kafka_client.await_points import Places, named, plans
from tests.kafka_client.producer.test_transactional_producer import Once, by_both_rules, read, requests, write
from tests.kafka_client.transaction_world import NEVER, UNHEARD, Lost, TransactionWorld
from tests.kafka_client.virtual_cluster import network_of


async def prepare(world: TransactionWorld, value: str) -> PreparedTransaction:
    producer = world.producer()
    await producer.init_transactions()
    await producer.begin_transaction()
    await write(producer, value)
    prepared = await producer.prepare_transaction()
    before = requests(world)
    with pytest.raises(RuntimeError, match="left to who has it now"):
        await producer.commit_transaction()
    await producer.close()
    assert requests(world) == before
    copy: PreparedTransaction = pickle.loads(pickle.dumps(prepared))
    return copy


async def end(world: TransactionWorld, prepared: PreparedTransaction, *, committed: bool) -> None:
    addresses = tuple(broker.address for broker in world.cluster.brokers.values())
    cluster = Cluster(network_of(world.cluster), ClientConfig(addresses, request_timeout_ms=1_000))
    try:
        await end_prepared(cluster, prepared, committed=committed, deadline_ms=cluster.deadline(10_000))
    finally:
        cluster.close()


@by_both_rules
@pytest.mark.parametrize("committed", [True, False])
async def test_another_client_decides(world: TransactionWorld, committed: bool) -> None:
    """The first request is lost, the second is carried out without an answer, and all is asked twice."""
    prepared = await prepare(world, "1")
    world.fault = Once(ApiKey.END_TXN, NEVER, UNHEARD)
    for _ in range(2):
        await end(world, prepared, committed=committed)
    await world.settled()
    assert read(world) == ((["1"], ["1"], 1) if committed else ([], [], None))


@by_both_rules
async def test_producer_that_takes_over_aborts_it(world: TransactionWorld) -> None:
    early, late = await prepare(world, "1"), await prepare(world, "2")
    with pytest.raises(FencedError):
        await end(world, early, committed=True)
    await end(world, late, committed=True)
    with pytest.raises(KafkaError):
        await end(world, late, committed=False)
    await world.settled()
    assert read(world) == (["2"], ["2"], 2)


@by_both_rules
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("fault", [NEVER, UNHEARD])
async def test_refusal_after_a_request_without_an_answer_tells_nothing_of_a_commit(
    world: TransactionWorld, committed: bool, fault: Lost
) -> None:
    """Another producer takes over between the two. An abort is certain: it is not committed either way."""
    prepared = await prepare(world, "1")
    taken_over = asyncio.Event()

    def take_over(api: int, request: object) -> object:
        if api != ApiKey.END_TXN or world.fault is not take_over:
            return None
        world.fault = no_fault
        taken_over.set()
        return fault

    no_fault = world.fault
    world.fault = take_over  # type: ignore[assignment]
    ending = asyncio.ensure_future(end(world, prepared, committed=committed))
    await taken_over.wait()
    successor = world.producer()
    await successor.init_transactions()
    with pytest.raises(OutcomeUnknownError if committed else FencedError):
        await ending
    await successor.close()
    await world.settled()
    assert read(world)[0] == (["1"] if committed and fault is UNHEARD else [])


EVENTS = ("again", "close", "cut", "take over")


def commit(rules: TransactionVersion, events: dict[int, str]) -> int:
    """A commit, with these at its await points; how many there were."""
    world = TransactionWorld(rules)
    places = Places()

    async def body() -> tuple[bool, bool]:
        """Whether a call said that it is committed, and whether the only one said that it is not."""
        prepared = await prepare(world, "1")
        addresses = tuple(broker.address for broker in world.cluster.brokers.values())
        network = network_of(world.cluster)
        network.write_ms = 1
        cluster = Cluster(network, ClientConfig(addresses, request_timeout_ms=1_000))
        calls: list[asyncio.Future[None]] = []
        successors: list[asyncio.Future[Any]] = []

        def call() -> None:
            deadline_ms = cluster.deadline(10_000)
            ending = end_prepared(cluster, prepared, committed=True, deadline_ms=deadline_ms)
            calls.append(asyncio.ensure_future(ending))

        happen: dict[str, Callable[[], object]] = {
            "again": call,
            "close": cluster.close,
            "cut": partial(network.cut, arrives=True),
            "take over": lambda: successors.append(
                asyncio.ensure_future(world.producer().init_transactions())
            ),
        }
        places.watch({place: happen[name] for place, name in events.items()})
        network.at_await = places.reached
        call()
        while any(not one.done() for one in (*calls, *successors)):
            await asyncio.wait([*calls, *successors])
        cluster.close()
        await world.settled()
        assert network.connections == 0
        errors = [one.exception() for one in calls]
        assert all(error is None or isinstance(error, KafkaError) for error in errors), errors
        assert "close" in events.values() or "take over" in events.values() or errors == [None] * len(errors)
        return None in errors, len(errors) == 1 and isinstance(errors[0], FencedError)

    is_committed, is_not = world.run(body)
    written = read(world)[0]
    assert written in ([], ["1"])
    assert not (is_committed and written == [])
    assert not (is_not and written == ["1"])
    return places.count


@by_both_rules
def test_whatever_happens_meanwhile_a_commit_tells_what_became_of_it(rules: TransactionVersion) -> None:
    count = commit(rules, {})
    overtaken = ({place: "cut", place + later: "take over"} for place in range(count) for later in (1, 2))
    for plan in (*overtaken, *(plan for name in EVENTS for plan in plans(name, EVENTS, count))):
        with named(plan):
            commit(rules, plan)


async def test_transaction_that_lost_a_record_cannot_be_prepared(world: TransactionWorld) -> None:
    producer = world.producer()
    await producer.init_transactions()
    await producer.begin_transaction()
    world.fault = Once(ApiKey.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE)
    refused = producer.append("t", 0, None, b"1")
    with pytest.raises(AbortableError):
        await producer.prepare_transaction()
    with pytest.raises(NotWrittenError):
        await refused
    await producer.abort_transaction()
    await producer.close()


async def end_all(
    world: TransactionWorld, prepared: list[PreparedTransaction]
) -> tuple[list[KafkaError], int]:
    """Commit them, with ten seconds for each; the errors, and how long it took (ms)."""
    addresses = tuple(broker.address for broker in world.cluster.brokers.values())
    config = ClientConfig(addresses, request_timeout_ms=1_000, default_api_timeout_ms=10_000)
    cluster = Cluster(network_of(world.cluster), config)
    began_ms = cluster.network.now_ms()
    try:
        errors = await end_all_prepared(cluster, prepared, committed=True)
        return errors, cluster.network.now_ms() - began_ms
    finally:
        cluster.close()


async def test_many_take_no_longer_than_one_while_no_broker_answers(world: TransactionWorld) -> None:
    prepared = await prepare(world, "1")
    world.fault = Once(ApiKey.END_TXN, *[Lost(is_silent=True)] * 100)
    errors, took_ms = await end_all(world, [prepared] * 10)
    assert [type(error) for error in errors] == [ClientTimeoutError] * 10
    assert took_ms < 12_000


async def test_time_begins_anew_with_each_that_is_answered(world: TransactionWorld) -> None:
    """Three take some seven seconds each, of ten; one is refused."""
    early, late = await prepare(world, "1"), await prepare(world, "2")
    slowly = [Lost(is_silent=True)] * 5
    world.fault = Once(ApiKey.END_TXN, *slowly, None, *slowly, None, *slowly)
    errors, took_ms = await end_all(world, [early, late, late])
    assert [type(error) for error in errors] == [OutcomeUnknownError]
    assert took_ms > 15_000
    await world.settled()
    assert read(world) == (["2"], ["2"], 2)
