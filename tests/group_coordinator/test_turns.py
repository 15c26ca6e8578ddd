"""How much a coordinator does in one turn of the event loop: answers, loading, looking up many groups."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import TypeVar

import pytest

from pykraft.coordinator import runtime
from pykraft.coordinator.answers import Answers
from pykraft.coordinator.writer import BatchBody
from pykraft.group_coordinator import loading, loading_tables
from pykraft.group_coordinator.loading import Loader
from pykraft.group_coordinator.state.commits import write_commit
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import DescribeGroupsRequest
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykraft.kafka_protocol.records import HEADER_BYTES
from pykraft.runtime.turns import TURN_STEPS, TurnBudget
from tests.asynchronous import in_loop
from tests.broker.answers import as_read
from tests.group_coordinator import tools
from tests.group_coordinator.busy import CONFIG, BusyWorld
from tests.group_coordinator.offset_rows import commit_of
from tests.stand_ins import interpreted_only
from tests.waits import settle, until_now

MANY = 500
T = TypeVar("T")


class World(BusyWorld):
    """Its turns end after some steps, not after some time."""

    def __init__(self, on_growth: Callable[[], None] | None = None) -> None:
        super().__init__({"t": 4}, look_us=0, on_growth=on_growth)
        self.answers: list[int] = []

    async def commit_for(self, group_id: str) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
        response = await self.send(OffsetCommitRequest(group_id=group_id, topics=[topic]), 8)
        self.turns.note()
        self.answers.append(response.topics[0].partitions[0].error_code)

    async def park(self) -> list[asyncio.Task[None]]:
        self.writer.hold = True
        waiting = [asyncio.create_task(self.commit_for(f"g{n}")) for n in range(MANY)]
        await settle(5)
        assert not self.answers
        return waiting


@asynccontextmanager
async def leading() -> AsyncIterator[World]:
    world = World()
    await world.lead()
    yield world
    await world.stop()


w = in_loop(leading)


@pytest.mark.parametrize(
    ("by", "code"),
    [
        ("replicas", ErrorCode.NONE),
        ("resignation", ErrorCode.NOT_COORDINATOR),
        ("deadline", ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_requests_that_are_released_or_fail_together_are_answered_over_several_turns(
    w: World, by: str, code: ErrorCode
) -> None:
    waiting = await w.park()
    if by == "replicas":
        w.writer.watermarks[0] = len(w.writer.logs[0])
        w.service.on_high_watermark(0, w.writer.watermarks[0])
    elif by == "resignation":
        w.service.on_resigned(0)
    else:
        w.clock.now_ms += CONFIG.offset_commit_timeout_ms
        w.service.tick()
    await asyncio.gather(*waiting)
    assert w.answers == [code] * MANY
    assert w.turns.most <= TURN_STEPS


async def test_one_request_about_many_groups_looks_them_up_over_several_turns(w: World) -> None:
    read = w.service._runtime.read

    async def counted(partition: int, view: Callable[[ShardState], T]) -> T:
        w.turns.note()
        return await read(partition, view)

    w.service._runtime.read = counted  # type: ignore[method-assign]
    names = [f"g{n}" for n in range(MANY)]
    response = await w.service.describe_groups(tools.CALLER, DescribeGroupsRequest(groups=[*names]), 5)
    assert [group.group_id for group in as_read(response, 5).groups] == names
    assert w.turns.most <= 20


async def test_many_partitions_at_once_are_loaded_one_slice_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    w = World()
    slices: list[int] = []
    load = Loader.load

    def counted(loader: Loader, batches: Sequence[BatchBody]) -> Iterator[int]:
        for steps in load(loader, batches):
            w.turns.note()
            slices.append(steps)
            yield steps

    monkeypatch.setattr(Loader, "load", counted)
    for partition in range(20):
        w.writer.append(partition, 1, [(b"\x7f\xff", b"later")] * 70, 0)
    for partition in range(20):
        w.service.on_elected(partition, 1)
    hosted = w.service._runtime._hosted.values()
    await until_now(lambda: all(one.shard.loaded for one in hosted))
    assert len(slices) == 20 * 2
    assert w.turns.most == 1
    assert max(slices) == loading.SLICE_STEPS
    await w.stop()


async def test_growth_is_reported_while_members_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the garbage collector would scan a million offsets at an arbitrary time."""
    monkeypatch.setattr(runtime, "_GROWTH_RECORDS", 10)
    grown: list[int] = []
    w = World(on_growth=lambda: grown.append(len(w.writer.logs[0])))
    await w.lead()
    for n in range(25):
        await w.commit_for(f"group-{n % 3}")
    await w.stop()
    assert grown == [10, 20]


@interpreted_only
def test_no_slice_of_a_load_handles_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """One group has 20,000 partitions of one topic, and commits each twice in random order."""
    count = 20_000
    cleaned: list[int] = []
    clean = loading_tables.Table.clean

    def counted(table: loading_tables.Table) -> tuple[int, ...]:
        cleaned.append(len(table.units) // loading_tables._UNIT.size)
        return clean(table)

    monkeypatch.setattr(loading_tables.Table, "clean", counted)
    rng = Random(1)
    builder = BatchBuilder()
    for offset in (1, 2):
        for partition in rng.sample(range(count), count):
            write_commit(builder, commit_of("g", "t", {partition: (offset, "")}, tools.topic_id("t")))
    body = bytes(builder.body[HEADER_BYTES:])
    loader = Loader(0)
    steps = list(loader.load([BatchBody(0, builder.record_count, body)])) + list(loader.finish())
    table = loader.state.group_offsets("g")["t"]
    assert [(n, value.offset) for n, value in table.items()] == [(n, 2) for n in range(count)]
    assert max(cleaned) <= 1_024
    assert max(steps) <= 2 * loading.SLICE_STEPS


async def test_answers_that_wait_for_a_turn_are_given_when_the_coordinator_stops() -> None:
    loop = asyncio.get_running_loop()
    budget = TurnBudget(loop.call_soon, lambda: 0)
    while budget.has_room():
        budget.spend(steps=1)
    answers = Answers(budget)
    waiting = [loop.create_future() for _ in range(4)]
    for number, one in enumerate(waiting):
        answers.give(one, number)
    assert not any(one.done() for one in waiting)
    answers.flush()
    assert [one.result() for one in waiting] == [0, 1, 2, 3]
