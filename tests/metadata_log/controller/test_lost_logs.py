"""What a registration tells about the broker's logs, and what follows for its replicas."""

from collections.abc import Callable
from typing import Unpack

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.topics import ElectLeadersRequest
from pykraft.metadata_log.controller.calls.requests import (
    LostReplica,
    LostReplicaResult,
    ReportLostReplicasRequest,
)
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.records import LogsLost
from tests.metadata_log.harness import ControllerHarness, RegistrationFields

UNCLEAN = ElectLeadersRequest(election_type=1, topic_partitions=None)
OTHER_DIRECTORY = (Uuid(bytes([77]) * 16),)


@pytest.fixture
def kept(make_controller: Callable[..., ControllerHarness]) -> ControllerHarness:
    """Three brokers; t-0 on 1 and 2, with 1 alone in sync. No eligible leader replicas."""
    harness = make_controller()
    harness.start_brokers(1, 2, 3)
    harness.create_assigned("t", [1, 2])
    harness.stop_heartbeats(2)
    assert harness.partition("t").isr == (1,)
    harness.heartbeat(2)
    return harness


def come_back(harness: ControllerHarness, broker_id: int, **how: Unpack[RegistrationFields]) -> None:
    harness.stop_heartbeats(broker_id)
    harness.register(broker_id, **({"incarnation": 9} | how))
    harness.heartbeat(broker_id)


def test_the_registration_states_what_may_be_lost(cluster: ControllerHarness) -> None:
    epoch = cluster.image.brokers[1].epoch
    cluster.stop_heartbeats(1)
    cluster.register(1, incarnation=2, previous_broker_epoch=epoch)
    assert cluster.image.brokers[1].logs_lost == LogsLost.NOTHING
    cluster.stop_heartbeats(1)
    cluster.register(1, incarnation=3, previous_broker_epoch=epoch)
    assert cluster.image.brokers[1].logs_lost == LogsLost.TAIL, "the epoch of an older incarnation"
    epoch = cluster.image.brokers[1].epoch
    cluster.stop_heartbeats(1)
    cluster.register(1, incarnation=4, previous_broker_epoch=epoch, log_dirs=OTHER_DIRECTORY)
    assert cluster.image.brokers[1].logs_lost == LogsLost.ALL
    cluster.heartbeat(1)
    assert cluster.image.brokers[1].logs_lost == LogsLost.NOTHING, (
        "unfenced: the sweep of its partitions is over"
    )


def test_a_loss_is_not_undone_by_registering_again(cluster: ControllerHarness) -> None:
    cluster.stop_heartbeats(1)
    cluster.register(1, incarnation=2)
    assert cluster.image.brokers[1].logs_lost == LogsLost.TAIL
    cluster.register(1, incarnation=2, port=9999)
    assert cluster.image.brokers[1].endpoints[0].port == 9999
    assert cluster.image.brokers[1].logs_lost == LogsLost.TAIL


def test_the_last_member_returns_as_leader_even_if_it_was_killed(kept: ControllerHarness) -> None:
    come_back(kept, 1)
    assert (kept.partition("t").leader, kept.partition("t").isr) == (1, (1,))


def test_the_last_member_without_its_directory_leads_only_after_an_unclean_election(
    kept: ControllerHarness,
) -> None:
    come_back(kept, 1, log_dirs=OTHER_DIRECTORY)
    assert (kept.partition("t").leader, kept.partition("t").isr) == (-1, ())
    kept.forward(UNCLEAN)
    assert kept.partition("t").leader in (1, 2)


def test_an_additional_directory_is_no_loss(kept: ControllerHarness) -> None:
    directories = (*kept.image.brokers[1].log_dirs, *OTHER_DIRECTORY)
    come_back(kept, 1, log_dirs=directories)
    assert kept.partition("t").leader == 1


def report(harness: ControllerHarness, broker_id: int, leader_epoch: int | None = None) -> LostReplicaResult:
    """``leader_epoch`` as the broker sees it, by default the current one."""
    epoch, topic_id = harness.image.brokers[broker_id].epoch, harness.topic("t").id
    if leader_epoch is None:
        leader_epoch = harness.partition("t").leader_epoch
    request = ReportLostReplicasRequest(broker_id, epoch, (LostReplica(topic_id, 0, leader_epoch),))
    (result,) = harness.run(harness.core.handle_report_lost_replicas(request)).partitions
    assert isinstance(result, LostReplicaResult)
    return result


@pytest.fixture
def three(make_controller: Callable[..., ControllerHarness]) -> ControllerHarness:
    """t-0 on brokers 1, 2 and 3, all in sync, led by 1."""
    harness = make_controller()
    harness.start_brokers(1, 2, 3)
    harness.create_assigned("t", [1, 2, 3])
    return harness


@pytest.mark.parametrize(("broker_id", "leader"), [(1, 2), (2, 1), (3, 1)])
def test_lost_replica_leaves_the_isr_and_its_old_fetches_no_longer_count(
    three: ControllerHarness, broker_id: int, leader: int
) -> None:
    before = three.partition("t")
    result = report(three, broker_id)
    after = three.partition("t")
    assert (result.error, result.partition_epoch) == (ErrorCode.NONE, after.partition_epoch)
    assert (after.leader, set(after.isr), after.lost) == (leader, {1, 2, 3} - {broker_id}, (broker_id,))
    assert after.leader_epoch == before.leader_epoch + 1
    three.set_isr("t", *after.isr, broker_id)
    assert set(three.partition("t").isr) == {1, 2, 3} and three.partition("t").lost == ()


@pytest.mark.parametrize("leads", [True, False])
def test_late_copy_of_a_report_changes_nothing_once_the_replica_was_copied_again(
    three: ControllerHarness, leads: bool
) -> None:
    seen = three.partition("t").leader_epoch
    report(three, 2, seen)
    three.set_isr("t", 1, 3, 2)
    if leads:
        three.stop_heartbeats(1, 3)
        assert three.partition("t").leader == 2
    before = three.image
    assert report(three, 2, seen).error is ErrorCode.FENCED_LEADER_EPOCH
    assert three.image == before


def test_late_copy_of_a_report_does_not_take_the_only_replica_offline_again(
    make_controller: Callable[..., ControllerHarness],
) -> None:
    harness = make_controller()
    harness.start_brokers(1)
    harness.create_assigned("t", [1])
    seen = harness.partition("t").leader_epoch
    report(harness, 1, seen)
    late = report(harness, 1, seen)
    assert late.error is ErrorCode.FENCED_LEADER_EPOCH, "while it waits for an operator"
    harness.forward(UNCLEAN)
    before = harness.image
    for epoch in range(seen, harness.partition("t").leader_epoch):
        assert report(harness, 1, epoch).error is ErrorCode.FENCED_LEADER_EPOCH
    assert harness.image == before and harness.partition("t").leader == 1
    assert report(harness, 1).error is ErrorCode.NONE, "a loss of the new copy"
    assert harness.partition("t").leader == -1


def test_report_after_a_change_of_the_isr_is_not_taken_for_a_late_one(three: ControllerHarness) -> None:
    seen = three.partition("t").leader_epoch
    three.set_isr("t", 1, 2)
    assert report(three, 2, seen).error is ErrorCode.NONE
    assert three.partition("t").lost == (2,)


def test_report_from_a_later_epoch_is_for_another_controller(three: ControllerHarness) -> None:
    before = three.image
    assert report(three, 2, three.partition("t").leader_epoch + 1).error is ErrorCode.NOT_CONTROLLER
    assert three.image == before


def test_lost_replica_reported_twice_raises_the_epochs_twice(three: ControllerHarness) -> None:
    report(three, 2)
    between = three.partition("t")
    report(three, 2)
    after = three.partition("t")
    assert (after.isr, after.lost, after.leader_epoch) == ((1, 3), (2,), between.leader_epoch + 1)


def test_last_replica_that_is_lost_leaves_the_partition_to_an_operator(kept: ControllerHarness) -> None:
    report(kept, 1)
    assert (kept.partition("t").leader, kept.partition("t").isr, kept.partition("t").lost) == (-1, (), (1,))
    kept.sweep()
    come_back(kept, 1, previous_broker_epoch=kept.image.brokers[1].epoch)
    assert kept.partition("t").leader == -1, "a restart does not bring the log back"
    kept.forward(UNCLEAN)
    after = kept.partition("t")
    assert (after.leader, after.isr, after.lost) == (2, (2,), (1,)), (
        "not the replica that is known to be empty"
    )


def test_only_an_operator_can_elect_the_only_replica_with_an_empty_log(
    make_controller: Callable[..., ControllerHarness],
) -> None:
    harness = make_controller(
        config=ControllerConfig(topic_defaults={"unclean.leader.election.enable": "true"})
    )
    harness.start_brokers(1)
    harness.create_assigned("t", [1])
    report(harness, 1)
    harness.sweep()
    assert (harness.partition("t").leader, harness.partition("t").lost) == (-1, (1,))
    harness.forward(UNCLEAN)
    after = harness.partition("t")
    assert (after.leader, after.isr, after.lost) == (1, (1,), ())


def test_report_about_unassigned_unknown_or_repeated_replicas_changes_nothing(
    three: ControllerHarness,
) -> None:
    three.create_assigned("u", [1])
    before = three.image
    epoch, topic_id = three.image.brokers[2].epoch, three.topic("u").id
    unknown = Uuid(bytes([9]) * 16)
    lost = (LostReplica(topic_id, 0, 0), LostReplica(topic_id, 7, 0), LostReplica(unknown, 0, 0))
    request = ReportLostReplicasRequest(2, epoch, (*lost, lost[0]))
    answer = three.run(three.core.handle_report_lost_replicas(request))
    assert [result.error for result in answer.partitions] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
    ]
    with pytest.raises(KafkaError) as raised:
        three.core.handle_report_lost_replicas(ReportLostReplicasRequest(2, epoch - 1, ()))
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert three.image == before
