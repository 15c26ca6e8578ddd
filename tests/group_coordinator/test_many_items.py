"""Requests that name very many groups, members or topics: over several turns, and within bounds."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from pykraft.broker.apis.table import make_apis
from pykraft.broker.serving.api import ReceivedRequest
from pykraft.coordinator import descriptions
from pykraft.group_coordinator import leave_request as leave_group
from pykraft.group_coordinator import service
from pykraft.group_coordinator.classic.join_request import MAX_PROTOCOLS
from pykraft.group_coordinator.consumer.current_assignment import may_own
from pykraft.group_coordinator.consumer.heartbeat_validation import MAX_TOPIC_NAMES, owned_partitions
from pykraft.group_coordinator.describe import MAX_FILTERS
from pykraft.group_coordinator.offsets.transactional import MAX_PARTITIONS
from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicMember, ClassicState
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.member import ConsumerMember
from pykraft.group_coordinator.state.shard_state import Group
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.codec.pace import TooManyItemsError, at_once
from pykraft.kafka_protocol.codec.schema import Request
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
)
from pykraft.kafka_protocol.messages.offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pykraft.kafka_protocol.messages.transactions import DescribeTransactionsRequest
from pykraft.metadata_log.persistent import Map
from tests.asynchronous import in_loop
from tests.broker.slices import pauses_of, turns_of
from tests.group_coordinator import tools
from tests.group_coordinator.busy import BusyWorld, busy
from tests.waits import settle

ROWS = {row.key: row for row in make_apis()}
MEMBERS = [f"m{number:04}" for number in range(1_000)]


def classic(group_id: str, members: list[str]) -> ClassicGroup:
    return ClassicGroup(
        group_id,
        state=ClassicState.STABLE if members else ClassicState.EMPTY,
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        leader_id=members[0] if members else None,
        members=Map(
            {
                name: ClassicMember(
                    member_id=name,
                    instance_id=None,
                    client_id="c",
                    client_host="/h",
                    rebalance_timeout_ms=10_000,
                    session_timeout_ms=10_000,
                    protocols=(("range", b"subscription"),),
                    assignment=b"assignment",
                )
                for name in members
            }
        ),
    )


def consumers(group_id: str, members: list[str]) -> ConsumerGroup:
    return ConsumerGroup(
        group_id,
        epoch=3,
        assignment_epoch=3,
        members=Map({name: ConsumerMember(name, epoch=3) for name in members}),
    )


def group(consumer: bool, members: int = len(MEMBERS)) -> Group:
    return (consumers if consumer else classic)("g", MEMBERS[:members])


def describe(world: BusyWorld, consumer: bool, *names: str) -> asyncio.Task[Any]:
    if consumer:
        return world.send(ConsumerGroupDescribeRequest(group_ids=[*names]), 1)
    return world.send(DescribeGroupsRequest(groups=[*names]), 6)


world = in_loop(busy)
of_both_kinds = pytest.mark.parametrize("consumer", [True, False])


@pytest.mark.parametrize(
    ("request_class", "field", "version", "times"),
    [
        (DescribeGroupsRequest, "groups", 6, 2),
        (ConsumerGroupDescribeRequest, "group_ids", 1, 2),
        (DescribeTransactionsRequest, "transactional_ids", 0, 2),
        (FindCoordinatorRequest, "coordinator_keys", 4, 2),
        (DeleteGroupsRequest, "groups_names", 2, 1),
    ],
)
def test_name_that_is_repeated_counts_as_in_kafka(
    request_class: type[Any], field: str, version: int, times: int
) -> None:
    """What is read is said again, what is deleted is deleted once."""
    encoded = request_class(**{field: ["a", "b", "a"]}).encode(version)
    named = getattr(request_class.decode(encoded, version), field)
    assert named == (["a", "b", "a"] if times == 2 else ["a", "b"])


@of_both_kinds
async def test_group_that_is_named_again_and_again_is_looked_at_once(
    world: BusyWorld, consumer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put(group(consumer, 9))
    names = ["g", "none", *["g"] * 500]
    answer, turns = await turns_of(describe(world, consumer, *names))
    assert [group.group_id for group in answer.groups] == names
    assert {len(group.members) for group in answer.groups if group.group_id == "g"} == {9}
    assert turns < 100, "not for each"
    monkeypatch.setattr(descriptions, "MOST_REPEATED_BYTES", 10_000)
    refused = await describe(world, consumer, *names)
    assert {group.error_code for group in refused.groups} == {ErrorCode.INVALID_REQUEST}
    assert len((await describe(world, consumer, "g")).groups[0].members) == 9


@of_both_kinds
async def test_group_with_very_many_members_is_described_over_several_turns(
    world: BusyWorld, consumer: bool
) -> None:
    world.put(group(consumer))
    describing = describe(world, consumer, "g")
    await settle(50)
    assert not describing.done()
    world.put(group(consumer, 3))
    answer, turns = await turns_of(describing)
    assert turns > len(MEMBERS) // 10
    assert [one.member_id for one in answer.groups[0].members] == MEMBERS, "of one moment"


async def test_very_many_groups_are_listed_over_several_turns(world: BusyWorld) -> None:
    names = [f"g{number}" for number in range(3_000)]
    world.put(
        *[classic(name, []) for name in names[1_000:]], *[consumers(name, []) for name in names[:1_000]]
    )
    answer, turns = await turns_of(world.send(ListGroupsRequest(), 5))
    assert sorted(group.group_id for group in answer.groups) == sorted(names)
    assert turns > 5
    answer, turns = await turns_of(
        world.send(ListGroupsRequest(states_filter=[" EMPTY"], types_filter=["Consumer"]), 5)
    )
    assert sorted(group.group_id for group in answer.groups) == sorted(names[:1_000])
    assert turns > 5
    answer, _ = await turns_of(world.send(ListGroupsRequest(states_filter=["none"]), 5))
    assert answer.groups == []


@of_both_kinds
async def test_very_many_members_leave_over_several_turns(
    world: BusyWorld, consumer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leave_group, "MEMBERS_AT_ONCE", 10)
    named = [*MEMBERS[:300], "nobody", MEMBERS[5], *MEMBERS[300:]]
    world.put(group(consumer))
    identities = [MemberIdentity(member_id=name) for name in named]
    leaving = world.send(LeaveGroupRequest(group_id="g", members=identities), 5)
    answer, turns = await turns_of(leaving)
    assert [one.member_id for one in answer.members] == named
    codes = [ErrorCode.NONE] * len(named)
    codes[300:302] = [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert [one.error_code for one in answer.members] == codes
    assert turns > 50
    (left,) = (await describe(world, consumer, "g")).groups
    assert left.members == []
    nobody = await world.send(LeaveGroupRequest(group_id="g", members=[]), 5)
    assert (nobody.error_code, nobody.members) == (ErrorCode.NONE, [])


@pytest.mark.parametrize(
    ("request_made", "version", "admitted"),
    [
        (
            lambda count: JoinGroupRequest(
                protocols=[JoinGroupRequestProtocol(name=str(number)) for number in range(count)]
            ),
            5,
            MAX_PROTOCOLS,
        ),
        (
            lambda count: ListGroupsRequest(states_filter=[str(number) for number in range(count)]),
            5,
            MAX_FILTERS,
        ),
    ],
)
def test_more_than_anybody_needs_is_refused_before_it_is_read(
    request_made: Callable[[int], Request[Any]], version: int, admitted: int
) -> None:
    request = request_made(admitted)
    row = ROWS[ApiKey(request.API_KEY)]
    received = ReceivedRequest(type(request), version, request.encode(version), row.max_items)
    assert received.request == request
    larger = ReceivedRequest(
        type(request), version, request_made(admitted + 1).encode(version), row.max_items
    )
    with pytest.raises(TooManyItemsError) as refused:
        assert larger.request
    answer = row.refusal(version, refused.value)
    assert answer is not None and answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.world(sizes={f"t{number}": 1 for number in range(1000)})
async def test_subscription_names_many_topics_and_not_any_number(world: BusyWorld) -> None:
    names = [f"t{number}" for number in range(MAX_TOPIC_NAMES + 1)]

    def join(count: int) -> asyncio.Task[Any]:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=names[:count],
            topic_partitions=[],
        )
        return world.send(request, 1)

    answer, turns = await turns_of(join(MAX_TOPIC_NAMES))
    assert answer.error_code == 0 and len(answer.assignment.topic_partitions) == 1_000
    assert turns > MAX_TOPIC_NAMES // 1_000, "its topics are looked at before"
    answer, _ = await turns_of(join(MAX_TOPIC_NAMES + 1))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "regular expression" in answer.error_message


@pytest.mark.parametrize("seed", range(20))
def test_what_a_member_owns_is_a_set_of_partitions(seed: int) -> None:
    rng = Random(seed)
    ids = [tools.topic_id(name) for name in "tuv"]

    def draw() -> list[tuple[Any, list[int]]]:
        return [(rng.choice(ids), rng.choices(range(4), k=rng.randrange(4))) for _ in range(rng.randrange(4))]

    reported = draw()
    request = ConsumerGroupHeartbeatRequest(
        topic_partitions=[
            ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in reported
        ]
    )
    owned = owned_partitions(request)
    assert owned is not None
    expected = frozenset((topic_id, index) for topic_id, indexes in reported for index in indexes)
    assert set(owned) == expected and len(owned) == len(expected) and bool(owned) is bool(expected)
    others = frozenset((topic_id, index) for topic_id, indexes in draw() for index in indexes)
    assert (owned <= others) is (expected <= others)
    assert may_own(owned, others) is not expected.isdisjoint(others)
    assert owned_partitions(ConsumerGroupHeartbeatRequest(topic_partitions=None)) is None


def test_request_that_is_refused_as_a_whole_is_the_same_for_all() -> None:
    with pytest.raises(KafkaError) as refused:
        at_once(descriptions.as_named(["a"] * 17, {"a": bytes(1 << 20 | 1)}))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert len(at_once(descriptions.as_named(["a"] * 17, {"a": bytes(1 << 20)}))) == 17


def test_names_are_looked_through_and_answered_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptions, "_AT_ONCE", 10)
    names = [f"name-{number % 40}" for number in range(60)]
    assert pauses_of(descriptions.each_once(names)) == 6
    assert at_once(descriptions.each_once(names)) == names[:40]
    described = {name: name.encode() for name in names}
    assert at_once(descriptions.as_named([*names], described)) == [name.encode() for name in names]
    assert pauses_of(descriptions.as_named(names, described)) >= 6
    assert not names, "they are let go within its slices"


async def test_groups_of_a_shard_that_is_elsewhere_are_refused_over_several_turns(
    world: BusyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in world.service._runtime.hosted_partitions():
        world.service._runtime.resign(partition)
    names = [f"group-{number}" for number in range(300)]
    turns = []
    for most in (300, 1):
        monkeypatch.setattr(service, "_REFUSED_AT_ONCE", most)
        answer, count = await turns_of(world.send(DeleteGroupsRequest(groups_names=[*names]), 2))
        assert {one.group_id: one.error_code for one in answer.results} == dict.fromkeys(
            names, ErrorCode.NOT_COORDINATOR
        )
        turns.append(count)
    assert turns[1] - turns[0] >= 299


async def test_more_offsets_than_a_transaction_commits_are_refused_over_several_turns_and_nobody_is_asked(
    world: BusyWorld,
) -> None:
    count = 10 * MAX_PARTITIONS

    async def verify(partition: int) -> Callable[[], None]:
        raise AssertionError("the coordinator of the transaction is asked")

    one = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topic = TxnOffsetCommitRequestTopic(name="t", partitions=[one] * count)
    request = TxnOffsetCommitRequest(transactional_id="id", group_id="g", producer_id=1, topics=[topic])
    answer, turns = await turns_of(world.service.txn_offset_commit(tools.CALLER, request, 5, verify))
    (refused,) = answer.topics
    codes = {one.error_code for one in refused.partitions}
    assert (len(refused.partitions), codes) == (count, {ErrorCode.INVALID_COMMIT_OFFSET_SIZE})
    assert turns > 20
