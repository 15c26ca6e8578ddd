"""How much a coordinator does in one turn of the event loop: answers, loading, looking up many groups."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TypeVar

import pytest

from pykraft.coordinator import runtime
from pykraft.coordinator.answers import Answers
from pykraft.coordinator.writer import BatchBody
from pykraft.group_coordinator import loading, loading_tables
from pykraft.group_coordinator.loading import Loader
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.group_coordinator.state.commits import write_commit
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import DescribeGroupsRequest
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pykraft.kafka_protocol.records import HEADER_BYTES
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE
from pykraft.runtime.turns import TURN_STEPS, TurnBudget
from tests.broker.answers import as_read
from tests.clocks import ManualClock
from tests.group_coordinator import tools
from tests.group_coordinator.offset_rows import commit_of
from tests.narrowing import as_type
from tests.unexpected import unexpected

CONFIG = GroupConfig(offsets_topic_num_partitions=1)
CONTEXT = RequestContext(client_id="cli", client_address="127.0.0.1")
MANY = 500
T = TypeVar("T")


class World:
    """A coordinator that shares its loop with a counter of turns."""

    def __init__(self, on_growth: Callable[[], None] | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.turn = 0
        self.tools = tools
        self.clock, self.writer = ManualClock(), tools.MemoryWriter()
        self.budget = TurnBudget(loop.call_soon, lambda: 0)
        self.service = GroupCoordinatorService(
            CONFIG, self.writer, self.clock, Random(1), unexpected, on_growth=on_growth, turns=self.budget
        )
        image = tools.make_image({"t": 4})
        self.service.on_metadata(MetadataDelta(EMPTY_IMAGE, image), image)
        self._count()

    def _count(self) -> None:
        self.turn += 1
        self._handle = asyncio.get_running_loop().call_soon(self._count)

    async def lead(self) -> None:
        self.service.on_elected(0, 1)
        for _ in range(20):
            await asyncio.sleep(0)

    async def commit(self, group_id: str, answered: list[tuple[int, int]]) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
        request = OffsetCommitRequest(group_id=group_id, topics=[topic])
        response = as_type(await tools.answer(self.service, CONTEXT, request, 8), OffsetCommitResponse)
        answered.append((self.turn, response.topics[0].partitions[0].error_code))

    async def park(self) -> tuple[list[asyncio.Task[None]], list[tuple[int, int]]]:
        answered: list[tuple[int, int]] = []
        self.writer.hold = True
        waiting = [asyncio.create_task(self.commit(f"g{n}", answered)) for n in range(MANY)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert not answered
        return waiting, answered

    async def stop(self) -> None:
        await self.service.stop()
        self._handle.cancel()


def most_in_a_turn(answered: list[tuple[int, int]]) -> int:
    return max(Counter(turn for turn, _ in answered).values())


async def test_answers_that_the_replicas_release_together_are_sent_over_several_turns() -> None:
    w = World()
    await w.lead()
    waiting, answered = await w.park()
    w.writer.watermarks[0] = len(w.writer.logs[0])
    w.service.on_high_watermark(0, w.writer.watermarks[0])
    await asyncio.gather(*waiting)
    assert {code for _, code in answered} == {0}
    assert len(answered) == MANY
    assert most_in_a_turn(answered) <= TURN_STEPS
    await w.stop()


@pytest.mark.parametrize("by", ["resignation", "deadline"])
async def test_requests_that_fail_together_are_answered_over_several_turns(by: str) -> None:
    w = World()
    await w.lead()
    waiting, answered = await w.park()
    if by == "resignation":
        w.service.on_resigned(0)
    else:
        w.clock.now_ms += CONFIG.offset_commit_timeout_ms
        w.service.tick()
    await asyncio.gather(*waiting)
    codes = {"resignation": ErrorCode.NOT_COORDINATOR, "deadline": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert {code for _, code in answered} == {codes[by]}
    assert most_in_a_turn(answered) <= TURN_STEPS
    await w.stop()


async def test_one_request_about_many_groups_looks_them_up_over_several_turns() -> None:
    w = World()
    await w.lead()
    looked_up: list[tuple[int, int]] = []
    read = w.service._runtime.read

    async def counted(partition: int, view: Callable[[ShardState], T]) -> T:
        looked_up.append((w.turn, 0))
        return await read(partition, view)

    w.service._runtime.read = counted  # type: ignore[method-assign]
    names = [f"g{n}" for n in range(MANY)]
    response = await w.service.describe_groups(CONTEXT, DescribeGroupsRequest(groups=[*names]), 5)
    assert [group.group_id for group in as_read(response, 5).groups] == names
    assert most_in_a_turn(looked_up) <= 20
    await w.stop()


async def test_many_partitions_at_once_are_loaded_one_slice_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    w = World()
    slices: list[tuple[int, int]] = []
    load = Loader.load

    def counted(loader: Loader, batches: Sequence[BatchBody]) -> Iterator[int]:
        for steps in load(loader, batches):
            slices.append((w.turn, steps))
            yield steps

    monkeypatch.setattr(Loader, "load", counted)
    for partition in range(20):
        w.writer.append(partition, 1, [(b"\x7f\xff", b"later")] * 70, 0)
    for partition in range(20):
        w.service.on_elected(partition, 1)
    while not all(hosted.shard.loaded for hosted in w.service._runtime._hosted.values()):
        await asyncio.sleep(0)
    assert len(slices) == 20 * 2
    assert most_in_a_turn(slices) == 1
    assert max(steps for _, steps in slices) == loading.SLICE_STEPS
    await w.stop()


async def test_growth_is_reported_while_members_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the garbage collector would scan a million offsets at an arbitrary time."""
    monkeypatch.setattr(runtime, "_GROWTH_RECORDS", 10)
    grown: list[int] = []
    w = World(on_growth=lambda: grown.append(len(w.writer.logs[0])))
    await w.lead()
    for n in range(25):
        await w.commit(f"group-{n % 3}", [])
    await w.stop()
    assert grown == [10, 20]


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
