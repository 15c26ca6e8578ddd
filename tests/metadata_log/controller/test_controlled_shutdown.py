"""A broker that asks to shut down: what moves first, which brokers it waits for, and when it may stop."""

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.metadata_log.records import NO_LEADER
from tests.metadata_log.harness import ControllerHarness


def test_controlled_shutdown_moves_leaderships_and_then_ends(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2], [1, 3])
    first = cluster.heartbeat(1, want_shut_down=True)
    assert (first.is_fenced, first.should_shut_down) == (False, False)
    assert cluster.image.brokers[1].in_controlled_shutdown
    assert [(p.leader, p.isr) for p in cluster.topic("t").partitions] == [(2, (2,)), (3, (3,))]
    second = cluster.heartbeat(1, want_shut_down=True)
    assert (second.is_fenced, second.should_shut_down) == (False, False), "the others do not know yet"
    cluster.heartbeat_active_brokers()
    third = cluster.heartbeat(1, want_shut_down=True)
    assert (third.is_fenced, third.should_shut_down) == (True, True)
    assert cluster.image.brokers[1].fenced


def test_broker_that_shuts_down_hands_over_and_may_then_stop(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2])
    first = cluster.heartbeat(1, want_shut_down=True)
    assert not first.should_shut_down and cluster.partition("t").leader == 2
    last = cluster.shut_down(1)
    assert last.should_shut_down and last.is_fenced
    cluster.register(1, incarnation=2)


def test_broker_that_shuts_down_with_the_only_copy_may_stop_anyway(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1])
    assert cluster.shut_down(1).should_shut_down
    assert cluster.partition("t").isr == (1,) and cluster.partition("t").leader == NO_LEADER


def test_broker_that_shuts_down_is_not_added_to_an_isr_again(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2])
    cluster.create_assigned("only", [2])
    cluster.heartbeat(2, want_shut_down=True)
    members = [(1, cluster.epoch_of(1)), (2, cluster.epoch_of(2))]
    assert cluster.propose_isr("t", members).error is ErrorCode.INELIGIBLE_REPLICA


def test_broker_that_another_process_reported_as_shutting_down_stays(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2], [1, 3])
    before = cluster.image.offset
    cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(1, offset=before)
    assert cluster.image.brokers[1].in_controlled_shutdown, "the heartbeat may be older than the request"
    cluster.heartbeat(1)
    assert cluster.image.is_active(1)
    cluster.create_assigned("u", [1, 2])
    cluster.heartbeat_active_brokers()
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert cluster.partition("u").leader == 2
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down, "the others do not know yet"
    cluster.heartbeat_active_brokers()
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_leaving_broker_waits_for_every_active_broker_to_have_applied_its_leave(
    cluster: ControllerHarness,
) -> None:
    cluster.create_assigned("t", [1, 2, 3])
    cluster.create_assigned("u", [3, 2])
    cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(1, want_shut_down=True)
    handed_over_at = cluster.image.offset
    cluster.heartbeat(2)
    cluster.heartbeat(3, offset=handed_over_at - 1)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.create_topic("later")
    cluster.heartbeat(3, offset=handed_over_at)
    cluster.heartbeat(2, offset=0)  # a late old heartbeat reverts nothing
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_leaving_broker_waits_for_no_fenced_or_leaving_one(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2, 3], [2, 3, 1])
    for broker_id in (1, 2):
        cluster.heartbeat(broker_id, want_shut_down=True)
        cluster.heartbeat(broker_id, want_shut_down=True)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.stop_heartbeats(3)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert cluster.heartbeat(2, want_shut_down=True).should_shut_down


def test_new_controller_learns_again_which_brokers_know_of_a_leave(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2])
    cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat_active_brokers()
    cluster.commit()
    cluster.lose_leadership()
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.heartbeat_active_brokers()
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_broker_that_leads_nothing_leaves_the_same_way(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [2, 1])
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.heartbeat_active_brokers()
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert cluster.partition("t").isr == (2,)


def test_shutting_down_the_only_replica_leaves_the_partition_without_a_leader_but_with_its_isr(
    cluster: ControllerHarness,
) -> None:
    cluster.create_assigned("t", [1])
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (-1, (1,))
    assert cluster.shut_down(1).should_shut_down


def test_broker_that_shut_down_may_restart_without_waiting_for_a_session(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1])
    cluster.shut_down(1)
    cluster.register(1, incarnation=2)
    assert not cluster.heartbeat(1).is_fenced
    assert not cluster.image.brokers[1].in_controlled_shutdown
    assert cluster.partition("t").leader == 1


def test_fenced_broker_that_wants_to_shut_down_may_stop_at_once(controller: ControllerHarness) -> None:
    controller.register(1)
    assert controller.heartbeat(1, want_shut_down=True).should_shut_down
