"""The controller knows in which log directories replicas are, and which of these have failed (KIP-858)."""

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.topics import ElectLeadersRequest
from pykraft.metadata_log.controller.calls.requests import (
    AssignReplicasToDirsRequest,
    ReplicaDirectory,
    ReportLostReplicasRequest,
)
from pykraft.metadata_log.controller.calls.requests import LostReplica as Lost
from pykraft.metadata_log.records import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from tests.metadata_log.harness import ControllerHarness


def directory(number: int) -> Uuid:
    return Uuid(bytes([number]) * 16)


FIRST, SECOND = directory(11), directory(12)
NEW = directory(19)


@pytest.fixture
def two_dirs() -> ControllerHarness:
    """Brokers 1 (with two directories), 2 and 3; t-0 on 1 and 2, u-0 on 1 alone; 1 has both in FIRST."""
    harness = ControllerHarness()
    harness.register(1, log_dirs=(FIRST, SECOND))
    harness.heartbeat(1)
    harness.start_brokers(2, 3)
    harness.create_assigned("t", [1, 2])
    harness.create_assigned("u", [1])
    for topic in ("t", "u"):
        assert harness.assign(1, topic, FIRST) is ErrorCode.NONE
    return harness


def restart(harness: ControllerHarness, *log_dirs: Uuid, incarnation: int = 2) -> None:
    harness.stop_heartbeats(1)
    harness.register(1, incarnation=incarnation, log_dirs=log_dirs)
    harness.heartbeat(1)
    assert not harness.image.brokers[1].fenced


def test_an_assignment_is_recorded_and_moves_nothing(two_dirs: ControllerHarness) -> None:
    partition = two_dirs.partition("t")
    assert partition.directories == (FIRST, UNASSIGNED_DIRECTORY)
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1, 2), 0)
    offset = two_dirs.image.offset
    assert two_dirs.assign(1, "t", FIRST) is ErrorCode.NONE
    assert two_dirs.image.offset == offset, "nothing new"
    assert two_dirs.assign(1, "t", SECOND) is ErrorCode.NONE
    assert two_dirs.partition("t").directory(1) == SECOND
    assert two_dirs.partition("t").leader == 1, "a move between two that work"


def test_a_failed_directory_costs_its_replicas_isr_and_leadership(two_dirs: ControllerHarness) -> None:
    two_dirs.create_assigned("other", [1, 2])
    two_dirs.assign(1, "other", SECOND)
    two_dirs.heartbeat(1, offline_log_dirs=(FIRST,))
    moved = two_dirs.partition("t")
    assert (moved.leader, moved.isr, moved.leader_epoch) == (2, (2,), 1)
    alone = two_dirs.partition("u")
    assert (alone.leader, alone.isr) == (-1, (1,)), "it alone holds the records"
    stays = two_dirs.partition("other")
    assert (stays.leader, stays.isr, stays.leader_epoch) == (1, (1, 2), 0)
    assert not two_dirs.image.brokers[1].fenced
    offset = two_dirs.image.offset
    two_dirs.heartbeat(1, offline_log_dirs=(FIRST, NEW))
    assert two_dirs.image.offset == offset, "reported again, with one that is not known: nothing new"


def test_a_replica_in_a_failed_directory_does_not_join_an_isr(two_dirs: ControllerHarness) -> None:
    two_dirs.heartbeat(1, offline_log_dirs=(FIRST,))
    assert two_dirs.set_isr("t", 2, 1).error is ErrorCode.INELIGIBLE_REPLICA
    assert two_dirs.partition("t").isr == (2,)


def test_a_directory_that_came_back_is_used_again(two_dirs: ControllerHarness) -> None:
    two_dirs.heartbeat(1, offline_log_dirs=(FIRST,))
    restart(two_dirs, FIRST, SECOND)
    assert two_dirs.partition("u").leader == 1
    assert two_dirs.set_isr("t", 2, 1).error is ErrorCode.NONE


def test_a_directory_that_is_still_missing_at_the_next_start_keeps_its_replicas_offline(
    two_dirs: ControllerHarness,
) -> None:
    restart(two_dirs, SECOND)
    assert two_dirs.partition("t").isr == (2,)
    assert (two_dirs.partition("u").leader, two_dirs.partition("u").isr) == (-1, (1,))
    restart(two_dirs, FIRST, SECOND, incarnation=3)
    assert two_dirs.partition("u").leader == 1


def test_a_missing_directory_costs_only_replicas_that_may_be_in_it(two_dirs: ControllerHarness) -> None:
    """Of v nothing is known; w is in the directory that is there."""
    two_dirs.create_assigned("v", [1])
    two_dirs.create_assigned("w", [1])
    two_dirs.assign(1, "w", SECOND)
    restart(two_dirs, SECOND)
    assert (two_dirs.partition("v").leader, two_dirs.partition("v").isr) == (-1, ())
    assert (two_dirs.partition("w").leader, two_dirs.partition("w").isr) == (1, (1,))


def test_a_loss_counts_before_an_assignment_hides_it(two_dirs: ControllerHarness) -> None:
    """The broker reports v in its only directory before the sweep after its registration has visited v."""
    two_dirs.create_assigned("v", [1])
    two_dirs.stop_heartbeats(1)
    two_dirs.sweeps_at_once = False
    two_dirs.register(1, incarnation=2, log_dirs=(SECOND,))
    assert two_dirs.assign(1, "v", SECOND) is ErrorCode.NONE
    two_dirs.sweeps_at_once = True
    two_dirs.sweep()
    two_dirs.heartbeat(1)
    assert not two_dirs.image.brokers[1].fenced
    assert (two_dirs.partition("v").leader, two_dirs.partition("v").isr) == (-1, ())


def test_a_log_in_a_new_directory_does_not_stand_for_the_one_in_the_old(two_dirs: ControllerHarness) -> None:
    restart(two_dirs, SECOND, NEW)
    assert two_dirs.assign(1, "u", NEW) is ErrorCode.NONE
    partition = two_dirs.partition("u")
    assert (partition.leader, partition.isr, partition.lost) == (-1, (), (1,))
    assert partition.directory(1) == NEW


def test_a_lost_replica_that_started_over_is_assigned_without_another_loss(
    two_dirs: ControllerHarness,
) -> None:
    restart(two_dirs, SECOND, NEW)
    topic = two_dirs.topic("t")
    lost = Lost(topic.id, 0, two_dirs.partition("t").leader_epoch)
    report = ReportLostReplicasRequest(1, two_dirs.epoch_of(1), (lost,))
    two_dirs.run(two_dirs.core.handle_report_lost_replicas(report))
    assert two_dirs.partition("t").lost == (1,)
    epoch = two_dirs.partition("t").leader_epoch
    assert two_dirs.partition("t").directory(1) == UNASSIGNED_DIRECTORY, "it may start over in any"
    assert two_dirs.assign(1, "t", NEW) is ErrorCode.NONE
    assert two_dirs.partition("t").leader_epoch == epoch
    assert two_dirs.set_isr("t", 2, 1).error is ErrorCode.NONE
    assert two_dirs.partition("t").lost == ()


def test_a_replica_that_fails_before_it_was_assigned_leaves_with_its_assignment(
    two_dirs: ControllerHarness,
) -> None:
    two_dirs.create_assigned("v", [1, 2])
    two_dirs.create_assigned("w", [1, 2])
    two_dirs.heartbeat(1, offline_log_dirs=(FIRST,))
    assert two_dirs.partition("v").leader == 1
    two_dirs.assign(1, "v", FIRST)
    assert (two_dirs.partition("v").leader, two_dirs.partition("v").isr) == (2, (2,))
    two_dirs.assign(1, "w", LOST_DIRECTORY)
    assert (two_dirs.partition("w").leader, two_dirs.partition("w").isr) == (2, (2,))


def test_wrong_assignments_are_refused_one_by_one(two_dirs: ControllerHarness) -> None:
    two_dirs.create_assigned("elsewhere", [2, 3])
    assert two_dirs.assign(1, "elsewhere", FIRST) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert two_dirs.assign(1, "t", NEW) is ErrorCode.INVALID_REQUEST
    topic_id = two_dirs.topic("t").id
    assignments = (
        ReplicaDirectory(NEW, 0, FIRST),
        ReplicaDirectory(topic_id, 5, FIRST),
        ReplicaDirectory(topic_id, 0, SECOND),
        ReplicaDirectory(topic_id, 0, FIRST),
    )
    request = AssignReplicasToDirsRequest(1, two_dirs.epoch_of(1), assignments)
    assert two_dirs.run(two_dirs.core.handle_assign_replicas_to_dirs(request)).errors == (
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    )
    assert two_dirs.partition("t").directory(1) == SECOND
    with pytest.raises(KafkaError) as refused:
        two_dirs.core.handle_assign_replicas_to_dirs(AssignReplicasToDirsRequest(1, 0, assignments))
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_replicas_that_are_reassigned_keep_their_directories(two_dirs: ControllerHarness) -> None:
    two_dirs.reassign("t", [3, 1])
    assert two_dirs.partition("t").directory(1) == FIRST
    assert two_dirs.set_isr("t", 1, 2, 3).error is ErrorCode.NONE
    done = two_dirs.partition("t")
    assert (done.replicas, done.directories) == ((3, 1), (UNASSIGNED_DIRECTORY, FIRST))
    two_dirs.reassign("t", [3, 2])
    two_dirs.set_isr("t", *two_dirs.partition("t").isr, 2)
    assert two_dirs.partition("t").directories == (), "one that leaves and comes back has none"


def test_a_broker_is_unfenced_only_after_the_partitions_of_its_failed_directories_changed(
    two_dirs: ControllerHarness,
) -> None:
    two_dirs.stop_heartbeats(1)
    two_dirs.register(1, incarnation=2, log_dirs=(FIRST, SECOND))
    two_dirs.sweeps_at_once = False
    assert two_dirs.heartbeat(1, offline_log_dirs=(FIRST,)).is_fenced
    assert two_dirs.heartbeat(1, offline_log_dirs=(FIRST,)).is_fenced, "not swept yet"
    two_dirs.sweep()
    assert not two_dirs.heartbeat(1, offline_log_dirs=(FIRST,)).is_fenced
    assert two_dirs.partition("u").leader == -1


def test_directories_survive_a_snapshot_and_a_change_of_controllers(two_dirs: ControllerHarness) -> None:
    two_dirs.heartbeat(1, offline_log_dirs=(FIRST,))
    two_dirs.commit()
    assert two_dirs.standby.image.brokers[1].offline_log_dirs == (FIRST,)
    assert two_dirs.standby.image.partition(two_dirs.topic("t").id, 0) == two_dirs.partition("t")


def test_an_operator_may_elect_a_lost_replica_whose_directory_is_gone(two_dirs: ControllerHarness) -> None:
    """It creates its log only when there is a leader."""
    restart(two_dirs, SECOND, NEW)
    lost = Lost(two_dirs.topic("u").id, 0, two_dirs.partition("u").leader_epoch)
    report = ReportLostReplicasRequest(1, two_dirs.epoch_of(1), (lost,))
    two_dirs.run(two_dirs.core.handle_report_lost_replicas(report))
    assert two_dirs.partition("u").leader == -1
    unclean = ElectLeadersRequest(election_type=1, topic_partitions=None)
    two_dirs.forward(unclean)
    assert two_dirs.partition("u").leader == 1
