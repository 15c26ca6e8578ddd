"""Requests of one turn share an append: whole in one batch, answered together, and lost together."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from pykraft.group_coordinator.offsets.commit import handle_offset_commit
from pykraft.group_coordinator.offsets.fetch import build_group, find_offsets
from pykraft.group_coordinator.shard import GroupOutcome
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.offsets import (
    OffsetFetchRequestGroup,
)
from tests.asynchronous import in_loop
from tests.group_coordinator import tools
from tests.group_coordinator.coordinators import (
    SHORT_METADATA,
    Coordinator,
    codes,
    running_broker,
    running_world,
)
from tests.group_coordinator.requests import Offsets, commit_offsets, fetch_offsets
from tests.waits import settle

world = in_loop(running_broker)
coordinator = in_loop(running_world)


def many(number: int) -> Offsets:
    return {("t", n % 4): n for n in range(number)} | {("u", n % 2): n for n in range(number)}


def batches(world: Coordinator) -> list[int]:
    """The number of records of each batch."""
    return [len(batch) for _, _, batch in world.writer.batches]


async def test_commits_that_arrive_together_are_one_batch_and_are_answered_together(
    world: Coordinator,
) -> None:
    world.writer.hold = True
    commits = [world.commit({("t", 0): n, ("u", 1): n}, group_id=f"g{n}") for n in range(10)]
    heartbeat = world.beat(group_id="members")
    await settle()
    assert batches(world) == [20 + 5], "also with what a heartbeat writes"
    assert not any(one.done() for one in (*commits, heartbeat))
    world.release()
    await settle()
    assert [codes(await one) for one in commits] == [[0, 0]] * 10
    assert (await heartbeat).error_code == 0


async def test_commits_of_different_turns_are_different_batches(world: Coordinator) -> None:
    for n in range(3):
        await world.commit({("t", 0): n})
    assert batches(world) == [1, 1, 1]


@pytest.mark.parametrize(
    ("refusal", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_append_that_fails_takes_back_all_of_its_requests_and_no_other(
    world: Coordinator, refusal: ErrorCode, answer: ErrorCode
) -> None:
    world.writer.hold = True
    earlier = world.commit({("t", 0): 1})
    await settle()
    world.writer.refuse = refusal
    failing = [world.commit({("t", 0): 2, ("t", n): 3}, group_id=f"g{n % 2 or ''}") for n in range(4)]
    reading = asyncio.ensure_future(world.service._runtime.read(0, read_all))
    await settle()
    world.writer.refuse = None
    later = world.commit({("u", 0): 7})
    await settle()
    world.release()
    await settle()
    assert [set(codes(await one)) for one in failing] == [{answer}] * 4
    assert [codes(await one) for one in (earlier, later)] == [[0], [0]]
    with pytest.raises(KafkaError) as refused:
        await reading  # it was to be told what did not happen
    assert refused.value.code is answer
    assert await world.fetch() == {("t", 0): 1, ("u", 0): 7}
    assert await world.fetch("g1") == {}
    assert batches(world) == [1, 1]
    await world.fail_over()
    assert await world.fetch() == {("t", 0): 1, ("u", 0): 7}


async def test_request_that_does_not_fit_begins_a_batch_of_its_own(world: Coordinator) -> None:
    world.writer.max_bytes = 600
    commits = [world.commit(many(4), group_id=f"g{n}") for n in range(7)]
    await settle()
    assert [codes(await one) for one in commits] == [[0] * 6] * 7
    assert sum(batches(world)) == 7 * 6
    assert len(batches(world)) > 2
    assert all(number % 6 == 0 for number in batches(world)), "no request is in two batches"


async def test_request_that_fits_into_no_batch_is_refused_and_hurts_no_other(world: Coordinator) -> None:
    world.writer.max_bytes = 300
    first, large, last = world.commit({("t", 0): 1}), world.commit(many(4)), world.commit({("t", 3): 2})
    await settle()
    assert set(codes(await large)) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert [codes(await one) for one in (first, last)] == [[0], [0]]
    assert await world.fetch() == {("t", 0): 1, ("t", 3): 2}


async def test_reader_in_the_same_turn_waits_for_what_it_was_told(world: Coordinator) -> None:
    world.writer.hold = True
    committing = world.commit({("t", 0): 1})
    reading = asyncio.ensure_future(world.service._runtime.read(0, read_all))
    await settle()
    assert not reading.done()
    world.release()
    assert await reading == {("g", "t", 0): (1, "")}
    assert codes(await committing) == [0]


@pytest.mark.world(config=replace(SHORT_METADATA, append_linger_ms=1000))
async def test_reader_is_refused_only_for_what_was_not_taken_back(world: Coordinator) -> None:
    """Otherwise a consumer is told that it is no member, and still is one."""
    joining = world.beat("m")
    await settle()
    world.service.tick()  # appends what was decided
    epoch = (await joining).member_epoch

    async def read_as_member() -> ErrorCode:
        answer = await world.send(fetch_offsets(member_id="m", epoch=epoch), 9)
        return ErrorCode(answer.groups[0].error_code)

    async def leave_and_read() -> tuple[asyncio.Task[Any], asyncio.Task[ErrorCode]]:
        leaving, reading = world.beat("m", -1), asyncio.create_task(read_as_member())
        await settle()
        world.service.tick()
        await settle()
        return leaving, reading

    world.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    leaving, reading = await leave_and_read()
    assert (await leaving).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await reading is ErrorCode.NOT_COORDINATOR, "as for every read that is taken back"
    world.writer.refuse = None
    assert await read_as_member() is ErrorCode.NONE
    world.writer.hold = True
    leaving, reading = await leave_and_read()
    assert not reading.done(), "the next coordinator may still know the member"
    world.release()
    assert (await leaving).error_code == 0
    assert await reading is ErrorCode.UNKNOWN_MEMBER_ID


async def test_leadership_lost_before_the_append_costs_the_commit(world: Coordinator) -> None:
    view = tools.commit_view(commit_offsets({("t", 0): 1}), 8)
    waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    assert world.service.commit_offsets(tools.CALLER, view, 8, waiter)
    world.service.on_resigned(0)
    await settle()
    error = waiter.exception()
    assert isinstance(error, KafkaError) and error.code is ErrorCode.NOT_COORDINATOR
    assert not world.writer.batches


async def test_join_of_a_classic_member_writes_what_waits_before_it(coordinator: Coordinator) -> None:
    """It concerns other requests, so it is not taken into a batch that could fail."""
    coordinator.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    committing = coordinator.send(commit_offsets({("t", 0): 1}), 8)
    joining = coordinator.join()
    await settle()
    coordinator.writer.refuse = None
    assert codes(await committing) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    await coordinator.pass_time(1)
    joined = await joining
    assert (joined.error_code, joined.generation_id) == (0, 1), "it was decided without the commit"
    assert await coordinator.fetch() == {}


@pytest.mark.parametrize(("linger_ms", "expected"), [(0, [1, 1, 1]), (-1, [3]), (5, [3])])
async def test_linger_is_how_long_records_are_collected(linger_ms: int, expected: list[int]) -> None:
    async with running_broker(replace(SHORT_METADATA, append_linger_ms=linger_ms)) as world:
        commits = [world.commit({("t", n): 1}) for n in range(3)]
        await settle()
        if linger_ms > 0:
            assert not batches(world)
        for one in commits:
            assert codes(await one) == [0]
        assert batches(world) == expected


def test_timers_of_a_batch_that_failed_do_not_run() -> None:
    lab = tools.ShardLab({"t": 1})
    staged = lab.shard.stage(
        lambda state: tools.heartbeat_result(lab, state, "m"), wall_ms=0, now_ms=lab.clock.now_ms
    )
    assert staged is not None and staged.is_staged
    assert len(lab.shard.deadlines) == 0
    lab.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError):
        lab.shard.flush()
    assert len(lab.shard.deadlines) == 0
    assert not lab.shard.state.groups
    lab.writer.refuse = None
    lab.heartbeat("m", 0)
    assert len(lab.shard.deadlines) == 1


Committed = dict[tuple[str, str, int], tuple[int, str]]
"""(group, topic, partition) → (offset, metadata)."""

SIZES = {"t": 600, "u": 3}


class ModelRun:
    """One shard whose commits, flushes, reverts and failovers are played against dictionaries."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.lab = tools.ShardLab(SIZES)
        self.lab.writer.hold = True
        self.lab.writer.max_bytes = self.rng.choice((20_000, 1_048_588))
        self.appended: Committed = {}
        self.staged: Committed = {}
        self.by_end: dict[int, Committed] = {0: {}}
        """What is committed by the end of each batch."""
        self.loaded_end = 0
        """What was loaded is committed as a whole."""

    def commit(self) -> None:
        rng = self.rng
        topic = rng.choice(sorted(SIZES))
        count = rng.choice((1, 3, 300))
        partitions = {rng.randrange(SIZES[topic] + 1) for _ in range(count)}
        group, metadata, version = rng.choice("ab"), rng.choice(("", "", "m")), rng.choice((6, 8, 9, 10))
        offsets = {(topic, n): rng.randrange(2**40) for n in partitions}
        view = tools.commit_view(commit_offsets(offsets, group_id=group, metadata=metadata), version)
        call = self.lab.call(version)
        outcome = self.stage(lambda state: handle_offset_commit(state, view, call))
        if outcome is None:
            return
        for (name, partition), offset in offsets.items():
            if partition < SIZES[name]:
                self.staged[group, name, partition] = offset, metadata

    def delete(self) -> None:
        group = self.rng.choice("ab")
        keys = [key for key in self.staged if key[0] == group]
        some = self.rng.sample(keys, min(len(keys), self.rng.choice((1, 40))))
        outcome = self.stage(lambda state: tools.tombstones(some))
        if outcome is not None:
            for key in some:
                del self.staged[key]

    def stage(self, decide: Callable[[Any], Any]) -> GroupOutcome | None:
        """None if it fits into no batch."""
        now_ms = self.lab.clock.now_ms
        try:
            outcome = self.lab.shard.stage(decide, wall_ms=now_ms, now_ms=now_ms)
            if outcome is None:
                self.flush()
                outcome = self.lab.shard.stage(decide, wall_ms=now_ms, now_ms=now_ms)
                assert outcome is not None
        except KafkaError as error:
            assert error.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            return None
        return outcome

    def flush(self) -> None:
        self.lab.writer.refuse = self.rng.choice((None, None, ErrorCode.NOT_ENOUGH_REPLICAS))
        try:
            self.lab.shard.flush()
        except KafkaError:
            self.staged = dict(self.appended)
        else:
            self.appended = dict(self.staged)
            self.by_end[len(self.lab.writer.logs.get(0, []))] = self.appended
        self.lab.writer.refuse = None

    def commit_high_watermark(self) -> None:
        least = max(self.lab.writer.high_watermark(0), self.loaded_end)
        end = self.rng.choice([end for end in self.by_end if end >= least])
        self.lab.writer.watermarks[0] = end
        self.lab.shard.advance(end)
        assert read_all(self.lab.shard.committed) == self.by_end[end]

    def lose_leadership(self) -> None:
        """The next leader has all that is committed and some of the rest, whole batches; what was staged is
        lost.
        """
        end = self.rng.choice([end for end in self.by_end if end >= self.lab.writer.high_watermark(0)])
        del self.lab.writer.logs.setdefault(0, [])[end:]
        self.loaded_end = end
        self.by_end = {at: known for at, known in self.by_end.items() if at <= end}
        self.appended, self.staged = dict(self.by_end[end]), dict(self.by_end[end])
        self.lab.fail_over()

    def check(self) -> None:
        assert read_all(self.lab.shard.state) == self.staged
        assert read_all(self.lab.shard.appended) == self.appended
        for group in "ab":
            asked = OffsetFetchRequestGroup(group_id=group, topics=None)
            answer = build_group(asked, find_offsets(self.lab.shard.state, asked), self.lab.topics, 9)
            told = {
                (group, topic.name, p.partition_index): (p.committed_offset, p.metadata)
                for topic in answer.topics
                for p in topic.partitions
            }
            assert told == {key: value for key, value in self.staged.items() if key[0] == group}

    def step(self) -> None:
        self.lab.clock.now_ms += self.rng.randrange(3)
        roll = self.rng.random()
        if roll < 0.5:
            self.commit()
        elif roll < 0.6:
            self.delete()
        elif roll < 0.8:
            self.flush()
        elif roll < 0.93:
            self.commit_high_watermark()
        else:
            self.lose_leadership()


def read_all(state: Any) -> Committed:
    return {
        (group, topic, partition): (value.offset, value.metadata)
        for group, topics in state.offsets.items()
        for topic, offsets in topics.items()
        for partition, value in offsets.items()
    }


@pytest.mark.parametrize("seed", range(25))
def test_offsets_are_those_of_a_dictionary_whatever_fails(seed: int) -> None:
    run = ModelRun(seed)
    for _ in range(60):
        run.step()
        run.check()
    run.flush()
    assert run.lab.load().state == run.lab.shard.state, "what is loaded is what was in memory"
