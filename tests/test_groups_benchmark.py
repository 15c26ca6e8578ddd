"""The benchmarks of groups and transactions: when a group counts as stable; tables are their figures."""

import groups
import pytest
import transactions
import vs_kafka
from comparison.group_members import Ask, ClassicLife, ConsumerLife, Topic
from comparison.program import PAGE, Comparison
from comparison.results import Figure, Results, load
from comparison.table import replace_between_markers
from coordination.fleet import Shares
from coordination.table import render

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import groups as consumer_messages
from pykraft.kafka_protocol.messages.groups import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupResponse,
)

TOPIC = Topic("t", Uuid(bytes(15) + b"\x01"), 4)
RUN = dict.fromkeys(("date", "command", "pykraft", "kafka", "machine", "client", "values"), "x")


def shares_of(*owned: frozenset[int]) -> Shares:
    shares = Shares(4)
    for one in owned:
        shares.enter()
        shares.change(frozenset(), one)
    return shares


@pytest.mark.parametrize(
    ("owned", "are_final"),
    [
        ([{0, 1}, {2, 3}], True),
        ([{0, 1}, {2}, {3}], True),
        ([{0, 1}, {2, 3}, set()], False),
        ([{0, 1}, {1, 2, 3}], False),
        ([{0, 1}, {2}], False),
        ([{0, 1, 2}, {3}], False),
    ],
)
def test_shares_are_final_if_they_are_whole_disjoint_and_even(owned: list[set[int]], are_final: bool) -> None:
    assert shares_of(*map(frozenset, owned)).are_final() == are_final


def test_partition_that_two_have_for_a_moment_counts_again_once_one_has_it() -> None:
    shares = shares_of(frozenset({0, 1, 2}), frozenset({2, 3}))
    assert not shares.are_final()
    shares.change(frozenset({0, 1, 2}), frozenset({0, 1}))
    assert shares.are_final()
    shares.leave(frozenset({2, 3}))
    assert not shares.are_final()


def test_member_of_the_consumer_protocol_owns_what_the_coordinator_has_heard_of() -> None:
    life = ConsumerLife("g", TOPIC, 1)
    steps = life.steps()
    join = next(steps)
    assert join is not None
    assert join.request.member_epoch == 0
    share = consumer_messages.ConsumerGroupHeartbeatResponseTopicPartitions(
        topic_id=TOPIC.topic_id, partitions=[0, 2]
    )
    answer = consumer_messages.ConsumerGroupHeartbeatResponse(
        member_epoch=3,
        heartbeat_interval_ms=5000,
        assignment=consumer_messages.HeartbeatAssignment(topic_partitions=[share]),
    )
    told = steps.send(answer)
    assert told is not None
    assert told.request.topic_partitions[0].partitions == [0, 2]
    assert life.owned == frozenset()
    answer = consumer_messages.ConsumerGroupHeartbeatResponse(member_epoch=3, heartbeat_interval_ms=5000)
    assert steps.send(answer) is None, "it now waits for its next heartbeat"
    assert (life.owned, life.interval_s) == (frozenset({0, 2}), 5.0)


def test_leader_of_a_classic_group_gives_out_every_partition_once() -> None:
    life = ClassicLife("g", TOPIC, 1)
    steps = life.steps()
    next(steps)
    again = steps.send(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="a"))
    assert isinstance(again, Ask)
    assert again.request.member_id == "a"
    members = [JoinGroupResponseMember(member_id=name) for name in ("a", "b", "c")]
    sync = steps.send(JoinGroupResponse(generation_id=1, leader="a", member_id="a", members=members))
    assert isinstance(sync, Ask)
    assert [given.member_id for given in sync.request.assignments] == ["a", "b", "c"]
    own = sync.request.assignments[0].assignment
    assert steps.send(SyncGroupResponse(assignment=own)) is None
    assert life.owned == frozenset({0, 3})


def test_first_measure_of_a_row_is_shown() -> None:
    results = Results(RUN, rounds=1, quick=False)
    family = results.family("reading", "About it.")
    ours = [
        Figure("time", "s", 1),
        Figure("CPU", "ms", 20),
    ]
    results.note(family, "all", "pykraft", 0, ours)
    results.note(family, "all", "kafka", 0, [Figure("time", "s", 2)])
    assert "| reading, all: time | 1.00 s | 2.00 s | 0.50 |" in render([results])


def test_groups_of_several_sizes_are_side_by_side_and_a_watched_one_has_no_times() -> None:
    results = Results(RUN, rounds=1, quick=False)
    family = results.family("classic", "About it.")
    for system, factor in (("pykraft", 1), ("kafka", 4)):
        for size in (10, 100):
            figures = [Figure("time", "s", size * factor), Figure("broker CPU", "s", 1)]
            results.note(family, f"{size} members: one joins", system, 0, figures)
    results.note(
        family, "10 members: one joins, under watch", "pykraft", 0, [Figure("longest turn", "ms", 7)]
    )
    text = render([results])
    assert "| what | 10 members | 100 members |" in text
    assert "| classic: one joins | 10.0 s (0.25, 1.00) | 100 s (0.25, 1.00) |" in text
    assert "classic, 10 members: one joins: longest turn 7.00 ms." in text


@pytest.mark.parametrize("comparison", [vs_kafka.VS_KAFKA, groups.COMPARISON, transactions.COMPARISON])
def test_published_tables_come_from_the_published_figures(comparison: Comparison) -> None:
    page = PAGE.read_text(encoding="utf-8")
    text = comparison.shown(load([comparison.figures])) if comparison.figures.exists() else ""
    assert replace_between_markers(page, text, *comparison.markers).split() == page.split()
