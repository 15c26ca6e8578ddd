"""What clients can make the coordinator store is bounded, and so are the names that it accepts."""

import asyncio
from typing import Any

import pytest

from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.member import ConsumerMember
from pykraft.group_coordinator.state.names import check_names
from pykraft.group_coordinator.state.records import ResolvedRegex
from pykraft.group_coordinator.state.subscription import MAX_CACHED, TopicsView
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.persistent import Map
from tests.asynchronous import in_loop
from tests.group_coordinator import tools
from tests.group_coordinator.coordinators import Coordinator, running_world
from tests.group_coordinator.requests import commit_offsets
from tests.waits import settle

world = in_loop(running_world)


async def test_repeated_joins_of_one_member_leave_one_request_waiting(world: Coordinator) -> None:
    """A client that gives up and retries on a new connection must not accumulate requests."""
    leader, other = await world.pair()
    tries = [world.join(leader, protocols={"range": b"new"}) for _ in range(20)]
    await settle()
    superseded = [task for task in tries if task.done()]
    assert len(superseded) == 19
    assert {task.result().error_code for task in superseded} == {ErrorCode.REBALANCE_IN_PROGRESS}
    assert (await world.join(other)).error_code == 0
    assert (await tries[-1]).error_code == 0


async def test_repeated_syncs_of_one_member_leave_one_request_waiting(world: Coordinator) -> None:
    leader, other = await world.pair()
    rejoin = world.join(leader, protocols={"range": b"new"})
    await settle()
    joined = [await world.join(other), await rejoin]
    leader, generation = joined[0].leader, joined[0].generation_id
    (other,) = {a.member_id for a in joined} - {leader}
    tries = [world.sync(other, generation) for _ in range(5)]
    await settle()
    assert [task.done() for task in tries] == [True] * 4 + [False]
    assert {task.result().error_code for task in tries[:4]} == {ErrorCode.REBALANCE_IN_PROGRESS}
    assert (await world.sync(leader, generation)).error_code == 0
    assert (await tries[-1]).error_code == 0


LONG = "x" * 33_000


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": LONG}, ErrorCode.INVALID_GROUP_ID),
        ({"group_instance_id": LONG}, ErrorCode.INVALID_REQUEST),
        ({"protocol_type": LONG}, ErrorCode.INVALID_REQUEST),
        ({"protocols": {LONG: b""}}, ErrorCode.INVALID_REQUEST),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
async def test_join_with_a_name_no_record_can_hold_is_refused(
    world: Coordinator, fields: dict[str, Any], code: ErrorCode
) -> None:
    join = world.join(version=9, **({"group_instance_id": "i"} | fields))
    await settle()
    await world.pass_time(1)
    await world.pass_time(10_001)  # an accepted member would now expire, and the group be written
    assert (await join).error_code == code


async def test_heartbeat_and_commit_with_names_no_record_can_hold_are_refused(
    world: Coordinator,
) -> None:
    assert (await world.beat(LONG, 0)).error_code == ErrorCode.INVALID_REQUEST
    assert (await world.beat("m", 0, group_id=LONG)).error_code == ErrorCode.INVALID_REQUEST
    view = tools.commit_view(commit_offsets({("t", 0): 1}), 8)._replace(group_id=LONG)
    with pytest.raises(KafkaError) as refused:
        world.service.commit_offsets(RequestContext(), view, 8, asyncio.Future())
    assert refused.value.code == ErrorCode.INVALID_GROUP_ID


async def test_longest_client_id_still_gets_a_member_id_that_fits(world: Coordinator) -> None:
    world.client_id = "ü" * 16_000
    join = world.join(version=3)
    await settle()
    await world.pass_time(1)
    answer = await join
    assert answer.error_code == 0
    assert len(answer.encode(3)) > 0
    assert (await world.sync(answer.member_id, answer.generation_id)).error_code == 0


def test_endless_new_groups_and_subscriptions_do_not_pile_up_in_memory() -> None:
    """A view of the topics caches a bounded amount, even if the topics never change again."""
    view = TopicsView(tools.make_image({"t": 1}))
    for n in range(3 * MAX_CACHED):
        member = ConsumerMember("m", topic_names=("t", f"t{n}"), topic_regex=f"t{n}.*")
        resolved = Map({f"t{n}.*": ResolvedRegex((f"t{n}0",), 1, 1)})
        assert view.subscribed_ids(member, resolved) == {tools.topic_id("t")}
        assert view.metadata_hash(ConsumerGroup(f"g{n}")) == 0
    for remembered in (view._by_subscription, view._hashes):
        assert 0 < len(remembered) <= MAX_CACHED


@pytest.mark.parametrize("letter", ["g", "ü"])
async def test_group_id_may_be_as_long_as_a_record_holds(world: Coordinator, letter: str) -> None:
    longest = letter * (0x7FFF // len(letter.encode()))
    longest += "g" * (0x7FFF - len(longest.encode()))
    assert await world.commit_one(1, group_id=longest) == ErrorCode.NONE
    assert list(world.service._runtime.state_of(0).offsets) == [longest]
    with pytest.raises(KafkaError) as refused:
        check_names("g", None, longest + "g", code=ErrorCode.INVALID_GROUP_ID)
    assert refused.value.code is ErrorCode.INVALID_GROUP_ID
