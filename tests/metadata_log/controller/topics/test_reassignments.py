"""Partitions move to other brokers, one AlterPartition at a time."""

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.metadata_log.harness import ControllerHarness


def reassign(
    harness: ControllerHarness,
    replicas: list[int] | None,
    *,
    topic: str = "t",
    index: int = 0,
    allow: bool = True,
) -> ErrorCode:
    code = harness.reassign(topic, replicas, index=index, allow_factor_change=allow)
    assert isinstance(code, ErrorCode)
    return code


def ongoing(
    harness: ControllerHarness, topics: list[ListPartitionReassignmentsTopics] | None = None
) -> dict[tuple[str, int], tuple[list[int], list[int], list[int]]]:
    request = ListPartitionReassignmentsRequest(topics=topics)
    response = harness.forward(request)
    return {
        (topic.name, p.partition_index): (p.replicas, p.adding_replicas, p.removing_replicas)
        for topic in response.topics
        for p in topic.partitions
    }


@pytest.fixture
def moving(cluster: ControllerHarness) -> ControllerHarness:
    """Five brokers; t-0 on 1, 2, 3."""
    cluster.start_brokers(4, 5)
    cluster.create_assigned("t", [1, 2, 3])
    return cluster


def test_a_move_ends_when_all_new_replicas_are_in_sync(moving: ControllerHarness) -> None:
    assert reassign(moving, [4, 5, 1]) == ErrorCode.NONE
    assert ongoing(moving) == {("t", 0): ([4, 5, 1, 2, 3], [4, 5], [2, 3])}
    assert moving.partition("t").leader == 1
    assert moving.set_isr("t", 1, 2, 3, 4).error == ErrorCode.NONE
    assert moving.partition("t").is_reassigning
    answer = moving.set_isr("t", 1, 2, 3, 4, 5)
    done = moving.partition("t")
    assert (answer.error, answer.isr, answer.leader_epoch) == (ErrorCode.NONE, (1, 4, 5), done.leader_epoch)
    assert (done.replicas, done.isr, done.leader) == ((4, 5, 1), (1, 4, 5), 1)
    assert done.leader_epoch == 1, "a removed replica must not continue to fetch in the old epoch"
    assert ongoing(moving) == {}


def test_a_move_that_only_adds_or_only_removes_is_ongoing_until_it_ends_or_is_cancelled(
    moving: ControllerHarness,
) -> None:
    assert reassign(moving, [1, 2, 3, 4]) == ErrorCode.NONE
    assert ongoing(moving) == {("t", 0): ([1, 2, 3, 4], [4], [])}
    assert reassign(moving, None) == ErrorCode.NONE
    assert ongoing(moving) == {}
    assert moving.set_isr("t", 1).error == ErrorCode.NONE
    assert reassign(moving, [2, 3]) == ErrorCode.NONE
    assert ongoing(moving) == {("t", 0): ([2, 3, 1], [], [1])}
    assert moving.set_isr("t", 1, 3).error == ErrorCode.NEW_LEADER_ELECTED
    assert (moving.partition("t").replicas, ongoing(moving)) == ((2, 3), {})


def test_a_leader_that_moves_itself_away_learns_that_another_was_elected(moving: ControllerHarness) -> None:
    reassign(moving, [4, 5])
    assert moving.set_isr("t", 1, 2, 3, 4, 5).error == ErrorCode.NEW_LEADER_ELECTED
    done = moving.partition("t")
    assert (done.replicas, done.isr, done.leader) == ((4, 5), (4, 5), 4)


def test_cancel_brings_the_old_replicas_back(moving: ControllerHarness) -> None:
    reassign(moving, [4, 5, 1])
    moving.set_isr("t", 1, 2, 3, 4)
    assert reassign(moving, None) == ErrorCode.NONE
    back = moving.partition("t")
    assert (back.replicas, back.isr, back.leader) == ((1, 2, 3), (1, 2, 3), 1)
    assert not back.is_reassigning
    assert reassign(moving, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_cancel_is_refused_while_only_new_replicas_hold_the_data(moving: ControllerHarness) -> None:
    reassign(moving, [4, 5])
    moving.set_isr("t", 1, 2, 3, 4)
    moving.stop_heartbeats(1, 2, 3)
    assert moving.partition("t").isr == (4,)
    assert reassign(moving, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert moving.partition("t").is_reassigning


@pytest.mark.parametrize("log_dirs", [None, (Uuid(bytes([77]) * 16),)])
def test_cancel_is_refused_if_the_old_replica_lost_records_and_no_sweep_has_recorded_it_yet(
    moving: ControllerHarness, log_dirs: tuple[Uuid, ...] | None
) -> None:
    """The new replica would delete the only complete copy."""
    moving.create_assigned("lonely", [1])
    reassign(moving, [4, 5], topic="lonely")
    moving.set_isr("lonely", 1, 4)
    moving.sweeps_at_once = False
    moving.register(1, incarnation=2, dead=(1,), log_dirs=log_dirs)
    assert moving.partition("lonely").isr == (1, 4)
    assert reassign(moving, None, topic="lonely") == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    moving.sweep()
    assert (moving.partition("lonely").leader, moving.partition("lonely").isr) == (4, (4,))
    assert reassign(moving, None, topic="lonely") == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_new_target_replaces_the_old_one(moving: ControllerHarness) -> None:
    reassign(moving, [4, 5])
    moving.set_isr("t", 1, 2, 3, 4)
    assert reassign(moving, [5, 1]) == ErrorCode.NONE
    assert ongoing(moving) == {("t", 0): ([5, 1, 2, 3], [5], [2, 3])}
    assert moving.partition("t").isr == (1, 2, 3)


def test_removal_and_new_order_take_effect_at_once(moving: ControllerHarness) -> None:
    assert reassign(moving, [3, 2, 1]) == ErrorCode.NONE
    assert moving.partition("t").replicas == (3, 2, 1)
    assert reassign(moving, [3, 2]) == ErrorCode.NONE
    assert (moving.partition("t").replicas, moving.partition("t").leader) == ((3, 2), 3)
    before = moving.image
    assert reassign(moving, [3, 2]) == ErrorCode.NONE
    assert moving.image is before


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 99], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_invalid_targets_are_refused(
    moving: ControllerHarness, replicas: list[int] | None, error: ErrorCode
) -> None:
    before = moving.image
    assert reassign(moving, replicas) == error
    assert moving.image is before


def test_unknown_partitions_are_refused(moving: ControllerHarness) -> None:
    assert reassign(moving, [1], topic="nope") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(moving, [1], index=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(moving, [1], index=-1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_replication_factor_changes_only_if_allowed(moving: ControllerHarness) -> None:
    assert reassign(moving, [4, 5], allow=False) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(moving, [4, 5, 1], allow=False) == ErrorCode.NONE
    # Compared with the replicas before the move, not with those of before and after.
    assert reassign(moving, [4, 5, 2], allow=False) == ErrorCode.NONE


def test_a_partition_named_twice_is_refused(moving: ControllerHarness) -> None:
    twice = [ReassignablePartition(partition_index=0, replicas=[4]) for _ in range(2)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=twice)])
    response = moving.run(moving.core.handle_forwarded(moving.context, request))
    assert [p.error_code for p in response.responses[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2


def test_listing_asks_for_some_or_all(moving: ControllerHarness) -> None:
    moving.create_assigned("u", [1, 2], [2, 3])
    reassign(moving, [4])
    reassign(moving, [5], topic="u", index=1)
    assert set(ongoing(moving)) == {("t", 0), ("u", 1)}
    asked = [
        ListPartitionReassignmentsTopics(name="u", partition_indexes=[0, 1, 9]),
        ListPartitionReassignmentsTopics(name="nope", partition_indexes=[0]),
    ]
    assert set(ongoing(moving, asked)) == {("u", 1)}


def test_a_new_replica_that_fails_delays_the_move_but_not_forever(moving: ControllerHarness) -> None:
    reassign(moving, [1, 2, 4])
    moving.set_isr("t", 1, 2, 3, 4)
    assert not moving.partition("t").is_reassigning
    reassign(moving, [1, 2, 5])
    moving.stop_heartbeats(5)
    assert moving.partition("t").is_reassigning
    moving.heartbeat(5)
    moving.set_isr("t", 1, 2, 4, 5)
    assert moving.partition("t").replicas == (1, 2, 5)
