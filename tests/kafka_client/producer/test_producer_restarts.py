"""A partition starts again, in another epoch or with another producer id, while a later batch is in flight.

Whatever becomes of that batch, it is not written twice: what may be in the log never gets another sequence.
"""

import asyncio
from typing import Any

import pytest

from pykraft.broker.logs.producers.state import ProducerState
from pykraft.kafka_client.errors import MaybeWrittenError, NotWrittenError
from pykraft.kafka_client.producer.producer import Producer
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from tests.asynchronous import in_loop
from tests.kafka_client.producer.test_producer import (
    APPENDED,
    Leaders,
    Planned,
    one_a_batch,
    outcomes,
    running_producer,
)
from tests.kafka_client.scripted import ScriptedCluster
from tests.kafka_client.virtual_cluster import SILENCE, run_virtual

GONE = ConnectionResetError("gone")
RESTARTS = {
    "the broker forgets": ErrorCode.UNKNOWN_PRODUCER_ID,
    "the epoch is fenced": ErrorCode.INVALID_PRODUCER_EPOCH,
    "the id is fenced": ErrorCode.PRODUCER_FENCED,
    "a batch is given up": ErrorCode.MESSAGE_TOO_LARGE,
    "a batch is given up, unsure": ErrorCode.UNKNOWN_SERVER_ERROR,
}
UNSURE: dict[str, Planned] = {
    "written, no answer": (APPENDED, SILENCE),
    "written, cut": (APPENDED, GONE),
    "written, leader moved": (APPENDED, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    "written, too few replicas": (APPENDED, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    "no answer": SILENCE,
    "cut": GONE,
    "leader moved": ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
CERTAIN: dict[str, Planned] = {
    "too few replicas": ErrorCode.NOT_ENOUGH_REPLICAS,
    "out of order": ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    "forgotten": ErrorCode.UNKNOWN_PRODUCER_ID,
    "fenced": ErrorCode.INVALID_PRODUCER_EPOCH,
}


producer = in_loop(running_producer, VirtualLoop)


@pytest.fixture
def leaders(scripted: ScriptedCluster) -> Leaders:
    scripted.add_topic("t", {0: (1, 0)})
    return Leaders(scripted)


def play(scripted: ScriptedCluster, leaders: Leaders, restart: ErrorCode, fate: Planned) -> list[Any]:
    """The outcomes of four batches. The second is answered so while the third, of that fate, is in flight.

    The leader does not know the producer any more, and takes any sequence.
    """

    async def played() -> list[Any]:
        async with running_producer(scripted, linger_ms=0, client={"request_timeout_ms": 300}) as producer:
            first = await outcomes(await one_a_batch(producer, ["a"]))
            leaders.producers[0] = ProducerState(complete=False)
            leaders.plan += [restart, fate]
            rest = await one_a_batch(producer, ["b", "c"])
            await asyncio.sleep(0.5)
            return first + await outcomes([*rest, *await one_a_batch(producer, ["d"])])

    return run_virtual(played())


@pytest.mark.parametrize("fate", UNSURE)
@pytest.mark.parametrize("restart", RESTARTS)
def test_a_batch_in_flight_that_may_be_written_is_given_up(
    scripted: ScriptedCluster, leaders: Leaders, restart: str, fate: str
) -> None:
    first, _, unsure, last = play(scripted, leaders, RESTARTS[restart], UNSURE[fate])
    assert (first, type(unsure), type(last)) == (0, MaybeWrittenError, int)
    values = leaders.values()
    assert values.count("c") == (1 if isinstance(UNSURE[fate], tuple) else 0)
    assert sorted(set(values)) == sorted(values)


@pytest.mark.parametrize("fate", CERTAIN)
@pytest.mark.parametrize("restart", RESTARTS)
def test_a_batch_in_flight_that_is_not_written_is_written_in_the_next_epoch(
    scripted: ScriptedCluster, leaders: Leaders, restart: str, fate: str
) -> None:
    _, second, third, last = play(scripted, leaders, RESTARTS[restart], CERTAIN[fate])
    is_given_up = restart.startswith("a batch")
    assert isinstance(second, (NotWrittenError, MaybeWrittenError)) == is_given_up
    assert leaders.values() == (["a", "c", "d"] if is_given_up else ["a", "b", "c", "d"])
    assert (third, last) == ((1, 2) if is_given_up else (2, 3))


@pytest.mark.world(linger_ms=0, client={"request_timeout_ms": 300})
async def test_the_next_epoch_waits_until_nothing_of_the_one_before_is_in_flight(
    producer: Producer, leaders: Leaders
) -> None:
    """What is in flight may yet be written, and would then have been overtaken."""
    await outcomes(await one_a_batch(producer, ["a"]))
    leaders.plan += [ErrorCode.MESSAGE_TOO_LARGE, SILENCE]
    rest = await one_a_batch(producer, ["b", "c"])
    await asyncio.sleep(0.05)
    rest += await one_a_batch(producer, ["d"])
    await asyncio.sleep(0.15)
    sent = [header.producer_epoch for _, header in leaders.headers]
    await outcomes(rest)
    assert sent == [0]
    assert leaders.headers[-1][1].producer_epoch == 1
