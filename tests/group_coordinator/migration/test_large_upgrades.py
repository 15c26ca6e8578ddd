"""Upgrades of very many members beside the same ones decided at once: equal answers, records and states."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from pykraft.group_coordinator import service_members
from pykraft.group_coordinator.consumer.heartbeat import handle_consumer_heartbeat
from pykraft.group_coordinator.migration import migration
from pykraft.group_coordinator.migration.migration import PreparedUpgrade
from pykraft.group_coordinator.replay import replay_all
from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicMember, ClassicState
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.result import AnyResult, Call
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.asynchronous import in_loop
from tests.broker.slices import pauses_of, turns_of
from tests.group_coordinator import tools
from tests.group_coordinator.busy import BusyWorld, busy
from tests.group_coordinator.fleet import assignment, subscription
from tests.group_coordinator.offset_rows import read_again, records_of

TOPICS = TopicsView(tools.make_image({"t": 40}))
Written = tuple[object, list[tuple[bytes, bytes | None]], tuple[object, ...], tuple[object, ...], ShardState]


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "_RECORDS_AT_ONCE", 1)
    monkeypatch.setattr(service_members, "_LARGE_GROUP", 3)


def classic_group(count: int, state: ClassicState = ClassicState.STABLE) -> ClassicGroup:
    """Each member has two partitions of topic t."""
    members = [
        ClassicMember(
            member_id=f"m{n:02}",
            instance_id=f"i{n}" if n % 3 == 0 else None,
            client_id="cli",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=30_000,
            protocols=(("range", subscription()),),
            assignment=assignment(2 * n, 2 * n + 1),
            awaiting_join=state is ClassicState.PREPARING_REBALANCE and n % 2 == 0,
        )
        for n in range(count)
    ]
    group = ClassicGroup(
        "g",
        state=state,
        generation=4,
        protocol_type="consumer",
        protocol_name="range",
        leader_id="m00",
    )
    return group.with_members(members)


def join_request(member_id: str = "new") -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )


def call_of(topics: TopicsView = TOPICS) -> Call:
    return Call(GroupConfig(), topics, version=1, wall_ms=1_000_000)


def written(state: ShardState, result: AnyResult) -> Written:
    after = replay_all(state, result.records)
    return result.response, records_of(result), tuple(result.timers), tuple(result.completions), after


def decided(state: ShardState, call: Call, prepared: PreparedUpgrade | None) -> Written:
    return written(state, handle_consumer_heartbeat(state, join_request(), call, prepared))


@pytest.mark.parametrize("state", [ClassicState.STABLE, ClassicState.PREPARING_REBALANCE])
def test_prepared_upgrade_is_the_one_that_is_made_at_once(state: ClassicState) -> None:
    group = classic_group(12, state)
    prepared = PreparedUpgrade(group, call_of())
    assert pauses_of(prepared.prepare()) > 5 * 12
    shard = ShardState().with_group(group)
    found = decided(shard, call_of(), prepared)
    assert found == decided(shard, call_of(), None)
    after = found[-1]
    assert isinstance(after, ShardState)
    assert isinstance(after.groups["g"], ConsumerGroup)
    assert read_again(shard, found[1]) == after


def test_upgrade_is_not_of_what_has_changed_since_it_was_prepared() -> None:
    group = classic_group(12)
    prepared = PreparedUpgrade(group, call_of())
    pauses_of(prepared.prepare())
    left = ShardState().with_group(group.without_member("m03"))
    assert decided(left, call_of(), prepared) == decided(left, call_of(), None)
    grown = call_of(TopicsView(tools.make_image({"t": 50}, 2)))
    shard = ShardState().with_group(group)
    assert decided(shard, grown, prepared) == decided(shard, grown, None)
    forbidden = replace(call_of(), config=replace(GroupConfig(), consumer_max_size=5))
    with pytest.raises(KafkaError) as raised:
        decided(shard, forbidden, prepared)
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND


@asynccontextmanager
async def with_a_classic_group() -> AsyncIterator[BusyWorld]:
    async with busy(sizes={"t": 40}) as world:
        world.put(classic_group(12))
        yield world


world = in_loop(with_a_classic_group)


def join(world: BusyWorld, member_id: str = "new") -> Coroutine[Any, Any, ConsumerGroupHeartbeatResponse]:
    return world.service.consumer_group_heartbeat(tools.CALLER, join_request(member_id), 1)


async def test_members_that_join_together_prepare_one_upgrade(
    world: BusyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[PreparedUpgrade] = []
    prepare = PreparedUpgrade.prepare

    def counted(prepared: PreparedUpgrade) -> Iterator[None]:
        begun.append(prepared)
        yield from prepare(prepared)

    monkeypatch.setattr(PreparedUpgrade, "prepare", counted)
    joining = [join(world, f"n{n}") for n in range(8)]
    answers = await asyncio.gather(*joining)
    assert {answer.error_code for answer in answers} == {0}
    assert len(begun) == 1
    group = world.hosted.shard.state.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert len(group.members) == 20


@pytest.mark.parametrize("seed", range(10))
async def test_members_that_leave_amid_the_preparation_are_not_in_the_upgraded_group(
    world: BusyWorld, seed: int
) -> None:
    rng = Random(seed)
    left: set[str] = set()

    def leave(turn: int) -> None:
        group = world.hosted.shard.state.groups["g"]
        if isinstance(group, ClassicGroup) and rng.random() < 0.05:
            left.add(member_id := rng.choice(sorted(group.members)))
            world.put(group.without_member(member_id))

    answer, _ = await turns_of(join(world), leave)
    assert answer.error_code == 0
    upgraded = world.hosted.shard.state.groups["g"]
    assert isinstance(upgraded, ConsumerGroup)
    assert set(upgraded.members) == {"new", *(f"m{n:02}" for n in range(12))} - left


async def test_group_that_cannot_be_upgraded_says_so_to_all_that_join(world: BusyWorld) -> None:
    group = world.hosted.shard.state.groups["g"]
    assert isinstance(group, ClassicGroup)
    world.put(replace(group, protocol_type="connect"))
    joining = [join(world, f"n{n}") for n in range(3)]
    for refused in await asyncio.gather(*joining, return_exceptions=True):
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.GROUP_ID_NOT_FOUND
